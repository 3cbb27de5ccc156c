package chat

import (
	"context"
	"errors"
	"sync"
	"time"

	"loquat"
	"loquat/internal/heap"
	"loquat/internal/loop"
	"loquat/internal/store"
)

// maxPending is the size in bytes of increments that may wait for the disk before their
// stream has to wait, too.
const maxPending = 1 << 20

// unstoredLimit is how long the writes of a request may fail or wait before the request is
// stopped: its backend works, and costs, for a reply that nobody can follow or keep.
const unstoredLimit = time.Minute

var errUnstored = loquat.Errorf(loquat.CodeUnavailable, "the request was stopped because its events could not be stored for %.0f seconds", unstoredLimit.Seconds())

// sink writes the events of a request. Increments that wait for the same commit become one
// event, by the rule of compaction. So the number of streams bounds the rows per second, and
// a fast disk holds nothing back.
type sink struct {
	s *Requests
	q store.Request
	h store.Head // ids alone; increments need no more

	next *store.Request // queued request that the end of this one started

	outbox *store.Outbox
	ctx    context.Context // of the request; ends the attempts to write increments

	mu      sync.Mutex
	pending []loquat.Event
	size    int // of pending and taken
	failed  error
	drained chan struct{} // signalled when taken increments are on disk

	// The increments of the committer's current transaction, and those that an earlier one
	// could not write.
	taken     []loquat.Event
	takenSize int
	attempt   uint64 // transaction that published the first of taken
	published int    // number of taken that it published
	failures  int    // transactions in a row that failed

	meter    meter
	attempts []loquat.Attempt // calls of the backend that no closed step has counted

	stepping bool      // a step runs
	waiting  time.Time // since when increments or a step wait to be stored; zero if none do
	limit    *time.Timer
	closed   bool // the limit is not checked again
}

var (
	_ loop.Sink      = (*sink)(nil)
	_ store.Streamer = (*sink)(nil)
)

// newSink returns the sink of a request that runs until ctx ends. Its caller must call close.
func newSink(ctx context.Context, s *Requests, q store.Request) *sink {
	k := &sink{
		s: s, q: q, h: store.Head{SID: q.SID, SessionID: q.SessionID, User: q.User},
		ctx: ctx, drained: make(chan struct{}, 1),
	}
	k.outbox = s.store.NewOutbox(q, k)
	k.mu.Lock() // orders the assignment before the first checkLimit
	defer k.mu.Unlock()
	k.limit = time.AfterFunc(unstoredLimit, k.checkLimit)
	k.meter.charged = q.Charged
	return k
}

// close ends the collection of increments and the watch over them.
func (k *sink) close() {
	k.mu.Lock()
	k.closed = true // a check may run
	k.limit.Stop()
	k.mu.Unlock()
	k.outbox.Close()
}

// checkLimit stops the request if something has waited for unstoredLimit. Otherwise it checks
// again when that may be so.
func (k *sink) checkLimit() {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return
	}
	left := unstoredLimit
	if !k.waiting.IsZero() {
		left -= time.Since(k.waiting)
	}
	if left > 0 {
		k.limit.Reset(left)
	}
	k.mu.Unlock()
	if left <= 0 {
		k.s.workers.cancel(k.q.RequestID, errUnstored)
	}
}

// overdue reports whether something has waited for unstoredLimit.
func (k *sink) overdue() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.waiting.IsZero() && time.Since(k.waiting) >= unstoredLimit
}

// wait notes that something waits to be stored from now on, unless something does already. The
// caller has locked k.mu.
func (k *sink) wait() {
	if k.waiting.IsZero() {
		k.waiting = time.Now()
	}
}

// setStepping notes that a step, or the end of the request, begins to wait or was stored.
func (k *sink) setStepping(yes bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stepping = yes
	if yes {
		k.wait()
	} else if len(k.pending) == 0 {
		k.waiting = time.Time{}
	}
}

