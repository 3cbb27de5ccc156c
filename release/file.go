package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// file is a file or, with the mode bit fs.ModeDir, a directory of an archive, a package or an image.
type file struct {
	path    string // separated by slashes
	mode    fs.FileMode
	content []byte
	owner   owner
	kind    kind
}

// owner is the user and the group of a file; the zero owner is root.
type owner struct {
	user, group string
	id          int
}

// kind says how packages treat a file.
type kind int

const (
	plain   kind = iota
	setting      // the administrator may change it: an upgrade keeps the change
	manual       // documentation
	licence
)

// readFile returns a file of the repository under another path.
func (r *release) readFile(from, to string) (file, error) {
	content, err := os.ReadFile(filepath.Join(r.root, filepath.FromSlash(from)))
	return file{path: to, mode: 0o644, content: content}, err
}

// inOrder sorts files by their paths, so that directories come before what they have.
func inOrder(files []file) []file {
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.path, b.path) })
	return files
}

// compressed returns text in gzip, without a name or a time.
func compressed(text []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	err = w.Close()
	return out.Bytes(), err
}

// sumsName is the name of the file with the checksums of all others.
const sumsName = "SHA256SUMS"

// writeSums writes the checksums of all files in a directory, as sha256sum does.
func writeSums(dir string) error {
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return err
	}
	var sums bytes.Buffer
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), e.Name())
	}
	return os.WriteFile(filepath.Join(dir, sumsName), sums.Bytes(), 0o644)
}
