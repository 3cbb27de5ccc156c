package images_test

import (
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"testing"

	"loquat"
	"loquat/internal/asset"
	"loquat/internal/asset/assettest"
	"loquat/internal/asset/files"
	"loquat/internal/images"
	"loquat/internal/store"
	"loquat/internal/store/sqlite"
)

var quiet = slog.New(slog.DiscardHandler)

// addTo stores an image for a session, as an upload does.
func addTo(t testing.TB, k images.Keeper, s *store.Store, session, assetID string, u *asset.Upload) error {
	t.Helper()
	return k.Add(t.Context(), u, func(adopt func(*store.Tx) error) (bool, error) {
		err := s.Update(t.Context(), func(tx *store.Tx) error {
			h, err := tx.Head(session)
			if err != nil {
				return err
			}
			if err := adopt(tx); err != nil {
				return err
			}
			return tx.AddAsset(h, loquat.Asset{AssetID: assetID, SHA256: u.SHA256, Size: u.Size, MediaType: "image/png"})
		})
		return err == nil, err
	})
}

func createSession(t testing.TB, s *store.Store, id string) {
	t.Helper()
	err := s.Update(t.Context(), func(tx *store.Tx) error {
		h, err := tx.CreateSession(id, "default", nil)
		if err != nil {
			return err
		}
		return tx.Checkpoint(&h, nil, false)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// removeFrom removes an image from a session.
func removeFrom(t testing.TB, s *store.Store, session, assetID string) error {
	t.Helper()
	return s.Update(t.Context(), func(tx *store.Tx) error {
		h, err := tx.Head(session)
		if err != nil {
			return err
		}
		a, err := tx.Asset(h, assetID)
		if err != nil {
			return err
		}
		return tx.RemoveAsset(h, a)
	})
}

// wantImage requires that the bytes of an image can be read.
func wantImage(t testing.TB, k images.Keeper, u *asset.Upload) {
	t.Helper()
	f, err := k.Open(t.Context(), u.SHA256, u.Size)
	if err != nil {
		t.Errorf("open %s: %v", u.SHA256, err)
		return
	}
	defer f.Close()
	if n, err := io.Copy(io.Discard, f); err != nil || n != u.Size {
		t.Errorf("%s has %d bytes, want %d: %v", u.SHA256, n, u.Size, err)
	}
}

// A file without an owner is what a crash between the two leaves. The next start removes it.
func TestStartRemovesStrayFiles(t *testing.T) {
	path := t.TempDir()
	driver, err := sqlite.Open(t.Context(), path, quiet)
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), driver, store.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	dir, err := files.Open(path + "/assets")
	if err != nil {
		t.Fatal(err)
	}
	k := images.NewLocal(s, dir, quiet)
	createSession(t, s, "a")
	owned, stray := assettest.Receive(t, assettest.PNG(t, 1, 100)), assettest.Receive(t, assettest.PNG(t, 2, 100))
	if err := addTo(t, k, s, "a", "1", owned); err != nil {
		t.Fatal(err)
	}
	if err := dir.Put(t.Context(), stray.SHA256, stray); err != nil {
		t.Fatal(err)
	}
	if err := images.NewLocal(s, dir, quiet).Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantImage(t, k, owned)
	if _, err := k.Open(t.Context(), stray.SHA256, stray.Size); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the stray file: %v", err)
	}
}
