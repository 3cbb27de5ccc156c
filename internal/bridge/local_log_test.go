package bridge

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"loquat"
	"loquat/internal/feed"
	"loquat/internal/phx"
	"loquat/internal/store"
	"loquat/internal/store/sqlite"
)

// openFeed opens the data in a directory and returns its feed.
func openFeed(t *testing.T, dir string) (*feed.Feed, *store.Store) {
	t.Helper()
	db, err := sqlite.Open(t.Context(), dir, quiet)
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), db, store.Options{Logger: quiet, Retention: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return feed.New(s), s
}

// heapBytes returns the size of everything that is in use.
func heapBytes() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Apps that lag and do not read hold little memory each. With windows of 8 MiB they held 160 MiB together.
func TestMemoryOfStuckApps(t *testing.T) {
	const apps, events, each = 20, 160, 64 << 10
	dir := t.TempDir()
	f, s := openFeed(t, dir)
	var head store.Head
	write := func(fn func(*store.Tx) error) {
		t.Helper()
		if err := s.Update(t.Context(), fn); err != nil {
			t.Fatal(err)
		}
	}
	write(func(tx *store.Tx) (err error) {
		head, err = tx.CreateSession("s", "default", nil)
		return err
	})
	text := strings.Repeat("x", each)
	for i := range events { // of different requests, so that they are not merged
		write(func(tx *store.Tx) error {
			_, err := tx.Publish(loquat.Event{Type: loquat.Partial, RequestID: fmt.Sprint("r", i), Message: &loquat.Delta{Role: "assistant", Content: text}}, &head, nil)
			return err
		})
	}
	f.Close()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	f, s = openFeed(t, dir) // events of before are not in memory
	t.Cleanup(func() {
		f.Close()
		_ = s.Close()
	})
	door := newDoor()
	hub := NewHub(Options{Local: &Server{ID: "home", Log: NewLocalLog(f), Authenticate: door.authenticate}, Limits: phx.Limits{QueueFrames: 4}, Logger: quiet})
	url := serveHub(t, hub)
	before := heapBytes()
	for range apps {
		callWith(t, url, 0).join(rigTopic, map[string]any{"token": "good", "since_id": "0"})
	}
	time.Sleep(time.Second) // the catch-up of all apps waits for the connections
	if used := int64(heapBytes()) - int64(before); used > apps*(2<<20) {
		t.Errorf("%d apps that do not read hold %d KiB each", apps, used/apps>>10)
	}
	well := call(t, url)
	well.join(rigTopic, map[string]any{"token": "good", "since_id": "0"})
	for want := loquat.EventID(1); want <= events; want++ {
		if got := well.next(); got.eventID() != want {
			t.Fatalf("event %s instead of %s", got.eventID(), want)
		}
	}
}
