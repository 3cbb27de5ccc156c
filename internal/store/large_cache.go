package store

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"unsafe"
	"weak"

	"golang.org/x/sync/singleflight"

	"loquat/internal/heap"
)

// shared holds large texts and large bodies of events while anybody uses them, so that all
// readers share one copy.
//
// Key: the id of a text, or the negative id of an event. Neither is used again for other
// content, so no entry becomes stale.
// Bound: none of its own. An entry ends when the garbage collector finds no other use of it.
// Until then the collector runs more often.
type shared struct {
	loads singleflight.Group

	mu      sync.Mutex
	entries map[int64]sharedBytes // guarded by mu
}

type sharedBytes struct {
	first weak.Pointer[byte]
	size  int
}

func newShared() *shared { return &shared{entries: map[int64]sharedBytes{}} }

func (s *shared) get(key int64) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.entries[key]
	if !ok {
		return nil, false
	}
	first := e.first.Value()
	if first == nil {
		return nil, false
	}
	return unsafe.Slice(first, e.size), true
}

func (s *shared) add(key int64, b []byte) {
	if len(b) < heap.Large {
		return
	}
	first, release := unsafe.SliceData(b), heap.Hold()
	entry := sharedBytes{weak.Make(first), len(b)}
	s.mu.Lock()
	s.entries[key] = entry
	s.mu.Unlock()
	runtime.AddCleanup(first, func(key int64) {
		release()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.entries[key] == entry { // not a later copy
			delete(s.entries, key)
		}
	}, key)
}

// load returns the bytes of a key, and calls read if nobody uses them. Readers that need the
// same bytes wait for the one that reads them. A Tx neither waits, because others wait for it,
// nor adds an entry, because the id of an event is given again if its batch is rolled back.
func (r *Reader) load(key int64, read func() ([]byte, error)) ([]byte, error) {
	if b, ok := r.shared.get(key); ok {
		return b, nil
	}
	readAndAdd := func() ([]byte, error) {
		b, err := read()
		if err == nil {
			r.shared.add(key, b)
		}
		return b, err
	}
	if r.writes {
		return read()
	}
	loaded, err, others := r.shared.loads.Do(strconv.FormatInt(key, 10), func() (any, error) { return readAndAdd() })
	if err != nil && others && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return readAndAdd() // the caller that read has given up
	}
	if err != nil {
		return nil, err
	}
	return loaded.([]byte), nil
}

// asString and asBytes convert without a copy. The result must not be changed, nor its source.
func asString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
func asBytes(s string) []byte  { return unsafe.Slice(unsafe.StringData(s), len(s)) }
