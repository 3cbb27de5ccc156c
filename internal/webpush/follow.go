package webpush

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"loquat"
	"loquat/internal/auth"
	"loquat/internal/backoff"
	"loquat/internal/store"
)

// Times and bounds of following the log.
const (
	checkLeads  = 500 * time.Millisecond
	windowSize  = 256  // events
	maxPending  = 1000 // notifications that are not sent yet; the log is not read further meanwhile
	titleLength = 100  // characters
)

// overdue is the time after which a notification may be dropped while too many wait.
var overdue = 30 * time.Second

// run sends notifications while this node leads.
func (n *Notifier) run(ctx context.Context) {
	for ctx.Err() == nil {
		if n.store.Leads() {
			n.lead(ctx)
		}
		_ = backoff.Sleep(ctx, checkLeads)
	}
}

// leader follows the log and sends the notifications of the requests that end.
type leader struct {
	*Notifier
	watch   *store.Watch
	read    loquat.EventID // the last event that was read
	saved   loquat.EventID // the last event whose notifications were all sent, as stored
	room    chan struct{}  // one element for each pending delivery
	settled chan struct{}  // signalled when a delivery has ended
	all     sync.WaitGroup

	mu      sync.Mutex
	pending map[target]*delivery // guarded by mu
	unsaved bool                 // deliveries were started since the last save; guarded by mu
}

// target is what a newer notification replaces an older one for.
type target struct{ subscription, session string }

// delivery is a notification that is not sent yet.
type delivery struct {
	event  loquat.EventID
	host   string // of the push service
	since  time.Time
	cancel context.CancelFunc
}

// lead follows the log until ctx ends or this node no longer leads.
func (n *Notifier) lead(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	l := &leader{Notifier: n, room: make(chan struct{}, maxPending), settled: make(chan struct{}, 1), pending: map[target]*delivery{}}
	l.watch = n.store.Watch(store.Filter{Among: store.NewSelection(nil, true)}) // no work for the increments of replies
	defer l.watch.Stop()
	defer l.all.Wait()
	defer stop()
	if err := l.begin(ctx); err != nil {
		n.report(ctx, err)
		return
	}
	ticker := time.NewTicker(checkLeads)
	defer ticker.Stop()
	for n.store.Leads() {
		err := l.readEnds(ctx)
		if err == nil {
			err = l.save(ctx)
		}
		n.report(ctx, err) // the next round tries again
		select {
		case <-ctx.Done():
			return
		case <-l.watch.C():
		case <-l.settled:
		case <-ticker.C:
		}
	}
}

// report logs an error of the store once, until ctx has ended.
func (n *Notifier) report(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		n.failures.Log(slog.LevelWarn, "notifications wait for the store", "error", err)
	}
}

// begin finds the event after which notifications have to be sent. Without subscriptions that is the
// newest event.
func (l *leader) begin(ctx context.Context) error {
	latest := l.store.Last()
	list, sent, err := l.state(ctx)
	l.read = latest
	if len(list) > 0 {
		l.read = min(sent, latest)
	}
	l.saved = l.read
	return err
}

func (n *Notifier) state(ctx context.Context) (list []loquat.PushSubscription, sent loquat.EventID, err error) {
	err = n.store.View(ctx, func(r *store.Reader) (err error) {
		list, sent, err = r.PushState()
		return err
	})
	return list, sent, err
}

// readEnds reads the log up to its end and starts the deliveries of the requests that have ended.
func (l *leader) readEnds(ctx context.Context) error {
	var buf []loquat.Record
	for l.watch.Newest() > l.read {
		window, err := l.watch.Events(ctx, buf, l.read, "", store.Bounds{Events: windowSize})
		if err != nil || len(window) == 0 {
			return err
		}
		last := window[len(window)-1].ID
		ends := slices.DeleteFunc(window, func(r loquat.Record) bool {
			return r.Type != loquat.RequestCompleted || time.Since(r.At) > timeToLive
		})
		if len(ends) > 0 {
			if err := l.announce(ctx, ends); err != nil {
				return err
			}
		}
		l.read, buf = last, window
	}
	return nil
}

