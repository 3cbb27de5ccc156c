package files_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"loquat/internal/asset"
	"loquat/internal/asset/assettest"
	"loquat/internal/asset/files"
)

func open(t *testing.T, path string) *files.Dir {
	t.Helper()
	d, err := files.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDir(t *testing.T) {
	assettest.Run(t, func(t *testing.T) assettest.Place {
		path := t.TempDir()
		return assettest.Place{
			Open: func(t *testing.T) asset.Store { return open(t, path) },
			Name: func(_ *testing.T, u *asset.Upload) string { return u.SHA256 },
		}
	})
}

// The files of a directory are named by their hashes. Other files are not listed.
func TestHashes(t *testing.T) {
	path := t.TempDir()
	d := open(t, path)
	u := assettest.Receive(t, assettest.PNG(t, 1, 100))
	if err := d.Put(t.Context(), u.SHA256, u); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"notes.txt", filepath.Join(u.SHA256[:2], "notes.txt"), filepath.Join(files.Incoming, u.SHA256)} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(path, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var listed []string
	for hash, err := range d.Hashes() {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, hash)
	}
	if !slices.Equal(listed, []string{u.SHA256}) {
		t.Errorf("listed %q", listed)
	}
	if _, err := os.Stat(filepath.Join(path, u.SHA256[:2], u.SHA256)); err != nil {
		t.Errorf("the file is not where backups look for it: %v", err)
	}
}

// An image whose file is cut short is stored again by its next upload.
func TestCutFile(t *testing.T) {
	path := t.TempDir()
	d := open(t, path)
	image := assettest.PNG(t, 1, 100)
	for range 2 {
		u := assettest.Receive(t, image)
		if err := d.Put(t.Context(), u.SHA256, u); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(path, u.SHA256[:2], u.SHA256)
		if b, err := os.ReadFile(file); err != nil || !bytes.Equal(b, image) {
			t.Errorf("%d of %d bytes: %v", len(b), len(image), err)
		}
		if err := os.Truncate(file, 10); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCheck(t *testing.T) {
	path := filepath.Join(t.TempDir(), "assets")
	d := open(t, path)
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	if err := d.Check(context.Background()); err == nil || !strings.Contains(err.Error(), "move it back") {
		t.Errorf("a directory that was removed: %v", err)
	}
	for _, err := range d.Hashes() {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("listed a directory that was removed: %v", err)
		}
	}
}

// Restrict makes files private that are readable for all, as after copying by hand.
func TestRestrict(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no permissions")
	}
	dir := filepath.Join(t.TempDir(), "assets")
	hash := strings.Repeat("ab", sha256.Size)
	for _, folder := range []string{dir, filepath.Join(dir, hash[:2])} {
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, hash[:2], hash)
	if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	d, err := files.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v %v", info, err)
	}
	if err := d.Restrict(); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]fs.FileMode{dir: 0o700, filepath.Dir(file): 0o700, file: 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v, want %04o", path, info, err, want)
		}
	}
}
