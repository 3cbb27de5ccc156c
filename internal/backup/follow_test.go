package backup

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"loquat"
	"loquat/internal/migrate/migratetest"
	"loquat/internal/store"
	"loquat/internal/store/sqlite"
)

// write adds a session to a store.
func write(t *testing.T, s *store.Store, id string) {
	t.Helper()
	if err := s.Update(t.Context(), func(tx *store.Tx) error { return migratetest.AddSession(tx, id, 2, s.Owner()) }); err != nil {
		t.Fatal(err)
	}
}

// addImage adds an image to a session, or only its row if the text is empty.
func addImage(t *testing.T, s *store.Store, dir, session, hash, text string) {
	t.Helper()
	if text != "" {
		path := filepath.Join(dir, "assets", hash[:2], hash)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Update(t.Context(), func(tx *store.Tx) error {
		h, err := tx.Head(session)
		if err != nil {
			return err
		}
		return tx.AddAsset(h, loquat.Asset{AssetID: hash[:8], SHA256: hash, MediaType: "image/png", Size: int64(len(text))})
	}); err != nil {
		t.Fatal(err)
	}
}

// An image is in the place before a state names it, stays as long as a state that is kept names it, and
// is removed then.
func TestMirror(t *testing.T) {
	const text, hash = "one", "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
	dir, place := t.TempDir(), &memory{files: map[string][]byte{}}
	s := openStore(t, dir)
	write(t, s, "a")
	f := newTestFollower(t, dir, place)
	now := time.Now()
	step := func(after time.Duration) {
		t.Helper()
		now = now.Add(after)
		if err := f.step(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		if failing := f.failing.Load(); failing != nil {
			t.Fatal(*failing)
		}
	}
	has := func(want bool, when string) {
		t.Helper()
		if _, ok := place.files[imageName(hash)]; ok != want {
			t.Fatalf("%s: the image is in the place: %t", when, ok)
		}
	}
	step(0)
	addImage(t, s, dir, "a", hash, text)
	step(time.Second)
	has(true, "after the upload")
	named := now
	if err := s.Update(t.Context(), func(tx *store.Tx) error {
		h, err := tx.Head("a")
		if err != nil {
			return err
		}
		return tx.RemoveAsset(h, loquat.Asset{AssetID: hash[:8], SHA256: hash})
	}); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "assets", hash[:2], hash)); err != nil {
		t.Fatal(err)
	}
	step(time.Second)
	has(true, "right after the deletion")
	step(6 * 24 * time.Hour)
	has(true, "while states are kept that name it")
	r, err := Restore(t.Context(), place, filepath.Join(t.TempDir(), "restored"), named)
	if err != nil || r.Images != 1 || len(r.Lost) > 0 {
		t.Errorf("a state that names it: %+v %v", r, err)
	}
	if again := newMirror(t, place); len(again.have) != 1 || len(again.unused) != 1 {
		t.Errorf("a later process finds %v and %v", again.have, again.unused)
	}
	step(2 * 24 * time.Hour)
	has(false, "after these states")
	if left := place.bytes("unused/"); left != 0 || len(f.images.unused) > 0 {
		t.Errorf("the note about it is still there: %v", f.images.unused)
	}
}

func newMirror(t *testing.T, place Place) *mirror {
	t.Helper()
	m := &mirror{dir: t.TempDir(), place: place}
	if err := m.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return m
}

