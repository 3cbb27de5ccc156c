package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"loquat/internal/asset/files"
)

// Place is where continuous copies are kept: files with names of several parts, such as
// ltx/0/name. A file is never seen in part.
type Place interface {
	// Put stores a file, also in place of another one. A size below 0 is unknown. When Put returns nil,
	// the file survives a crash.
	Put(ctx context.Context, name string, size int64, r io.Reader) error
	// Get returns the bytes of a file, which the caller closes. If there is none, the error wraps
	// fs.ErrNotExist.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// List calls fn with the files whose names begin with prefix, in any order.
	List(ctx context.Context, prefix string, fn func(name string, size int64) error) error
	// Remove removes a file, if there is one.
	Remove(ctx context.Context, name string) error
	// Clean removes what interrupted calls of Put have left. No Put may run.
	Clean(ctx context.Context) error
}

// Folder is a Place in a directory.
type Folder struct{ path string }

var _ Place = (*Folder)(nil)

// unfinished begins the names of files that are being written.
const unfinished = ".part-"

// OpenFolder returns the place in a directory. It does not make the directory.
func OpenFolder(path string) *Folder { return &Folder{path} }

// Put implements Place.
func (d *Folder) Put(ctx context.Context, name string, _ int64, r io.Reader) error {
	if err := d.put(ctx, filepath.Join(d.path, filepath.FromSlash(name)), r); err != nil {
		switch {
		case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
			return fmt.Errorf("the disk of %s is full; make room there, or keep copies for a shorter time (--keep): %w", d.path, err)
		case errors.Is(err, fs.ErrPermission):
			return fmt.Errorf("the user of this process may not write to %s; change the owner of that directory: %w", d.path, err)
		case errors.Is(err, syscall.EROFS):
			return fmt.Errorf("the file system of %s is read-only; mount it so that it can be written: %w", d.path, err)
		}
		return err
	}
	return nil
}

func (d *Folder) put(ctx context.Context, path string, r io.Reader) error {
	folder := filepath.Dir(path)
	if err := d.makeFolder(folder); err != nil {
		return err
	}
	f, err := os.CreateTemp(folder, unfinished)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, cancelReader{ctx, r})
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return files.SyncDir(folder)
}

// makeFolder makes a folder of the place, so that it survives a crash. If the directory itself was
// removed, it makes nothing: perhaps its disk is not mounted.
func (d *Folder) makeFolder(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if path == d.path {
		return fmt.Errorf("%s was removed, or its disk is not mounted; mount it, or make the directory: %w", d.path, fs.ErrNotExist)
	}
	if err := d.makeFolder(filepath.Dir(path)); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return files.SyncDir(filepath.Dir(path))
}

// cancelReader ends when its context does.
type cancelReader struct {
	ctx context.Context
	r   io.Reader
}

func (c cancelReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// Get implements Place.
func (d *Folder) Get(_ context.Context, name string) (io.ReadCloser, error) {
	return os.Open(filepath.Join(d.path, filepath.FromSlash(name)))
}

// List implements Place.
func (d *Folder) List(ctx context.Context, prefix string, fn func(name string, size int64) error) error {
	top := filepath.Join(d.path, filepath.FromSlash(prefix[:strings.LastIndexByte(prefix, '/')+1]))
	return d.walk(ctx, top, func(path string, entry fs.DirEntry) error {
		name, err := filepath.Rel(d.path, path)
		if err != nil {
			return err
		}
		if name = filepath.ToSlash(name); !strings.HasPrefix(name, prefix) || strings.HasPrefix(entry.Name(), unfinished) {
			return nil
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			return nil
		}
		if err != nil {
			return err
		}
		return fn(name, info.Size())
	})
}

// walk calls fn with each file below a folder.
func (d *Folder) walk(ctx context.Context, top string, fn func(path string, entry fs.DirEntry) error) error {
	return filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && (path != d.path || entry != nil):
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case !entry.Type().IsRegular():
			return nil
		}
		return fn(path, entry)
	})
}

// Remove implements Place.
func (d *Folder) Remove(_ context.Context, name string) error {
	err := os.Remove(filepath.Join(d.path, filepath.FromSlash(name)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Clean implements Place.
func (d *Folder) Clean(ctx context.Context) error {
	return d.walk(ctx, d.path, func(path string, entry fs.DirEntry) error {
		if strings.HasPrefix(entry.Name(), unfinished) {
			return os.Remove(path)
		}
		return nil
	})
}
