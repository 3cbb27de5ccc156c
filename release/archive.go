package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"
)

// writeArchive writes the archive of a platform: a zip for Windows, else a compressed tar.
func (r *release) writeArchive(p *platform) error {
	files, err := r.archiveFiles(p)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("loquat_%s_%s_%s", r.version, p.os, p.arch)
	for i := range files {
		files[i].path = path.Join(name, files[i].path)
	}
	inOrder(files)
	var out []byte
	if p.os == "windows" {
		name += ".zip"
		out, err = zipOf(files, r.time)
	} else {
		name += ".tar.gz"
		if out, err = tarOf(files, r.time); err == nil {
			out, err = compressed(out)
		}
	}
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, name), out, 0o644)
}

// archiveFiles returns what an archive has: the program, what its users read and load, and how to run
// it as a service.
func (r *release) archiveFiles(p *platform) ([]file, error) {
	program, err := os.ReadFile(p.program)
	if err != nil {
		return nil, err
	}
	files := []file{
		{path: p.programName(), mode: 0o755, content: program},
		{path: licensesName, mode: 0o644, content: r.licenses},
	}
	docs, err := r.docs()
	if err != nil {
		return nil, err
	}
	for _, name := range append([]string{"LICENSE", "README.md", "CHANGELOG.md"}, docs...) {
		f, err := r.readFile(name, name)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	files = append(files, inFolder("completions", r.scripts)...)
	return append(files, inFolder("man", r.pages)...), nil
}

// inFolder returns files in a folder.
func inFolder(folder string, files []file) (out []file) {
	for _, f := range files {
		f.path = path.Join(folder, f.path)
		out = append(out, f)
	}
	return out
}

// tarOf returns a tar of files.
func tarOf(files []file, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		header := &tar.Header{Name: f.path, Mode: int64(f.mode.Perm()), Size: int64(len(f.content)), ModTime: at, Uid: f.owner.id, Gid: f.owner.id, Format: tar.FormatPAX}
		if f.mode&fs.ModeSticky != 0 {
			header.Mode |= 0o1000
		}
		if f.mode.IsDir() {
			header.Typeflag, header.Name = tar.TypeDir, f.path+"/"
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// zipOf returns a zip of files.
func zipOf(files []file, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	w.RegisterCompressor(zip.Deflate, func(out io.Writer) (io.WriteCloser, error) { return flate.NewWriter(out, flate.BestCompression) })
	for _, f := range files {
		header := &zip.FileHeader{Name: f.path, Method: zip.Deflate, Modified: at}
		header.SetMode(f.mode)
		entry, err := w.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := entry.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}