// An image that the data directory has lost is reported and keeps nothing else from being copied.
func TestLostImage(t *testing.T) {
	const hash = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
	dir, place := t.TempDir(), &memory{files: map[string][]byte{}}
	s := openStore(t, dir)
	write(t, s, "a")
	f := newTestFollower(t, dir, place)
	addImage(t, s, dir, "a", hash, "")
	if err := os.MkdirAll(filepath.Join(dir, "assets", hash[:2]), 0o700); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	f.log = slog.New(slog.NewTextHandler(&said, nil))
	for i := range maxGone + 2 {
		if err := f.step(t.Context(), time.Now().Add(time.Duration(i)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Count(said.String(), "images are missing or damaged") != 1 {
		t.Errorf("the log says %s", &said)
	}
	r, err := Restore(t.Context(), place, filepath.Join(t.TempDir(), "restored"), time.Time{})
	if err != nil || r.Last != s.Last() || !slices.Equal(r.Lost, []string{hash}) {
		t.Errorf("%+v %v, want all up to %s and one lost image", r, err, s.Last())
	}
}

// brokenPlace fails while err is set.
type brokenPlace struct {
	*memory
	err error
}

func (b *brokenPlace) Put(ctx context.Context, name string, size int64, r io.Reader) error {
	if b.err != nil {
		return b.err
	}
	return b.memory.Put(ctx, name, size, r)
}

// Nothing is missing in the copies if the server ran only between two runs of the process.
func TestServerBetweenTwoFollowers(t *testing.T) {
	dir, place := t.TempDir(), &memory{files: map[string][]byte{}}
	server := func(name string) (last loquat.EventID) {
		s := openStore(t, dir)
		for i := range 50 {
			write(t, s, fmt.Sprint(name, i))
		}
		last = s.Last()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return last
	}
	follow := func() {
		f := newTestFollower(t, dir, place)
		if err := f.step(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		if err := f.tracker.Close(); err != nil {
			t.Fatal(err)
		}
	}
	server("before")
	follow()
	last := server("between")
	follow()
	r, err := Restore(t.Context(), place, filepath.Join(t.TempDir(), "restored"), time.Time{})
	if err != nil || r.Last != last {
		t.Errorf("the newest state ends at %s, want %s: %v", r.Last, last, err)
	}
}

// Sessions that were moved are backed up no more in their old place: the copies would seem to have what is new.
func TestNoBackupOfMovedSessions(t *testing.T) {
	t.Parallel()
	dir, place := t.TempDir(), &memory{files: map[string][]byte{}}
	s := openStore(t, dir)
	write(t, s, "a")
	f := newTestFollower(t, dir, place)
	defer f.tracker.Close()
	if err := f.step(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	err := s.Close()
	driver, openErr := sqlite.Open(t.Context(), dir, slog.New(slog.DiscardHandler))
	if err := errors.Join(err, openErr); err != nil {
		t.Fatal(err)
	}
	err = driver.Write(t.Context(), func(q store.SQL) error {
		return store.SetMove(q, store.Move{Kind: store.Moved, Store: "1", Place: "postgres://there"})
	})
	if err := errors.Join(err, driver.Close()); err != nil {
		t.Fatal(err)
	}
	if err := f.step(t.Context(), time.Now()); !errors.Is(err, store.ErrMoving) {
		t.Errorf("the follower goes on: %v", err)
	}
	if _, err := newFollower(t.Context(), Options{Dir: dir, Place: place}); !errors.Is(err, store.ErrMoving) {
		t.Errorf("another follower begins: %v", err)
	}
	if _, err := Make(t.Context(), dir, filepath.Join(t.TempDir(), "copy")); !errors.Is(err, store.ErrMoving) {
		t.Errorf("a backup is made: %v", err)
	}
}

// farPlace answers nothing until it is near.
type farPlace struct {
	*memory
	near chan struct{}
}

func (p *farPlace) List(ctx context.Context, prefix string, fn func(string, int64) error) error {
	select {
	case <-p.near:
	case <-ctx.Done():
		return ctx.Err()
	}
	return p.memory.List(ctx, prefix, fn)
}

// While the process waits for its place, the server's write-ahead log does not grow without a bound.
func TestPlaceThatIsFarAtTheStart(t *testing.T) {
	t.Parallel()
	dir, place := t.TempDir(), &farPlace{&memory{files: map[string][]byte{}}, make(chan struct{})}
	s := openStore(t, dir)
	f, err := newFollower(t.Context(), Options{Dir: dir, Place: place, Name: "test", Every: 20 * time.Millisecond, Keep: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer f.tracker.Close()
	began := make(chan error, 1)
	go func() { began <- f.begin(t.Context(), func(error) bool { return true }) }()
	const written, most = 150 << 20, 80 << 20
	var largest int64
	for n := range written / (1 << 20) {
		addText(t, s, fmt.Sprint("s", n), 1<<20)
		if info, err := os.Stat(filepath.Join(dir, "loquat.db-wal")); err == nil {
			largest = max(largest, info.Size())
		}
	}
	if largest > most {
		t.Errorf("the write-ahead log grew to %d bytes", largest)
	}
	close(place.near)
	if err := <-began; err != nil {
		t.Fatal(err)
	}
	if err := f.step(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	r, err := Restore(t.Context(), place, filepath.Join(t.TempDir(), "restored"), time.Time{})
	if err != nil || r.Last != s.Last() {
		t.Errorf("the newest state ends at %s, want %s: %v", r.Last, s.Last(), err)
	}
}

// addText adds a session with a message of so many bytes that cannot be compressed.
func addText(t *testing.T, s *store.Store, id string, size int) {
	t.Helper()
	random := make([]byte, size*3/4)
	rand.Read(random)
	err := s.Update(t.Context(), func(tx *store.Tx) error {
		if err := migratetest.AddSession(tx, id, 0, s.Owner()); err != nil {
			return err
		}
		h, err := tx.Head(id)
		if err != nil {
			return err
		}
		if _, err := tx.AppendMessage(&h, loquat.Message{ID: id, Role: loquat.RoleUser, Content: base64.StdEncoding.EncodeToString(random)}); err != nil {
			return err
		}
		return tx.Checkpoint(&h, nil, false)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// What changes while a place fails is copied later, in one piece, and not the whole database again. A
// file that is damaged in the place makes the next copy a full one.
func TestPlaceThatFails(t *testing.T) {
	dir, place := t.TempDir(), &brokenPlace{memory: &memory{files: map[string][]byte{}}}
	s := openStore(t, dir)
	for i := range 100 {
		write(t, s, fmt.Sprint("before-", i))
	}
	f := newTestFollower(t, dir, place)
	now := time.Now()
	step := func() {
		t.Helper()
		now = now.Add(20 * time.Second)
		if err := f.step(t.Context(), now); err != nil {
			t.Fatal(err)
		}
	}
	restores := func(when string) {
		t.Helper()
		r, err := Restore(t.Context(), place, filepath.Join(t.TempDir(), "restored"), time.Time{})
		if err != nil || r.Last != s.Last() {
			t.Fatalf("%s: the newest state ends at %s, want %s: %v", when, r.Last, s.Last(), err)
		}
	}
	step()
	full := place.bytes("ltx/9/")
	place.err = errors.New("away")
	for i := range 50 {
		write(t, s, fmt.Sprint("away-", i))
		step()
	}
	if failing := f.failing.Load(); failing == nil || *failing != "away" {
		t.Error("a place that fails is not reported")
	}
	place.err = nil
	step()
	restores("after the failure")
	if n := len(f.list()); n != 2 || place.bytes("ltx/0/") >= full {
		t.Errorf("there are %d files, of %d and %d bytes", n, full, place.bytes("ltx/0/"))
	}
	for i := range 4 {
		write(t, s, fmt.Sprint("after-", i))
		step()
	}
	damaged := f.list()[2].name()
	place.files[damaged] = append([]byte{}, place.files[damaged]...)
	place.files[damaged][len(place.files[damaged])/2] ^= 1
	if err := f.maintain(t.Context(), now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	v, err := Verify(t.Context(), place, slog.New(slog.DiscardHandler))
	if err != nil || len(v.Problems) == 0 || !strings.Contains(v.Problems[0], damaged) {
		t.Errorf("the damaged file is not found: %q %v", v.Problems, err)
	}
	now = now.Add(time.Hour)
	step()
	restores("after the full copy")
	if err := f.maintain(t.Context(), now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	restores("after the files were merged")
}

// Where a user may not write, the remedy is another directory, not another owner of that one.
func TestDirectoryThatCannotBeMade(t *testing.T) {
	err := cannotMake("/var/lib/x", &fs.PathError{Op: "mkdir", Path: "/var/lib/.work", Err: fs.ErrPermission})
	if errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "may not write in /var/lib;") {
		t.Errorf("%v", err)
	}
	if other := errors.New("other"); cannotMake("/var/lib/x", other) != other {
		t.Error("another error is hidden")
	}
}
