package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"loquat"
	"loquat/internal/backoff"
	"loquat/internal/phx"
)

// broadcaster follows the log of one server and pushes its events to all joined apps.
//
// While apps are joined, the run goroutine follows the log and queues every event for every
// live app. An app whose queue is full, or that joins with a cursor in the past, is not live: its own
// catch-up goroutine reads the log until it has reached the broadcaster's cursor. Then
// the app is live again.
type broadcaster struct {
	topic string
	log   Log
	slog  *slog.Logger

	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	apps    map[*app]struct{}
	cursor  loquat.EventID // the last event that was queued for the live apps
	entered chan struct{}  // signalled when an app has joined
}

// Times for reading the log.
const (
	pumpWait   = 30 * time.Second
	retryPause = 200 * time.Millisecond
)

func newBroadcaster(topic string, log Log, logger *slog.Logger) *broadcaster {
	b := &broadcaster{topic: topic, log: log, slog: logger, apps: map[*app]struct{}{}, cursor: log.Latest(), entered: make(chan struct{}, 1)}
	b.ctx, b.stop = context.WithCancel(context.Background())
	b.running.Go(b.run)
	return b
}

// close stops the broadcaster and waits for its goroutines.
func (b *broadcaster) close() {
	b.mu.Lock() // startCatchUp checks ctx under the lock, so no goroutine starts after this
	b.stop()
	b.mu.Unlock()
	b.running.Wait()
}

// run queues each new event for the live apps until the broadcaster is closed.
func (b *broadcaster) run() {
	for b.ctx.Err() == nil {
		since, ok := b.awaitApps()
		if !ok {
			return
		}
		window, err := b.log.Window(b.ctx, since, 0, "", pumpWait)
		switch {
		case isGone(err):
			b.reset(since)
		case err != nil:
			if b.ctx.Err() == nil && loquat.CodeOf(err) != loquat.CodeUnavailable {
				b.slog.Error("could not follow the events", "topic", b.topic, "error", err)
			}
			backoff.Sleep(b.ctx, retryPause)
		case len(window) > 0:
			b.deliver(since, window)
		}
	}
}

// awaitApps waits until an app is joined, and returns the event after which to continue.
// Without apps the log need not be read. ok is false when the broadcaster is closed.
func (b *broadcaster) awaitApps() (since loquat.EventID, ok bool) {
	for {
		b.mu.Lock()
		since, joined := b.cursor, len(b.apps)
		b.mu.Unlock()
		if joined > 0 {
			return since, true
		}
		select {
		case <-b.entered:
		case <-b.ctx.Done():
			return 0, false
		}
	}
}

// reset continues at the newest event because the events after since cannot be read. All
// apps get a gap. It does nothing if the cursor has moved since.
func (b *broadcaster) reset(since loquat.EventID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cursor == since {
		b.skipTo(b.log.Latest())
	}
}

// jumpTo continues after an event, regardless of earlier ones. All apps get a gap.
func (b *broadcaster) jumpTo(at loquat.EventID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.skipTo(at)
}

// skipTo moves the cursor and sends all apps a gap. The caller holds the lock.
func (b *broadcaster) skipTo(at loquat.EventID) {
	b.cursor = at
	for a := range b.apps {
		a.gap(at)
	}
}

// deliver queues a window, which begins after since, for the live apps.
func (b *broadcaster) deliver(since loquat.EventID, window []loquat.Record) {
	window = loquat.CompactForPush(window)
	whole, bare := b.wantedForms()
	pushes := make([]pushed, len(window))
	for i, size := 0, 0; i < len(window); i++ {
		if size > maxEncoded {
			whole, bare = false, false
		}
		pushes[i] = b.encode(window[i], whole, bare)
		size += pushes[i].size()
	}
	last := window[len(window)-1].ID
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cursor != since { // the log was reset meanwhile
		return
	}
	b.cursor = last
	for a := range b.apps {
		switch {
		case !a.live || a.cursor >= last:
		case a.cursor > since: // the compacted window may merge events the app already has
			a.startCatchUp()
		default:
			a.queue(pushes)
		}
	}
}