// announce starts the deliveries of requests that have ended.
func (l *leader) announce(ctx context.Context, ends []loquat.Record) error {
	list, _, err := l.state(ctx)
	if err != nil || len(list) == 0 {
		return err
	}
	for _, end := range ends {
		note, user, ok, err := l.describe(ctx, end)
		if loquat.CodeOf(err) == loquat.CodeUnavailable || ctx.Err() != nil {
			return err
		}
		l.report(ctx, err) // a damaged session has no notifications, but delays no others
		for i := 0; ok && i < len(list); i++ {
			if list[i].CreatedAt.After(end.At) {
				continue
			}
			who, held, err := l.access.OwnedBy(ctx, list[i].Owner)
			if err != nil {
				return err
			}
			if held && !mayHear(who, note.SessionID, user) {
				continue
			}
			if err := l.start(ctx, end.ID, list[i], note); err != nil { // without a valid owner it is removed there
				return err
			}
		}
	}
	return nil
}

// mayHear reports whether a principal may read a session of a user, or of nobody.
func mayHear(who auth.Principal, sessionID, user string) bool {
	switch who.Scope {
	case auth.Full, auth.Read:
		return true
	case auth.Session:
		return who.SessionID == sessionID
	case auth.User:
		return user != "" && who.User == user
	}
	return false
}

// describe returns the notification of a request that has ended, and to whom its session belongs. ok is false if there is none: the
// user has cancelled the request, another one took in its message, or its session was deleted.
func (l *leader) describe(ctx context.Context, end loquat.Record) (note loquat.PushNotification, user string, ok bool, err error) {
	err = l.store.View(ctx, func(r *store.Reader) error {
		q, err := r.Request(end.RequestID)
		if err != nil {
			return err
		}
		h, err := r.Head(q.SessionID)
		if err != nil {
			return err
		}
		user = h.User
		ok = q.SteeredInto == "" && (q.Status == loquat.StatusCompleted || q.Status == loquat.StatusFailed)
		title := l.store.VisibleMetadata(h.Metadata).String(loquat.MetaTitle)
		note = loquat.PushNotification{SessionID: q.SessionID, RequestID: q.RequestID, Status: q.Status, Title: loquat.Clip(title, titleLength)}
		return nil
	})
	if loquat.CodeOf(err) == loquat.CodeNotFound {
		return note, user, false, nil
	}
	return note, user, ok, err
}

// start starts a delivery. It replaces an older one of the same session. It waits while too many are
// pending.
func (l *leader) start(ctx context.Context, event loquat.EventID, p loquat.PushSubscription, note loquat.PushNotification) error {
	for waiting := true; waiting; {
		select {
		case l.room <- struct{}{}:
			waiting = false
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(overdue / 10):
			l.dropOverdue()
		}
	}
	own, cancel := context.WithCancel(ctx)
	d, to := &delivery{event: event, host: hostOf(p.Endpoint), since: time.Now(), cancel: cancel}, target{p.ID, note.SessionID}
	l.mu.Lock()
	if older := l.pending[to]; older != nil {
		older.cancel()
	}
	l.pending[to], l.unsaved = d, true
	l.mu.Unlock()
	l.all.Go(func() {
		defer func() { <-l.room }()
		defer cancel()
		l.deliver(own, p, note)
		if ctx.Err() != nil {
			return // it stays pending: the next leader sends it
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.pending[to] == d {
			delete(l.pending, to)
		}
		select {
		case l.settled <- struct{}{}:
		default:
		}
	})
	return nil
}

// dropOverdue gives up the notifications that have waited for long, of push services that accept none: they must
// not delay those of other services.
func (l *leader) dropOverdue() {
	dropped := 0
	l.mu.Lock()
	for _, d := range l.pending {
		if time.Since(d.since) > overdue && time.Since(l.calls.lastAccepted(d.host)) > overdue {
			d.cancel()
			dropped++
		}
	}
	l.mu.Unlock()
	if dropped > 0 {
		l.failures.Log(slog.LevelWarn, "too many notifications wait for push services that accept none; the oldest are dropped", "dropped", dropped)
	}
}

// save stores the last event whose notifications were all sent, if some were started since.
func (l *leader) save(ctx context.Context) error {
	l.mu.Lock()
	done, unsaved := l.read, l.unsaved
	for _, d := range l.pending {
		done = min(done, d.event-1)
	}
	l.unsaved = unsaved && len(l.pending) > 0
	l.mu.Unlock()
	if !unsaved || done <= l.saved {
		return nil
	}
	err := l.store.Update(ctx, func(tx *store.Tx) error { return tx.SetPushSent(done) })
	if err == nil {
		l.saved = done
		return nil
	}
	l.mu.Lock()
	l.unsaved = true
	l.mu.Unlock()
	return err
}