// PublishIncrements publishes all increments that wait. The committer calls it when it
// collects increments, and steps call it in their transactions. Both may be in one
// transaction: then the second publishes only what the first did not.
func (k *sink) PublishIncrements(tx *store.Tx) error {
	if err := k.s.checkOwner(k.q); err != nil {
		return err
	}
	k.mu.Lock()
	k.taken, k.takenSize = append(k.taken, k.pending...), k.size
	clear(k.pending)
	k.pending = k.pending[:0]
	if k.attempt != tx.Attempt() { // the last transaction was rolled back
		k.attempt, k.published = tx.Attempt(), 0
		tx.AfterCommit(k.forgetTaken)
	}
	waiting := k.taken[k.published:]
	k.published = len(k.taken)
	counts, metered, used := k.meter.due(tx), k.q, k.meter.closed+loquat.EstimateTokens(k.meter.arrived)
	metered.Charged = k.meter.charged
	k.mu.Unlock()
	if counts {
		if err := k.charge(tx, &metered, used); err != nil {
			return err
		}
	}
	return publish(tx, &k.h, &k.q, loquat.MergeIncrements(waiting)...)
}

// maxKept is the most events for which a sink keeps memory while none wait.
const maxKept = 4

// forgetTaken drops the increments that are on disk, which makes room for more.
func (k *sink) forgetTaken() {
	k.mu.Lock()
	k.size -= k.takenSize
	clear(k.taken)
	if k.taken = k.taken[:0]; cap(k.taken) > maxKept {
		k.taken = nil
	}
	if len(k.pending) == 0 && cap(k.pending) > maxKept {
		k.pending = nil
	}
	k.takenSize, k.published, k.failures = 0, 0, 0
	k.waiting = time.Time{}
	if len(k.pending) > 0 || k.stepping {
		k.wait()
	}
	k.mu.Unlock()
	select {
	case k.drained <- struct{}{}:
	default:
	}
}

// dropPending drops the increments that wait.
func (k *sink) dropPending() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pending, k.taken, k.published = nil, nil, 0
}

// IncrementsFailed tries again while the store cannot write, until the request's context
// ends. So a disk that is full for less than unstoredLimit loses no increments. Other errors end
// the request.
func (k *sink) IncrementsFailed(err error) {
	if k.ctx.Err() != nil {
		return
	}
	if loquat.CodeOf(err) == loquat.CodeUnavailable {
		k.mu.Lock()
		n := k.failures
		k.failures++
		k.mu.Unlock()
		time.AfterFunc(rewrite.Delay(n), k.outbox.Ready)
		return
	}
	if errors.Is(err, store.ErrCancelled) {
		err = errCancelled
	}
	k.fail(err)
	k.s.workers.cancel(k.q.RequestID, err)
}

func (k *sink) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failed == nil {
		k.failed = err
	}
}

// Publish takes an increment. It blocks only while maxPending bytes wait.
func (k *sink) Publish(ctx context.Context, e loquat.Event) error {
	if e.Type == loquat.RetryScheduled {
		k.s.counts.retries.WithLabelValues(e.Cause).Inc()
	}
	for {
		k.mu.Lock()
		if err := k.failed; err != nil {
			k.mu.Unlock()
			return err
		}
		if k.size < maxPending {
			k.pending = append(k.pending, e)
			k.size += incrementSize(e)
			k.meter.arrived += sizeOf(e.Message)
			k.wait()
			k.mu.Unlock()
			k.outbox.Ready()
			return nil
		}
		k.mu.Unlock()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-k.drained:
		}
	}
}

func incrementSize(e loquat.Event) int {
	const fields = 64
	n := fields
	if e.Message != nil {
		n += len(e.Message.Content)
		for _, v := range e.Message.Metadata {
			n += len(v)
		}
	}
	if e.Payload != nil {
		if e.Payload.Part != nil {
			n += len(*e.Payload.Part)
		}
		if e.Payload.Result != nil {
			n += len(e.Payload.Result.Content)
		}
	}
	return n
}

// step publishes the pending increments and runs fn, in one transaction. It fails unless the
// request runs, belongs to this process and is not cancelled.
func (k *sink) step(ctx context.Context, fn func(*store.Tx, *store.Step) (next *store.Request, err error)) error {
	k.setStepping(true)
	var closed int64 // tokens of the closed steps
	next, err := persistently(ctx, k.s.store, func(tx *store.Tx) (*store.Request, error) {
		if err := k.s.checkOwner(k.q); err != nil {
			return nil, err
		}
		step, err := tx.FenceStep(k.q)
		if err != nil {
			return nil, err
		}
		if step.Request.Cancelled {
			return nil, errCancelled
		}
		k.meterIn(tx)
		if err := k.PublishIncrements(tx); err != nil {
			return nil, err
		}
		if err := count(&tx.Reader, step.Head, &step.Request, k.attempts); err != nil {
			return nil, err
		}
		if closed = usedBy(step.Request); closed > 0 {
			if err := k.charge(tx, &step.Request, closed); err != nil {
				return nil, err
			}
		}
		return fn(tx, &step)
	})
	if err == nil {
		k.attempts = nil
		k.closeMeter(closed)
		k.setStepping(false)
		k.next = next
	}
	return err
}

