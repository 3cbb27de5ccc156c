package backup

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"loquat/internal/migrate/migratetest"
	"loquat/internal/store"
	"loquat/internal/store/sqlite"
)

// memory is a Place in memory. It counts what is written.
type memory struct {
	mu      sync.Mutex
	files   map[string][]byte
	written int64
}

func (m *memory) Put(_ context.Context, name string, _ int64, r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[name] = b
	m.written += int64(len(b))
	return nil
}

func (m *memory) Get(_ context.Context, name string) (io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.files[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

func (m *memory) List(_ context.Context, prefix string, fn func(string, int64) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, b := range m.files {
		if strings.HasPrefix(name, prefix) {
			if err := fn(name, int64(len(b))); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *memory) Remove(_ context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.files, name)
	return nil
}

func (m *memory) Clean(context.Context) error { return nil }

// bytes returns the size of the files whose names have a prefix.
func (m *memory) bytes(prefix string) (n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, b := range m.files {
		if strings.HasPrefix(name, prefix) {
			n += int64(len(b))
		}
	}
	return n
}

// newTestFollower returns a follower that has begun, on a directory with a store.
func newTestFollower(t *testing.T, dir string, place Place) *follower {
	t.Helper()
	f, err := newFollower(t.Context(), Options{Dir: dir, Place: place, Name: "test", Every: time.Second, Keep: 7 * 24 * time.Hour, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.tracker.Close() })
	if err := f.begin(t.Context(), func(error) bool { return true }); err != nil {
		t.Fatal(err)
	}
	return f
}

func openStore(t *testing.T, dir string) *store.Store {
	t.Helper()
	driver, err := sqlite.Open(t.Context(), dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), driver, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// sizeOf returns the size of the database with its write-ahead log copied back.
func sizeOf(t *testing.T, dir string) int64 {
	t.Helper()
	info, err := os.Stat(filepath.Join(dir, "loquat.db"))
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// maxShare is how many bytes of copies a byte of the database may cost after a day.
const maxShare = 1.5

// A day of 1,000,000 events (LOQUAT_BACKUP_EVENTS) with a copy each second leaves copies that are
// small next to what the database has grown by. A part of a day does when a day has passed: the copies
// of its seconds and minutes are needed only for hours.
func TestDay(t *testing.T) {
	t.Parallel()
	events := dayEvents(t)
	const perTurn, talks, perDay = 10, 50, 1_000_000
	dir := t.TempDir()
	s := openStore(t, dir)
	if err := s.Update(t.Context(), func(tx *store.Tx) error {
		for n := range talks {
			if err := migratetest.AddSession(tx, fmt.Sprint("talk-", n), 0, s.Owner()); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	place := &memory{files: map[string][]byte{}}
	f := newTestFollower(t, dir, place)
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	step := func(now time.Time) {
		t.Helper()
		if err := f.step(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		if failing := f.failing.Load(); failing != nil {
			t.Fatal(*failing)
		}
	}
	step(began)
	before, first := sizeOf(t, dir), place.bytes("ltx/")
	seconds := events * int(24*time.Hour/time.Second) / perDay
	for second, turn := 1, 0; second <= seconds; second++ {
		for ; turn < second*events/perTurn/seconds; turn++ {
			addTurn(t, s, fmt.Sprint("talk-", turn*7%talks), turn)
		}
		now := began.Add(time.Duration(second) * time.Second)
		step(now)
		if second%10 == 0 {
			if err := f.maintain(t.Context(), now); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	end := began.Add(time.Duration(seconds+1) * time.Second)
	step(end)
	if events < perDay {
		if err := f.maintain(t.Context(), end.Add(24*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	grown := sizeOf(t, dir) - before
	share := float64(place.bytes("ltx/")-first) / float64(grown)
	t.Logf("%d events in %d s: the database grew by %.1f MB, the copies by %.1f MB, %.2f of that (seconds %.1f, minutes %.1f, hours %.1f, full %.1f); %.1f MB were written", events, seconds,
		mb(grown), mb(place.bytes("ltx/")-first), share, mb(place.bytes("ltx/0/")), mb(place.bytes("ltx/1/")), mb(place.bytes("ltx/2/")), mb(place.bytes("ltx/9/")), mb(place.written))
	if share > maxShare {
		t.Errorf("a byte of the database costs %.2f bytes of copies", share)
	}
	restored := filepath.Join(t.TempDir(), "restored")
	r, err := Restore(t.Context(), place, restored, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if want := s.Last(); r.Last != want {
		t.Errorf("the newest state ends at %s, want %s", r.Last, want)
	}
}

// dayEvents returns how many events the test of a day writes.
func dayEvents(t *testing.T) int {
	t.Helper()
	events := 5_000
	if text := os.Getenv("LOQUAT_BACKUP_EVENTS"); text != "" {
		if _, err := fmt.Sscan(text, &events); err != nil || events < 1000 {
			t.Fatalf("LOQUAT_BACKUP_EVENTS: %q is not a number of at least 1000", text)
		}
	}
	return events
}

func addTurn(t *testing.T, s *store.Store, session string, turn int) {
	t.Helper()
	if err := s.Update(t.Context(), func(tx *store.Tx) error {
		h, err := tx.Head(session)
		if err != nil {
			return err
		}
		return migratetest.AddTurn(tx, &h, fmt.Sprint(turn), s.Owner())
	}); err != nil {
		t.Fatal(err)
	}
}

func mb(n int64) float64 { return float64(n) / 1e6 }
