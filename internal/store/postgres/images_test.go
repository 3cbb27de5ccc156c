//go:build unix

package postgres_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"loquat/internal/asset"
	"loquat/internal/asset/assettest"
	"loquat/internal/store"
	"loquat/internal/store/postgres"
	"loquat/internal/store/postgres/pgtest"
)

// startObject returns the name of a new object for an upload.
func startObject(t *testing.T, s *store.Store, name string, u *asset.Upload) string {
	t.Helper()
	if err := s.Update(t.Context(), func(tx *store.Tx) error { return tx.StartObject(name, u.SHA256, u.Size) }); err != nil {
		t.Fatal(err)
	}
	return name
}

// It runs alone, because it measures the memory of the process.
func TestImages(t *testing.T) {
	server := pgtest.Shared(t)
	assettest.Run(t, func(t *testing.T) assettest.Place {
		_, url := server.Database(t)
		s, db := openStore(t, postgres.Options{URL: url})
		var n atomic.Int64
		return assettest.Place{
			Open: func(*testing.T) asset.Store { return db.Images() },
			Name: func(t *testing.T, u *asset.Upload) string {
				return startObject(t, s, fmt.Sprintf("%s-%d", u.SHA256, n.Add(1)), u)
			},
		}
	})
}

// A put whose object was given up meanwhile leaves nothing.
func TestPutOfAnObjectThatWasGivenUp(t *testing.T) {
	t.Parallel()
	_, url := pgtest.Shared(t).Database(t)
	s, db := openStore(t, postgres.Options{URL: url})
	content := assettest.PNG(t, 1, 3<<20)
	name := startObject(t, s, "gone", assettest.Receive(t, content))
	err := s.Update(t.Context(), func(tx *store.Tx) error {
		if err := tx.ExpireObjects(tx.Now.Add(time.Second)); err != nil {
			return err
		}
		return tx.ForgetObject(name)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Images().Put(t.Context(), name, assettest.Receive(t, content)); err == nil {
		t.Error("the put succeeded")
	}
	var left int
	if err := connect(t, url).QueryRow(t.Context(), "SELECT count(*) FROM image_pieces").Scan(&left); err != nil || left != 0 {
		t.Errorf("%d pieces are left: %v", left, err)
	}
}

// While the database cannot be reached, images are unavailable, and the error says so.
func TestImagesWithoutTheDatabase(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off")
	s, db := openStore(t, postgres.Options{URL: server.URL("postgres"), Lease: time.Second})
	images := db.Images()
	content := assettest.PNG(t, 1, 2<<20)
	u := assettest.Receive(t, content)
	name := startObject(t, s, "one", u)
	if err := images.Put(t.Context(), name, u); err != nil {
		t.Fatal(err)
	}
	f, err := images.Open(t.Context(), name, u.Size)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	_, opened := images.Open(t.Context(), name, u.Size)
	_, read := f.Seek(1<<20, 0)
	if read == nil {
		_, read = f.Read(make([]byte, 100))
	}
	for what, err := range map[string]error{
		"open": opened, "read": read, "remove": images.Remove(t.Context(), name),
		"put": images.Put(t.Context(), "two", assettest.Receive(t, content)),
	} {
		down, ok := errors.AsType[*asset.UnavailableError](err)
		if !ok || !strings.Contains(down.Text, "cannot be reached") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the image can be read", func() bool {
		again, err := images.Open(t.Context(), name, u.Size)
		return err == nil && again.Close() == nil
	})
}