// wantedForms reports which forms of events the apps asked for: with the session, without it.
func (b *broadcaster) wantedForms() (whole, bare bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for a := range b.apps {
		whole, bare = whole || !a.omitSession, bare || a.omitSession
	}
	return whole, bare
}

// pushed is an event in the forms that apps asked for. A form that could not be encoded, or
// was too much, is nil; apps that need it catch up instead.
type pushed struct {
	id            loquat.EventID
	session, user string
	whole, bare   *phx.Push
}

// maxEncoded bounds the pushes of a window, in bytes. Small events of a large session are large pushes. An app's queue
// usually has no room for more, so further pushes would be encoded in vain.
const maxEncoded = 1 << 20

// size returns the size of both forms in bytes.
func (p pushed) size() (n int) {
	if p.whole != nil {
		n = p.whole.Size()
	}
	if p.bare != nil && p.bare != p.whole {
		n += p.bare.Size()
	}
	return n
}

func (b *broadcaster) encode(rec loquat.Record, whole, bare bool) pushed {
	p := pushed{id: rec.ID, session: rec.SessionID, user: rec.User}
	if whole {
		p.whole = b.push(rec, false)
	}
	if bare && p.whole != nil && !carriesSession(rec.Type) {
		p.bare = p.whole
	} else if bare {
		p.bare = b.push(rec, true)
	}
	return p
}

// carriesSession reports whether events of a type contain a session.
func carriesSession(t loquat.EventType) bool {
	switch t {
	case loquat.SessionCreated, loquat.MessageAppended, loquat.MessageModified, loquat.MessagesDeleted:
		return true
	}
	return false
}

func (b *broadcaster) push(rec loquat.Record, omitSession bool) *phx.Push {
	p, err := newEventPush(b.ctx, b.topic, b.log, rec, omitSession)
	if err != nil {
		if b.ctx.Err() == nil && loquat.CodeOf(err) != loquat.CodeUnavailable { // the apps catch up
			b.slog.Error("could not encode an event", "event", rec.ID.String(), "error", err)
		}
		return nil
	}
	return p
}

// newEventPush encodes the push of one event.
func newEventPush(ctx context.Context, topic string, log Log, rec loquat.Record, omitSession bool) (*phx.Push, error) {
	b, err := log.AppendEvent(ctx, append(make([]byte, 0, len(rec.Body)+64), `{"event":`...), rec, omitSession)
	if err == nil && !loquat.NestsWithin(b, maxEventDepth) {
		err = fmt.Errorf("it nests deeper than %d levels", maxEventDepth)
	}
	if err != nil {
		return nil, err
	}
	return phx.NewPush(topic, eventSession, append(b, '}')), nil
}

// app is one joined app. Its fields are guarded by broadcaster.mu, except cursor, which
// the catch-up goroutine owns while live is false.
type app struct {
	broadcaster *broadcaster
	member      *phx.Member
	sight       Sight
	omitSession bool

	ctx  context.Context // cancelled when the app leaves
	stop context.CancelFunc

	live   bool
	cursor loquat.EventID // events up to this one are sent or queued

	// atLeast is the newest event when the app joined. The app catches up with it even if the
	// broadcaster is behind: another node may have sent the app a window that ends there.
	atLeast loquat.EventID

	lost   bool           // not live, and the next push must be a gap
	lostAt loquat.EventID // where the app continues after the gap
}

// enter adds an app and starts its catch-up.
func (b *broadcaster) enter(a *app) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.apps) == 0 { // nothing was read meanwhile: the app catches up with the present
		b.cursor = max(b.cursor, b.log.Latest())
		select {
		case b.entered <- struct{}{}:
		default:
		}
	}
	b.apps[a] = struct{}{}
	a.startCatchUp()
}

func (b *broadcaster) leave(a *app) {
	a.stop()
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.apps, a)
}

// queue queues pushes for the app. The caller holds the broadcaster's lock.
func (a *app) queue(pushes []pushed) {
	for _, p := range pushes {
		if a.sight.of(p.session, p.user) {
			push := p.whole
			if a.omitSession {
				push = p.bare
			}
			if push == nil || !a.member.Offer(push) {
				a.startCatchUp()
				return
			}
		}
		a.cursor = p.id
	}
}

