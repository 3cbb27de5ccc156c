package phx

import (
	"context"
	"errors"
	"sync"
)

// ErrClosed is why nothing more is taken by a socket that ends.
var ErrClosed = errors.New("the socket is closed")

// item is a frame that waits for its socket. What is shared stays shared until it is
// written.
type item struct {
	push    *Push
	member  *Member // nil: of no join
	joinRef string
	ref     string
}

func (it item) size() int { return len(it.push.payload) }

// queue is what a socket has still to send, bounded in frames and bytes; one item is
// always taken by an empty queue. It grows with use, so that an idle socket costs
// nothing.
type queue struct {
	maxItems, maxBytes int

	mu     sync.Mutex
	items  []item
	head   int
	bytes  int
	closed bool

	filled chan struct{} // holds a token when there may be items, or the queue has ended
	room   chan struct{} // holds a token when there may be room
	ended  chan struct{}
}

func newQueue(maxItems, maxBytes int) *queue {
	return &queue{
		maxItems: maxItems, maxBytes: maxBytes,
		filled: make(chan struct{}, 1), room: make(chan struct{}, 1), ended: make(chan struct{}),
	}
}

// offer takes an item if there is room for it. A closed queue takes everything: nobody
// has to wait for who is gone.
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

// put waits until there is room.
func (q *queue) put(ctx context.Context, it item) error {
	for !q.offer(it) {
		select {
		case <-q.room:
		case <-q.ended:
			return ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	signal(q.room) // others may wait for what is left of it
	return nil
}

// The items that are taken together, at the most.
const (
	maxBatch      = 16
	maxBatchBytes = 16 << 10 // one that is larger is taken alone
)

// take waits for items and appends those that come next to dst; none is the end of the
// queue.
func (q *queue) take(dst []item) []item {
	for {
		q.mu.Lock()
		if q.closed {
			q.mu.Unlock()
			return dst
		}
		if q.head < len(q.items) {
			dst = q.takeSome(dst)
			q.mu.Unlock()
			signal(q.room)
			return dst
		}
		q.mu.Unlock()
		<-q.filled
	}
}

// takeSome takes what is there. The caller holds the lock.
func (q *queue) takeSome(dst []item) []item {
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

// close drops what waits.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.closed, q.items, q.head, q.bytes = true, nil, 0, 0
		close(q.ended)
		signal(q.filled) // or who takes would wait
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
