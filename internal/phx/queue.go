package phx

import (
	"context"
	"errors"
	"sync"
)

// ErrClosed reports that a socket, or a join, has ended.
var ErrClosed = errors.New("the socket is closed")

// item is a frame that waits to be sent on a socket.
type item struct {
	push    *Push
	member  *Member // nil: the frame belongs to no join
	joinRef string
	ref     string
}

func (it item) size() int { return it.push.Size() }

// queue holds the frames that a socket has not sent yet. It is bounded in frames and bytes,
// but an empty queue accepts an item of any size. Its memory grows with use, so that an idle
// socket needs none.
type queue struct {
	maxItems, maxBytes int

	mu     sync.Mutex
	items  []item
	head   int
	bytes  int
	closed bool

	filled chan struct{} // contains a value if there may be items or the queue is closed
	space  chan struct{} // contains a value if there may be space for an item
	ended  chan struct{} // closed by close
}

func newQueue(maxItems, maxBytes int) *queue {
	return &queue{
		maxItems: maxItems, maxBytes: maxBytes,
		filled: make(chan struct{}, 1), space: make(chan struct{}, 1), ended: make(chan struct{}),
	}
}

// offer adds an item and reports whether there was space for it. A closed queue drops the
// item and returns true, so that nobody waits for a client that has disconnected.
func (q *queue) offer(it item) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting := len(q.items) - q.head
	switch {
	case q.closed:
		return true
	case waiting > 0 && (waiting >= q.maxItems || q.bytes+it.size() > q.maxBytes):
		return false
	}
	if q.head > 0 && len(q.items) == cap(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, it)
	q.bytes += it.size()
	signal(q.filled)
	return true
}

// put waits until there is space and adds an item.
func (q *queue) put(ctx context.Context, it item) error {
	for !q.offer(it) {
		select {
		case <-q.space:
		case <-q.ended:
			return ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	signal(q.space) // there may be space for another goroutine that waits
	return nil
}

// The bounds of a batch that takeBatch returns.
const (
	maxBatch      = 16
	maxBatchBytes = 16 << 10 // a larger item is a batch of its own
)

// takeBatch waits for items and appends the next ones to dst. It appends nothing if the
// queue is closed.
func (q *queue) takeBatch(dst []item) []item {
	for {
		q.mu.Lock()
		if q.closed {
			q.mu.Unlock()
			return dst
		}
		if q.head < len(q.items) {
			dst = q.takeAvailable(dst)
			q.mu.Unlock()
			signal(q.space)
			return dst
		}
		q.mu.Unlock()
		<-q.filled
	}
}

// takeAvailable appends the next items to dst. The caller holds q.mu.
func (q *queue) takeAvailable(dst []item) []item {
	for n, size := 0, 0; n < maxBatch && q.head < len(q.items); n++ {
		it := q.items[q.head]
		if size += it.size(); n > 0 && size > maxBatchBytes {
			break
		}
		dst = append(dst, it)
		q.items[q.head] = item{}
		q.head++
		q.bytes -= it.size()
	}
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return dst
}

// close drops all items and ends all waiting.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.closed, q.items, q.head, q.bytes = true, nil, 0, 0
		close(q.ended)
		signal(q.filled) // ends takeBatch
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
