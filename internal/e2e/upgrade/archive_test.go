package upgrade_test

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
)

// compress writes a file through gzip.
func compress(path string, write func(io.Writer) error) (err error) {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	compressed, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	return errors.Join(write(compressed), compressed.Close())
}

// decompress reads a file that compress wrote.
func decompress(path string, read func(io.Reader) error) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	compressed, err := gzip.NewReader(in)
	if err != nil {
		return err
	}
	return read(compressed)
}

// writeJSON writes a value as compressed JSON.
func writeJSON(path string, v any) error {
	return compress(path, func(w io.Writer) error {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", " ")
		return encoder.Encode(v)
	})
}

// readJSON reads compressed JSON into a value.
func readJSON(path string, v any) error {
	return decompress(path, func(r io.Reader) error { return json.NewDecoder(r).Decode(v) })
}

// pack writes the files of a directory to a compressed archive.
func pack(path, dir string) error {
	return compress(path, func(w io.Writer) error {
		archive := tar.NewWriter(w)
		return errors.Join(archive.AddFS(os.DirFS(dir)), archive.Close())
	})
}

// unpack writes the files of an archive to a directory, readable for this user only.
func unpack(path, dir string) error {
	return decompress(path, func(r io.Reader) error { return extract(r, dir) })
}

func extract(r io.Reader, dir string) error {
	for archive := tar.NewReader(r); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := filepath.Join(dir, filepath.FromSlash(header.Name))
		if header.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(name, 0o700); err != nil {
				return err
			}
			continue
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(name, content, 0o600); err != nil {
			return err
		}
	}
}
