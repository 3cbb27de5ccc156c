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

// writeJSON writes a value as compressed JSON.
func writeJSON(path string, v any) (err error) {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	compressed, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(compressed)
	encoder.SetIndent("", " ")
	return errors.Join(encoder.Encode(v), compressed.Close())
}

// readJSON reads compressed JSON into a value.
func readJSON(path string, v any) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	compressed, err := gzip.NewReader(in)
	if err != nil {
		return err
	}
	return json.NewDecoder(compressed).Decode(v)
}

// pack writes the files of a directory to a compressed archive.
func pack(path, dir string) (err error) {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	compressed, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(compressed)
	return errors.Join(archive.AddFS(os.DirFS(dir)), archive.Close(), compressed.Close())
}

// unpack writes the files of an archive to a directory, readable for this user only.
func unpack(path, dir string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	compressed, err := gzip.NewReader(in)
	if err != nil {
		return err
	}
	for archive := tar.NewReader(compressed); ; {
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
