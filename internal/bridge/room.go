package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"loquat"
	"loquat/internal/phx"
)

// room is the apps of one server and what is pushed to all of them.
//
// Its pump follows the log and offers every event to every app that is live. An app
// for which there is no room in its queue, and one that joins with a past to catch up
// with, is not live: a goroutine of its own reads the log for it, up to where the pump
// is, and makes it live when nothing is between the two.
type room struct {
	topic string
	log   Log
	slog  *slog.Logger

	ctx  context.Context
	stop context.CancelFunc
	all  sync.WaitGroup

	mu       sync.Mutex
	apps     map[*app]struct{}
	position loquat.EventID // what the pump has offered; windows of the log are cut here
}

// How the log is followed.
const (
	pumpWait   = 30 * time.Second
	retryPause = 200 * time.Millisecond
)

func newRoom(topic string, log Log, logger *slog.Logger) *room {
	r := &room{topic: topic, log: log, slog: logger, apps: map[*app]struct{}{}, position: log.Latest()}
	r.ctx, r.stop = context.WithCancel(context.Background())
	r.all.Go(r.pump)
	return r
}

// close returns when nothing of the room runs.
func (r *room) close() {
	r.mu.Lock() // nobody begins to catch up any more
	r.stop()
	r.mu.Unlock()
	r.all.Wait()
}

// pump offers what happens to everyone.
func (r *room) pump() {
	for r.ctx.Err() == nil {
		r.mu.Lock()
		since := r.position
		r.mu.Unlock()
		window, err := r.log.Window(r.ctx, since, 0, pumpWait)
		switch {
		case isGone(err):
			r.reset(since)
		case err != nil:
			if r.ctx.Err() == nil && loquat.CodeOf(err) != loquat.CodeUnavailable {
				r.slog.Error("could not follow the events", "topic", r.topic, "error", err)
			}
			pause(r.ctx, retryPause)
		case len(window) > 0:
			r.deliver(since, window)
		}
	}
}

// reset goes on at the newest event, for what comes after since is not to be had, and
// tells all apps so. Nothing is done when somebody else did it meanwhile.
func (r *room) reset(since loquat.EventID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.position == since {
		r.skipTo(r.log.Latest())
	}
}

// goOn goes on at an event whatever came before it, and tells all apps so.
func (r *room) goOn(at loquat.EventID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.skipTo(at)
}

func (r *room) skipTo(at loquat.EventID) {
	r.position = at
	for a := range r.apps {
		a.gap(at)
	}
}

// deliver offers a window, which begins after since, to the apps that are live.
func (r *room) deliver(since loquat.EventID, window []loquat.Record) {
	window = loquat.CompactForPush(window)
	whole, bare := r.wanted()
	pushes := make([]pushed, len(window))
	for i, rec := range window {
		pushes[i] = r.encode(rec, whole, bare)
	}
	last := window[len(window)-1].ID
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.position != since { // the log was reset meanwhile
		return
	}
	r.position = last
	for a := range r.apps {
		switch {
		case !a.live || a.position >= last:
		case a.position > since: // it knows a part of what the window may have joined
			a.fallBehind()
		default:
			a.take(pushes)
		}
	}
}

// wanted tells in which forms the apps want events.
func (r *room) wanted() (whole, bare bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for a := range r.apps {
		whole, bare = whole || !a.omitSession, bare || a.omitSession
	}
	return whole, bare
}

// pushed is an event in the forms that apps want. One that could not be made is nil,
// and who wants it catches up instead.
type pushed struct {
	id          loquat.EventID
	session     string
	whole, bare *phx.Push
}

func (r *room) encode(rec loquat.Record, whole, bare bool) pushed {
	p := pushed{id: rec.ID, session: rec.SessionID}
	if whole {
		p.whole = r.push(rec, false)
	}
	if bare && p.whole != nil && !carriesSession(rec.Type) {
		p.bare = p.whole
	} else if bare {
		p.bare = r.push(rec, true)
	}
	return p
}

// carriesSession reports whether the two forms of an event differ.
func carriesSession(t loquat.EventType) bool {
	switch t {
	case loquat.SessionCreated, loquat.MessageAppended, loquat.MessageModified, loquat.MessagesDeleted:
		return true
	}
	return false
}

func (r *room) push(rec loquat.Record, omitSession bool) *phx.Push {
	p, err := newEvent(r.ctx, r.topic, r.log, rec, omitSession)
	if err != nil {
		if r.ctx.Err() == nil {
			r.slog.Error("could not encode an event", "event", rec.ID.String(), "error", err)
		}
		return nil
	}
	return p
}

