package backend

import (
	"net/http"
	"slices"
	"sync"
	"time"
)

// End is the way in which a request ended.
type End string

// The ends of a request.
const (
	EndCompleted    End = "completed"     // the whole response was written
	EndClientClosed End = "client_closed" // the client closed its connection early
	EndDropped      End = "dropped"       // the script closed the connection
	EndStalled      End = "stalled"       // the script stalled until maxStall had passed
	endRefused      End = "refused"       // the request was not valid
)

// Entry is one chat request in the answer of GET /_requests.
type Entry struct {
	N       uint64     `json:"n"` // counts from 1
	Method  string     `json:"method"`
	Path    string     `json:"path"`
	Model   string     `json:"model"`
	Stream  bool       `json:"stream"`
	Key     string     `json:"key,omitempty"`     // the script's id
	Attempt int        `json:"attempt,omitempty"` // number of the script's attempt, from 1
	Started time.Time  `json:"started"`
	Ended   *time.Time `json:"ended"` // null while it runs
	End     End        `json:"end,omitempty"`
	Status  int        `json:"status,omitempty"`
	Chunks  int        `json:"chunks"` // events written, whole or in part
}

// journal holds the last maxJournal requests.
type journal struct {
	mu      sync.Mutex
	n       uint64
	entries []*Entry // oldest first
}

func (j *journal) begin(r *http.Request) *Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.n++
	e := &Entry{N: j.n, Method: r.Method, Path: r.URL.Path, Started: time.Now()}
	if len(j.entries) == maxJournal {
		j.entries = slices.Delete(j.entries, 0, 1)
	}
	j.entries = append(j.entries, e)
	return e
}

func (j *journal) describe(e *Entry, req *chatRequest) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.Model, e.Stream = req.Model, req.Stream
}

func (j *journal) attempt(e *Entry, key string, n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.Key, e.Attempt = key, n
}

func (j *journal) end(e *Entry, end End, status int) { j.finish(e, end, status, 0) }

func (j *journal) finish(e *Entry, end End, status, chunks int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := time.Now()
	e.Ended, e.End, e.Status, e.Chunks = &now, end, status, chunks
}

// abort ends an entry whose handler panicked. Otherwise the entry would never end.
func (j *journal) abort(e *Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if e.Ended == nil {
		now := time.Now()
		e.Ended, e.End = &now, EndDropped
	}
}

func (j *journal) view(e *Entry) Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return *e
}

func (j *journal) list() []Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	list := make([]Entry, len(j.entries))
	for i, e := range j.entries {
		list[i] = *e
	}
	return list
}

// counter counts the uses of each key. If there are more than maxAttempts keys, it forgets
// the least recently used one.
type counter struct {
	mu    sync.Mutex
	seen  map[string]int
	order []string // least recently used first
}

// next counts a use of key and returns the number of uses before it.
func (c *counter) next(key string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = map[string]int{}
	}
	n, known := c.seen[key]
	if known {
		i := slices.Index(c.order, key)
		c.order = slices.Delete(c.order, i, i+1)
	} else if len(c.order) == maxAttempts {
		delete(c.seen, c.order[0])
		c.order = c.order[1:]
	}
	c.order = append(c.order, key)
	c.seen[key] = n + 1
	return n
}