// startCatchUp starts the app's catch-up goroutine. The caller holds the broadcaster's lock.
func (a *app) startCatchUp() {
	a.live = false
	if a.broadcaster.ctx.Err() == nil {
		a.broadcaster.running.Go(a.catchUp)
	}
}

// gap sends the app a gap and continues after an event. The caller holds the
// broadcaster's lock.
func (a *app) gap(at loquat.EventID) {
	a.atLeast = 0 // the log may have been replaced
	switch {
	case !a.live:
		a.lost, a.lostAt = true, at
	case a.member.Offer(newGapPush(a.broadcaster.topic, at)):
		a.cursor = at
	default:
		a.lost, a.lostAt = true, at
		a.startCatchUp()
	}
}

// catchUp sends the missed events until the app is level with the broadcaster. It waits
// only for the app's socket.
func (a *app) catchUp() {
	for a.ctx.Err() == nil {
		until, done := a.goLiveIfLevel()
		if done {
			return
		}
		err := a.sendUpTo(until)
		switch {
		case err == nil:
		case isGone(err):
			a.markLost()
		case loquat.CodeOf(err) == loquat.CodeUnavailable:
			backoff.Sleep(a.ctx, retryPause)
		default:
			if a.ctx.Err() == nil && !errors.Is(err, phx.ErrClosed) {
				a.broadcaster.slog.Error("could not read the events that an app missed", "topic", a.broadcaster.topic, "error", err)
			}
			if backoff.Sleep(a.ctx, retryPause) != nil {
				return
			}
		}
	}
}

// goLiveIfLevel makes the app live if it is level with the broadcaster. Otherwise it returns the
// event up to which to catch up.
func (a *app) goLiveIfLevel() (until loquat.EventID, done bool) {
	a.broadcaster.mu.Lock()
	defer a.broadcaster.mu.Unlock()
	until = max(a.broadcaster.cursor, a.atLeast)
	a.live = !a.lost && a.cursor >= until
	return until, a.live
}

// sendUpTo sends the next window of events, at most up to until, or a pending gap.
func (a *app) sendUpTo(until loquat.EventID) error {
	if at, lost := a.clearLost(); lost {
		if err := a.member.Send(a.ctx, newGapPush(a.broadcaster.topic, at)); err != nil {
			return err
		}
		a.cursor = at
		return nil
	}
	window, err := a.broadcaster.log.Window(a.ctx, a.cursor, until, a.sight.User, 0)
	if err != nil {
		return err
	}
	if len(window) == 0 {
		a.cursor = until
		return nil
	}
	events := loquat.CompactForPush(window)
	for i, rec := range events {
		events[i] = loquat.Record{} // memory for what is sent is free while the rest waits for the app
		if a.sight.of(rec.SessionID, rec.User) {
			push, err := newEventPush(a.ctx, a.broadcaster.topic, a.broadcaster.log, rec, a.omitSession)
			if err != nil && a.ctx.Err() == nil && loquat.CodeOf(err) == loquat.CodeInternal {
				a.skip(rec.ID, err)
				return nil
			}
			if err != nil {
				return err
			}
			if err := a.member.Send(a.ctx, push); err != nil {
				return err
			}
		}
		a.cursor = rec.ID
	}
	return nil
}

// skip logs an event that cannot be encoded and marks a gap in its place.
func (a *app) skip(at loquat.EventID, err error) {
	a.broadcaster.slog.Error("an event cannot be encoded; the app has to load its sessions again", "topic", a.broadcaster.topic, "event", at.String(), "error", err)
	a.broadcaster.mu.Lock()
	defer a.broadcaster.mu.Unlock()
	if !a.lost {
		a.lost, a.lostAt = true, at
	}
}

// markLost marks a gap because events that the app still needs are gone.
func (a *app) markLost() {
	a.broadcaster.mu.Lock()
	defer a.broadcaster.mu.Unlock()
	a.atLeast = 0
	if !a.lost {
		a.lost, a.lostAt = true, a.broadcaster.cursor
	}
}

// clearLost returns the pending gap and clears it.
func (a *app) clearLost() (at loquat.EventID, lost bool) {
	a.broadcaster.mu.Lock()
	defer a.broadcaster.mu.Unlock()
	at, lost = a.lostAt, a.lost
	a.lost = false
	return at, lost
}