// newEvent is the push of one event.
func newEvent(ctx context.Context, topic string, log Log, rec loquat.Record, omitSession bool) (*phx.Push, error) {
	b, err := log.AppendEvent(ctx, append(make([]byte, 0, len(rec.Body)+64), `{"event":`...), rec, omitSession)
	if err == nil && !loquat.NestsWithin(b, maxEventDepth) {
		err = fmt.Errorf("it nests deeper than %d levels", maxEventDepth)
	}
	if err != nil {
		return nil, err
	}
	return phx.NewPush(topic, eventSession, append(b, '}')), nil
}

// app is one app in the room. Its fields belong to the lock of the room, but position
// while it is not live: then it is its goroutine's.
type app struct {
	room        *room
	member      *phx.Member
	session     string // the only one that it may see; "" is all
	omitSession bool

	ctx  context.Context // ends when it leaves
	stop context.CancelFunc

	live     bool
	position loquat.EventID // everything up to here it has, or is queued for it
	lost     bool           // it is not live, and has to be told of a gap
	lostAt   loquat.EventID // and to go on here
}

// enter brings an app in; it catches up from its position.
func (r *room) enter(a *app) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.apps[a] = struct{}{}
	a.fallBehind()
}

func (r *room) leave(a *app) {
	a.stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.apps, a)
}

// take queues pushes. The caller holds the room's lock.
func (a *app) take(pushes []pushed) {
	for _, p := range pushes {
		if a.session == "" || a.session == p.session {
			push := p.whole
			if a.omitSession {
				push = p.bare
			}
			if push == nil || !a.member.Offer(push) {
				a.fallBehind()
				return
			}
		}
		a.position = p.id
	}
}

// fallBehind makes an app catch up by itself. The caller holds the room's lock.
func (a *app) fallBehind() {
	a.live = false
	if a.room.ctx.Err() == nil {
		a.room.all.Go(a.catchUp)
	}
}

// gap tells an app to load everything again, and goes on from an event. The caller
// holds the room's lock.
func (a *app) gap(at loquat.EventID) {
	switch {
	case !a.live:
		a.lost, a.lostAt = true, at
	case a.member.Offer(newGap(a.room.topic, at)):
		a.position = at
	default:
		a.lost, a.lostAt = true, at
		a.fallBehind()
	}
}

// catchUp sends what the app has missed until it is where the pump is. It waits for
// the app, and for nothing else.
func (a *app) catchUp() {
	for a.ctx.Err() == nil {
		until, done := a.goLive()
		if done {
			return
		}
		err := a.sendUpTo(until)
		switch {
		case err == nil:
		case isGone(err):
			a.missed()
		case loquat.CodeOf(err) == loquat.CodeUnavailable:
			pause(a.ctx, retryPause)
		default:
			if a.ctx.Err() == nil && !errors.Is(err, phx.ErrClosed) {
				a.room.slog.Error("could not read what an app missed", "topic", a.room.topic, "error", err)
			}
			if !pause(a.ctx, retryPause) {
				return
			}
		}
	}
}

// goLive makes the app live if it has all that the pump has offered; else it says up
// to where to go.
func (a *app) goLive() (until loquat.EventID, done bool) {
	a.room.mu.Lock()
	defer a.room.mu.Unlock()
	if a.lost {
		return a.room.position, false
	}
	a.live = a.position >= a.room.position
	return a.room.position, a.live
}

// sendUpTo sends the next events, at most up to one.
func (a *app) sendUpTo(until loquat.EventID) error {
	if at, lost := a.takeLost(); lost {
		if err := a.member.Send(a.ctx, newGap(a.room.topic, at)); err != nil {
			return err
		}
		a.position = at
		return nil
	}
	window, err := a.room.log.Window(a.ctx, a.position, until, 0)
	if err != nil {
		return err
	}
	for _, rec := range loquat.CompactForPush(window) {
		if a.session == "" || a.session == rec.SessionID {
			push, err := newEvent(a.ctx, a.room.topic, a.room.log, rec, a.omitSession)
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
		a.position = rec.ID
	}
	if len(window) == 0 {
		a.position = until
	}
	return nil
}

// skip leaves out an event that cannot be encoded, and notes that the app has to be told
// of a gap.
func (a *app) skip(at loquat.EventID, err error) {
	a.room.slog.Error("an event cannot be encoded; the app has to load its sessions again", "topic", a.room.topic, "event", at.String(), "error", err)
	a.room.mu.Lock()
	defer a.room.mu.Unlock()
	if !a.lost {
		a.lost, a.lostAt = true, at
	}
}

// missed notes that what the app still had to get is gone.
func (a *app) missed() {
	a.room.mu.Lock()
	defer a.room.mu.Unlock()
	if !a.lost {
		a.lost, a.lostAt = true, a.room.position
	}
}

func (a *app) takeLost() (at loquat.EventID, lost bool) {
	a.room.mu.Lock()
	defer a.room.mu.Unlock()
	at, lost = a.lostAt, a.lost
	a.lost = false
	return at, lost
}