// noteModel notes the provider and the model that a request runs with, for its usage and for what is kept of a reply. When
// the request started, the settings of plugins, which can choose others, were not known.
func (k *sink) noteModel(ctx context.Context, providerID, model string) error {
	return k.step(ctx, func(tx *store.Tx, step *store.Step) (*store.Request, error) {
		stored, err := sendOf(step.Request)
		if err != nil {
			return nil, err
		}
		stored.ProviderID, stored.Model = providerID, model
		send, err := stored.encode()
		if err != nil {
			return nil, err
		}
		return nil, tx.SetSend(&step.Request, send)
	})
}

// attempted notes a call of the backend. The next step, or the end of the request, counts it. Like the
// methods that step, it is called by the request's worker alone.
func (k *sink) attempted(a loquat.Attempt) { k.attempts = append(k.attempts, a) }

// EndPhase persists a phase: assistant_message end, final, checkpoint, then tool_calls, or the
// end of the request, or both.
func (k *sink) EndPhase(ctx context.Context, p loop.Phase) error {
	heap.Free(len(p.Message.Content)) // the garbage of the stream, before the message is stored
	return k.step(ctx, func(tx *store.Tx, step *store.Step) (*store.Request, error) {
		h, q, before := &step.Head, &step.Request, step.Head.Checkpoint
		if p.Streamed {
			if err := publish(tx, h, q, phaseEnd); err != nil {
				return nil, err
			}
		}
		if err := addMessages(tx, h, q, loquat.Final, []loquat.Message{p.Message}); err != nil {
			return nil, err
		}
		k.s.recent.note(tx, before, h, "")
		if len(p.Calls) > 0 {
			if err := tx.CloseStep(q); err != nil {
				return nil, err
			}
			if err := publish(tx, h, q, loquat.Event{Type: loquat.ToolCalls, ToolCalls: p.Calls}); err != nil || !p.Last {
				return nil, err
			}
		}
		return k.complete(tx, step)
	})
}

// addMessages appends messages of a request, publishes one event with them, and a checkpoint.
// Unless the request ends with them, the caller then closes the step.
func addMessages(tx *store.Tx, h *store.Head, q *store.Request, kind loquat.EventType, messages []loquat.Message) error {
	for _, m := range messages {
		if _, err := tx.AppendMessage(h, m); err != nil {
			return err
		}
	}
	if err := publish(tx, h, q, loquat.Event{Type: kind, Messages: messages}); err != nil {
		return err
	}
	return tx.Checkpoint(h, q, false)
}

// complete ends a request normally.
func (k *sink) complete(tx *store.Tx, step *store.Step) (next *store.Request, err error) {
	if err := publish(tx, &step.Head, &step.Request, loquat.Event{Type: loquat.RequestCompleted}); err != nil {
		return nil, err
	}
	if err := k.s.finish(tx, step.Head, &step.Request, loquat.StatusCompleted, ""); err != nil || !step.Queued {
		return nil, err
	}
	return k.s.startNext(tx, &step.Head)
}

// ToolResults persists the results of a tool round: tool_results, checkpoint. Then it takes in the
// sends that wait to steer, and returns their messages. After the last round it ends the request.
func (k *sink) ToolResults(ctx context.Context, results []loquat.Message, last bool) (steers []loquat.Message, err error) {
	err = k.step(ctx, func(tx *store.Tx, step *store.Step) (_ *store.Request, err error) {
		before := step.Head.Checkpoint
		if err := addMessages(tx, &step.Head, &step.Request, loquat.ToolResults, results); err != nil {
			return nil, err
		}
		if last {
			return k.complete(tx, step)
		}
		if steers = nil; step.Queued {
			if steers, err = k.s.takeSteers(tx, &step.Head, step.Request); err != nil {
				return nil, err
			}
			if len(steers) > 0 {
				if err := publishQueue(tx, &step.Head); err != nil {
					return nil, err
				}
			}
		}
		k.s.recent.note(tx, before, &step.Head, "")
		return nil, tx.CloseStep(&step.Request)
	})
	return steers, err
}
