package backup_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"loquat"
	"loquat/internal/backup"
	"loquat/internal/store"
	"loquat/internal/store/sqlite"
)

func hashOf(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// dataWith makes a data directory whose store names images, by their bytes. Files are
// there for those that are not lost.
func dataWith(t *testing.T, images, lost, damaged []string) (dir string, hashes map[string]string) {
	t.Helper()
	dir, hashes = t.TempDir(), map[string]string{}
	driver, err := sqlite.Open(t.Context(), dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), driver, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	for i, image := range slices.Concat(images, lost, damaged) {
		hash := hashOf(image)
		hashes[image] = hash
		err := s.Update(t.Context(), func(tx *store.Tx) error {
			h, err := tx.CreateSession(fmt.Sprint("session-", i), "default", nil)
			if err != nil {
				return err
			}
			return tx.AddAsset(h, loquat.Asset{AssetID: "a", SHA256: hash, MediaType: "image/png", Size: int64(len(image))})
		})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "assets", hash[:2], hash)
		text := image
		switch {
		case slices.Contains(lost, image):
			continue
		case slices.Contains(damaged, image):
			text = "x" + image[1:]
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir, hashes
}

// A copy has every undamaged image and lists the images that the data directory has lost.
func TestImages(t *testing.T) {
	from, hashes := dataWith(t, []string{"one", "two"}, []string{"lost"}, []string{"damaged"})
	to := filepath.Join(t.TempDir(), "copy")
	r, err := backup.Make(t.Context(), from, to+"/")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(r.Lost)
	want := []string{hashes["lost"], hashes["damaged"]}
	slices.Sort(want)
	if r.Images != 2 || !slices.Equal(r.Lost, want) {
		t.Errorf("%+v, want the lost %v", r, want)
	}
	var files []string
	err = filepath.WalkDir(to, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files = append(files, entry.Name())
		}
		return err
	})
	wanted := []string{hashes["one"], hashes["two"], "loquat.db"}
	slices.Sort(files)
	slices.Sort(wanted)
	if err != nil || !slices.Equal(files, wanted) {
		t.Errorf("the copy holds %v (%v), want %v", files, err, wanted)
	}
	if b, err := os.ReadFile(filepath.Join(to, "assets", hashes["one"][:2], hashes["one"])); string(b) != "one" {
		t.Errorf("an image is %q (%v)", b, err)
	}
}

// A failed backup leaves nothing behind.
func TestNothingIsLeft(t *testing.T) {
	from, _ := dataWith(t, []string{"one"}, nil, nil)
	parent := t.TempDir()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := backup.Make(cancelled, from, filepath.Join(parent, "copy")); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled copy: %v", err)
	}
	if _, err := backup.Make(t.Context(), t.TempDir(), filepath.Join(parent, "copy")); err == nil {
		t.Error("there is a copy of nothing")
	}
	taken := filepath.Join(parent, "taken")
	if err := os.Mkdir(taken, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Make(t.Context(), from, taken); err == nil {
		t.Error("a copy took the place of something")
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) != 1 {
		t.Errorf("there is %v (%v)", left, err)
	}
}
