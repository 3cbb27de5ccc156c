package files

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"loquat"
	"loquat/internal/asset"
)

// ErrDamaged reports that the bytes of a file do not match the hash in its name.
var ErrDamaged = errors.New("the file of the image was damaged")

// Copy copies the file of a hash from one directory of images to another, and checks its
// bytes. If the target exists, it does nothing. Other processes may use the source directory
// meanwhile. If the source does not exist, the error wraps fs.ErrNotExist.
func Copy(from, to, sha256 string) error {
	if _, err := os.Stat(Path(to, sha256)); err == nil {
		return nil
	}
	in, err := os.Open(Path(from, sha256))
	if err != nil {
		return err
	}
	defer in.Close()
	return Write(to, sha256, in)
}

// Write writes the file of a hash into a directory of images that does not have it, and checks its bytes.
func Write(to, sha256 string, in io.Reader) error {
	target := Path(to, sha256)
	if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
		return err
	}
	out, err := os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = copyChecked(out, in, sha256)
	if err = errors.Join(err, out.Close()); err != nil {
		return errors.Join(err, os.Remove(target))
	}
	return nil
}

func copyChecked(out *os.File, in io.Reader, want string) error {
	if err := sameHash(out, in, want); err != nil {
		return err
	}
	return out.Sync()
}

// sameHash copies and fails when the bytes do not have the hash.
func sameHash(out io.Writer, in io.Reader, want string) error {
	hash := sha256.New()
	if _, err := io.Copy(io.MultiWriter(out, hash), in); err != nil {
		return err
	}
	if hex.EncodeToString(hash.Sum(nil)) != want {
		return fmt.Errorf("%s: %w", want, ErrDamaged)
	}
	return nil
}

// IsLost reports whether an error of Copy means that the image is missing or damaged.
func IsLost(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrDamaged) }

// SyncTree flushes the names in a directory and all of its folders to disk.
func SyncTree(path string) error {
	return filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		return SyncDir(name)
	})
}

// Verify reports what is wrong with the file of a hash in a directory of images. A full
// check reads its bytes.
func Verify(dir, sha256 string, size int64, full bool) error {
	if !asset.IsHash(sha256) {
		return fmt.Errorf("%q is not the hash of an image", loquat.Clip(sha256, loquat.Excerpt))
	}
	path := (&Dir{path: dir}).file(sha256)
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case info.Size() != size:
		return fmt.Errorf("%s has %d bytes, not %d: %w", path, info.Size(), size, ErrDamaged)
	case full:
		return sameHash(io.Discard, f, sha256)
	}
	return nil
}
