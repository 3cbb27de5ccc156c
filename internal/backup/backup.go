// Package backup copies a data directory while a server uses it: once into a directory, or
// continuously to a Place, from which the states of many moments can be restored.
//
// A copy is one state of the store, with every image that this state names. It is verified
// and on disk, and gets its name only when it is complete. The server is neither involved
// nor delayed. A server that starts on a copy gives it a new log identity, see package store.
//
// The configuration and the plugins' own folders are not copied.
package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"loquat"
	"loquat/internal/asset/files"
	"loquat/internal/store"
	"loquat/internal/store/sqlite"
)

// maxRounds bounds how often the store is copied again because images that it names
// were removed before they could be copied.
const maxRounds = 20

// Report describes a copy.
type Report struct {
	Last   loquat.EventID // the newest event in the copy
	Images int            // the number of images in the copy
	Lost   []string       // hashes of images that are missing in the data directory
	Notes  []string       // what was done with incomplete copies of killed backups
}

// Make copies the data directory from into a new directory to.
func Make(ctx context.Context, from, to string) (r Report, err error) {
	notes, err := makeDir(to, func(work string) error {
		r, err = fill(ctx, from, work)
		return err
	})
	if err != nil {
		return Report{}, err
	}
	r.Notes = notes
	return r, nil
}

// cannotMake says what to do if a directory cannot be made because its user may not write where it is to be. Nobody
// should get the rights to a directory of the system for that.
func cannotMake(to string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%s cannot be made, because this user may not write in %s; name one that is in a directory of this user", to, filepath.Dir(to))
	}
	return err
}

// makeDir makes a directory, which gets its name when fill has filled it.
func makeDir(to string, fill func(work string) error) (notes []string, err error) {
	to = filepath.Clean(to)
	if _, err := os.Lstat(to); err == nil {
		return nil, fmt.Errorf("%s exists; name a directory that does not exist", to)
	}
	parent := filepath.Dir(to)
	notes = removeLeftovers(parent, time.Now())
	work, lock, err := begin(parent)
	if err != nil {
		return nil, cannotMake(to, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(work))
		}
		err = errors.Join(err, lock.Unlock())
	}()
	if err := fill(work); err != nil {
		return nil, err
	}
	if err := removeLock(lock); err != nil {
		return nil, err
	}
	if err := files.SyncTree(work); err != nil {
		return nil, err
	}
	if err := os.Rename(work, to); err != nil {
		return nil, err
	}
	return notes, files.SyncDir(parent)
}

// fill copies the store, then the images that it names. If an image was removed meanwhile,
// fill copies the store again: a removed image has no owner, so the next copy does not name
// it. If the next copy still names the image, its file is lost.
func fill(ctx context.Context, from, to string) (Report, error) {
	images := filepath.Join(to, "assets")
	var before []string
	for range maxRounds {
		var r Report
		var hashes []string
		if err := sqlite.Remove(to); err != nil {
			return Report{}, err
		}
		err := sqlite.Copy(ctx, from, to, func(q store.SQL) (err error) {
			if err := store.RequireInPlace(q); err != nil {
				return err
			}
			r.Last, hashes, err = store.MarkCopy(q)
			return err
		})
		if err != nil {
			return Report{}, err
		}
		for _, hash := range hashes {
			if err := ctx.Err(); err != nil {
				return Report{}, err
			}
			err := files.Copy(filepath.Join(from, "assets"), images, hash)
			if files.IsLost(err) {
				r.Lost = append(r.Lost, hash)
			} else if err != nil {
				return Report{}, fmt.Errorf("copy an image: %w", err)
			}
		}
		if !slices.ContainsFunc(r.Lost, func(hash string) bool { return !slices.Contains(before, hash) }) {
			r.Images = len(hashes) - len(r.Lost)
			return r, nil
		}
		before = r.Lost
	}
	return Report{}, fmt.Errorf("images were removed faster than they could be copied, %d times; try again at a quieter time", maxRounds)
}
