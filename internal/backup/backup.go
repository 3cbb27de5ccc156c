// Package backup copies a data directory while a server uses it.
//
// It promises that a copy is one state of the store, with every image that this state
// names; that what was copied is checked and on disk; that a copy is there under its
// name once it is complete, and not before; and that the server need not know and is
// not held up. A server that starts on a copy makes of it a log of its own, see package
// store.
//
// It does not copy the configuration, nor what plugins keep in folders of their own.
package backup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"loquat"
	"loquat/internal/asset"
	"loquat/internal/store"
	"loquat/internal/store/sqlite"
)

// maxRounds bounds how often the store is copied again because images that it names
// were removed before they could be copied.
const maxRounds = 20

// Report tells what a copy holds.
type Report struct {
	Last   loquat.EventID // everything up to this event is in it
	Images int            // that are in it
	Lost   []string       // the hashes of those that the data directory itself has lost
	Notes  []string       // what became of incomplete copies that killed backups had left
}

// Make copies the data directory from into a new directory to.
func Make(ctx context.Context, from, to string) (r Report, err error) {
	to = filepath.Clean(to)
	if _, err := os.Lstat(to); err == nil {
		return Report{}, fmt.Errorf("%s is there already; name a directory that is not", to)
	}
	parent := filepath.Dir(to)
	notes := removeLeftovers(parent, time.Now())
	work, lock, err := begin(parent)
	if err != nil {
		return Report{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(work))
		}
		err = errors.Join(err, lock.Unlock())
	}()
	if r, err = fill(ctx, from, work); err != nil {
		return Report{}, err
	}
	r.Notes = notes
	if err := removeLock(lock); err != nil {
		return Report{}, err
	}
	if err := asset.SyncTree(work); err != nil {
		return Report{}, err
	}
	if err := os.Rename(work, to); err != nil {
		return Report{}, err
	}
	return r, asset.SyncDir(parent)
}

// fill copies the store, then the images that it names. When one was removed in between,
// the copy is too old for the images and is taken again: what is removed has lost its
// owner, so that the next copy does not name it. One that still does has lost its file.
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
			err := asset.Copy(filepath.Join(from, "assets"), images, hash)
			if asset.IsLost(err) {
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
