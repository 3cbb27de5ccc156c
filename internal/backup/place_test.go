package backup_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"loquat/internal/asset/s3"
	"loquat/internal/asset/s3/s3test"
	"loquat/internal/backup"
)

// What a Place promises is kept by directories and by buckets.
func TestPlaces(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) backup.Place{
		"directory": func(t *testing.T) backup.Place { return backup.OpenFolder(t.TempDir()) },
		"bucket": func(t *testing.T) backup.Place {
			server := s3test.Start(t)
			objects, err := s3.OpenObjects(server.Options(t, "some/prefix", server.Addr))
			if err != nil {
				t.Fatal(err)
			}
			return objects
		},
	} {
		t.Run(name, func(t *testing.T) { testPlace(t, open(t)) })
	}
}

func testPlace(t *testing.T, place backup.Place) {
	ctx := t.Context()
	list := func(prefix string) map[string]int64 {
		t.Helper()
		found := map[string]int64{}
		if err := place.List(ctx, prefix, func(name string, size int64) error {
			found[name] = size
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return found
	}
	if found := list("ltx/"); len(found) > 0 {
		t.Errorf("an empty place has %v", found)
	}
	large := make([]byte, 35<<20) // of several parts
	for i := range large {
		large[i] = byte(i * i >> 7)
	}
	for name, b := range map[string][]byte{"ltx/0/a": []byte("first"), "ltx/1/b": {}, "ltx/0/large": large} {
		size := int64(len(b))
		if size > 1<<20 {
			size = -1
		}
		if err := place.Put(ctx, name, size, bytes.NewReader(b)); err != nil {
			t.Fatal(err)
		}
		if got, err := read(ctx, place, name); err != nil || !bytes.Equal(got, b) {
			t.Errorf("%s: %d bytes of %d, %v", name, len(got), len(b), err)
		}
	}
	if err := place.Put(ctx, "ltx/0/a", 6, strings.NewReader("second")); err != nil {
		t.Fatal(err)
	}
	if b, err := read(ctx, place, "ltx/0/a"); string(b) != "second" {
		t.Errorf("a file that was written again: %q %v", b, err)
	}
	testBrokenPut(t, place)
	if err := place.Clean(ctx); err != nil {
		t.Error(err)
	}
	want := map[string]int64{"ltx/0/a": 6, "ltx/0/large": int64(len(large)), "ltx/1/b": 0}
	if found := list("ltx/"); !maps.Equal(found, want) {
		t.Errorf("there is %v, want %v", found, want)
	}
	if found := list("ltx/0/"); len(found) != 2 {
		t.Errorf("below ltx/0/ there is %v", slices.Collect(maps.Keys(found)))
	}
	for range 2 { // also if there is none
		if err := place.Remove(ctx, "ltx/0/a"); err != nil {
			t.Error(err)
		}
	}
	if _, err := place.Get(ctx, "ltx/0/a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a removed file: %v", err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if err := place.Put(cancelled, "ltx/0/late", 1, strings.NewReader("x")); err == nil {
		t.Error("a cancelled Put succeeds")
	}
}

// testBrokenPut stores files whose bytes cannot be read to their end.
func testBrokenPut(t *testing.T, place backup.Place) {
	t.Helper()
	broken := errors.New("broken")
	for _, size := range []int64{100, -1} {
		in := io.MultiReader(io.LimitReader(rand.NewChaCha8([32]byte{}), 40<<20), iotest.ErrReader(broken))
		if size > 0 {
			in = io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken))
		}
		if err := place.Put(t.Context(), "ltx/0/half", size, in); err == nil {
			t.Error("a file was stored whose bytes could not be read")
		}
	}
}

func read(ctx context.Context, place backup.Place, name string) ([]byte, error) {
	in, err := place.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return io.ReadAll(in)
}

// A directory whose disk is not mounted is not filled, and what a killed process left is removed.
func TestFolder(t *testing.T) {
	top := filepath.Join(t.TempDir(), "mounted")
	place := backup.OpenFolder(top)
	if err := place.Put(t.Context(), "ltx/0/a", 1, strings.NewReader("x")); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "not mounted") {
		t.Errorf("a file in a directory that is missing: %v", err)
	}
	left := filepath.Join(top, "ltx", "0", ".part-123")
	if err := errors.Join(os.MkdirAll(filepath.Dir(left), 0o700), os.WriteFile(left, []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := place.List(t.Context(), "", func(name string, _ int64) error { return errors.New(name) }); err != nil {
		t.Errorf("a file that is being written is listed: %v", err)
	}
	if err := place.Clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what a killed process left: %v", err)
	}
}
