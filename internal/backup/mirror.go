package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"loquat/internal/asset"
	"loquat/internal/asset/files"
	"loquat/internal/store"
)

// mirror copies images to a place. It copies every image of the data directory, so that those which a
// state names are there before the state is.
//
// An image stays as long as any state that can be restored names it. When no newer state does, a note
// with the time is written, and the image is removed when this note is old enough.
type mirror struct {
	dir   string // the images of the data directory
	place Place

	have    map[string]bool   // the images in the place, by hash
	unused  map[string]int64  // the notes in the place: since when an image is unused
	folders map[string]folder // what is on the disk
}

// folder is one folder of images, as it was when it was last read.
type folder struct {
	changed, read time.Time
	hashes        []string
}

// settled is how long a folder must be unchanged before its time is trusted: file systems keep times
// only so exactly.
const settled = 2 * time.Second

// maxRemovals is how many images one call of expire removes, because copies wait for it.
const maxRemovals = 16

func imageName(hash string) string { return "assets/" + hash[:2] + "/" + hash }

func unusedName(hash string, since int64) string { return fmt.Sprintf("unused/%016x-%s", since, hash) }

// load reads what is in the place.
func (m *mirror) load(ctx context.Context) error {
	m.have, m.unused, m.folders = map[string]bool{}, map[string]int64{}, map[string]folder{}
	err := m.place.List(ctx, "assets/", func(name string, _ int64) error {
		if hash := path.Base(name); asset.IsHash(hash) && name == imageName(hash) {
			m.have[hash] = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	return m.place.List(ctx, "unused/", func(name string, _ int64) error {
		since, hash, _ := strings.Cut(path.Base(name), "-")
		if n, err := strconv.ParseInt(since, 16, 64); err == nil && asset.IsHash(hash) {
			m.unused[hash] = n
		}
		return nil
	})
}

// scan reads the folders that changed. It reports whether any did. It must run after the state began
// that is copied: the images which this state names are on disk then, or were removed since.
func (m *mirror) scan() (changed bool, err error) {
	now := time.Now()
	entries, err := os.ReadDir(m.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	found := map[string]folder{}
	for _, entry := range entries {
		if entry.Name() == files.Incoming || !entry.IsDir() {
			continue
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, err
		}
		f, ok := m.folders[entry.Name()]
		if !ok || !f.changed.Equal(info.ModTime()) || f.read.Sub(f.changed) < settled {
			changed = true
			if f, err = readFolder(filepath.Join(m.dir, entry.Name()), info.ModTime(), now); err != nil {
				return false, err
			}
		}
		found[entry.Name()] = f
	}
	changed = changed || len(found) != len(m.folders)
	m.folders = found
	return changed, nil
}

func readFolder(path string, changed, now time.Time) (folder, error) {
	entries, err := os.ReadDir(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return folder{}, err
	}
	f := folder{changed: changed, read: now}
	for _, entry := range entries {
		if asset.IsHash(entry.Name()) {
			f.hashes = append(f.hashes, entry.Name())
		}
	}
	return f, nil
}

// again makes the next scan read everything.
func (m *mirror) again() { clear(m.folders) }

// copyAll copies the images on disk ahead of a sync, which then has little to do.
func (m *mirror) copyAll(ctx context.Context) error {
	_, err := m.scan()
	for _, f := range m.folders {
		for _, hash := range f.hashes {
			if err == nil {
				err = m.copy(ctx, hash)
			}
		}
	}
	m.again()
	return err
}

// sync copies the images on disk, and returns those that a state names and that cannot be copied.
func (m *mirror) sync(ctx context.Context, named []store.ImageFile, at int64) (missing []string, err error) {
	used := map[string]bool{}
	for _, f := range m.folders {
		for _, hash := range f.hashes {
			used[hash] = true
			if err := m.copy(ctx, hash); err != nil {
				return nil, err
			}
		}
	}
	for _, image := range named {
		used[image.SHA256] = true
		if !m.have[image.SHA256] {
			missing = append(missing, image.SHA256)
		}
	}
	for hash := range m.have {
		since, noted := m.unused[hash]
		switch {
		case used[hash] && noted:
			if err := m.place.Remove(ctx, unusedName(hash, since)); err != nil {
				return nil, err
			}
			delete(m.unused, hash)
		case !used[hash] && !noted:
			if err := m.place.Put(ctx, unusedName(hash, at), 0, bytes.NewReader(nil)); err != nil {
				return nil, err
			}
			m.unused[hash] = at
		}
	}
	return missing, nil
}

// copy copies an image to the place, unless it is there, or was removed from the disk meanwhile, or is
// damaged.
func (m *mirror) copy(ctx context.Context, hash string) error {
	if m.have[hash] {
		return nil
	}
	b, err := os.ReadFile(files.Path(m.dir, hash))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != hash {
		return nil
	}
	if err := m.place.Put(ctx, imageName(hash), int64(len(b)), bytes.NewReader(b)); err != nil {
		return fmt.Errorf("copy an image: %w", err)
	}
	m.have[hash] = true
	return nil
}

// expire removes images that no state since a time names.
func (m *mirror) expire(ctx context.Context, before int64) error {
	n := 0
	for hash, since := range m.unused {
		if since >= before {
			continue
		}
		if n++; n > maxRemovals {
			return nil
		}
		if err := m.place.Remove(ctx, imageName(hash)); err != nil {
			return err
		}
		delete(m.have, hash)
		if err := m.place.Remove(ctx, unusedName(hash, since)); err != nil {
			return err
		}
		delete(m.unused, hash)
	}
	return nil
}
