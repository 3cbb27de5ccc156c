package backup

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// workPrefix begins the names of copies that are not complete. Digits follow.
const workPrefix = ".loquat-backup-"

// workLock is a file in such a copy, which is locked while the copy is made. A copy whose
// lock is free was left by a backup that was killed.
const workLock = "backup.lock"

// unlockedAge is how long a copy without a lock has to be untouched before it counts as
// left over: older versions made none.
const unlockedAge = 24 * time.Hour

// begin makes the directory of a copy and locks it.
func begin(parent string) (work string, lock *flock.Flock, err error) {
	for range 10 {
		if work, err = os.MkdirTemp(parent, workPrefix); err != nil {
			return "", nil, err
		}
		lock = flock.New(filepath.Join(work, workLock))
		ok, err := lock.TryLock()
		if err == nil && ok {
			if _, err := os.Stat(lock.Path()); err == nil {
				return work, lock, nil
			}
		}
		// Another backup took the directory for a leftover before the lock was held.
		if err := errors.Join(lock.Unlock(), os.RemoveAll(work)); err != nil {
			return "", nil, err
		}
	}
	return "", nil, errors.New("other backups remove the directories of this one; make one at a time")
}

// removeLock removes the lock file of a copy that is complete.
func removeLock(lock *flock.Flock) error {
	if os.Remove(lock.Path()) == nil {
		return nil
	}
	// Windows removes no file that is open.
	return errors.Join(lock.Unlock(), os.Remove(lock.Path()))
}

// removeLeftovers removes the incomplete copies of killed backups and returns notes about
// them. Other directories, and copies in progress, are kept. Failures do not stop a backup.
func removeLeftovers(parent string, now time.Time) (notes []string) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return nil // then no copy can be made there either, which says why
	}
	for _, entry := range entries {
		digits, ok := strings.CutPrefix(entry.Name(), workPrefix)
		if !ok || !entry.IsDir() || digits == "" || strings.Trim(digits, "0123456789") != "" {
			continue
		}
		path := filepath.Join(parent, entry.Name())
		switch removed, err := removeLeftover(path, now); {
		case err != nil:
			notes = append(notes, fmt.Sprintf("a backup that was killed has left %s, which cannot be removed: %v", path, err))
		case removed:
			notes = append(notes, fmt.Sprintf("removed %s, which a backup that was killed had left", path))
		}
	}
	return notes
}

func removeLeftover(path string, now time.Time) (removed bool, err error) {
	newest, ok, err := inspectCopy(path)
	if err != nil || !ok {
		return false, err
	}
	lock := flock.New(filepath.Join(path, workLock), flock.SetFlag(os.O_RDWR)) // which makes none
	locked, err := lock.TryLock()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if now.Sub(newest) < unlockedAge {
			return false, nil
		}
	case err != nil || !locked:
		return false, err
	}
	defer lock.Unlock()
	return true, os.RemoveAll(path)
}

// inspectCopy reports whether a directory holds nothing but what a backup writes, and
// when it was changed last.
func inspectCopy(dir string) (newest time.Time, ok bool, err error) {
	ok = true
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if !isOfCopy(filepath.ToSlash(name), entry) {
			ok = false
			return fs.SkipAll
		}
		info, err := entry.Info()
		if err == nil && info.ModTime().After(newest) {
			newest = info.ModTime()
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) { // it is being changed
		return time.Time{}, false, nil
	}
	return newest, ok, err
}

// isOfCopy reports whether a file or directory in a copy is one that a backup makes.
func isOfCopy(name string, entry fs.DirEntry) bool {
	parts := strings.Split(name, "/")
	switch {
	case !entry.IsDir() && !entry.Type().IsRegular():
		return false
	case name == ".", name == "assets":
		return entry.IsDir()
	case len(parts) == 1:
		return !entry.IsDir() && (name == workLock || name == "loquat.db" || strings.HasPrefix(name, "loquat.db-"))
	case parts[0] != "assets" || len(parts) > 3:
		return false
	}
	_, err := hex.DecodeString(parts[len(parts)-1])
	return err == nil && entry.IsDir() == (len(parts) == 2)
}
