package backup

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"
	"github.com/google/uuid"
	"github.com/superfly/ltx"
	"golang.org/x/sync/errgroup"

	"loquat"
	"loquat/internal/backoff"
	"loquat/internal/store"
	"loquat/internal/store/sqlite"
)

// Options configure Follow.
type Options struct {
	Dir    string        // the data directory
	Place  Place         // where the copies go
	Name   string        // of the place, for messages
	Every  time.Duration // the time between two copies
	Keep   time.Duration // how long states can be restored
	Logger *slog.Logger

	// Permanent reports whether an error of the place lasts until somebody corrects something. Follow
	// then does not start.
	Permanent func(error) bool
}

const (
	smallCopy    = smallFile / 4096 // pages that are kept in memory while they are sent
	maintainWait = 10 * time.Second // between two looks for files to merge or to remove
	maxRetryWait = 10 * time.Second
	lastCopyWait = 10 * time.Second // for the copy at the end, and for the last status
	reportEvery  = time.Minute      // while copies fail
	maxGone      = 3                // copies in a row that fail because an image is gone
)

// follower copies one data directory to one place.
//
// Its goroutine copies. Another one maintains the files and writes the status.
type follower struct {
	name    string
	place   Place
	every   time.Duration
	keep    time.Duration
	expiry  time.Duration // see statusExpiry
	log     *slog.Logger
	tracker *sqlite.Tracker
	images  *mirror
	full    atomic.Bool // the next copy has all pages
	owns    bool        // the status in the place was that of this process
	status  status      // what does not change of it

	newest  atomic.Int64 // the newest state in the place
	checked atomic.Int64 // the newest state is that of this time
	event   atomic.Int64 // see status.Event
	written atomic.Int64 // when the status was written
	failing atomic.Pointer[string]

	// These belong to the goroutine that copies.
	failures int       // copies in a row that failed
	retryAt  time.Time // when the next copy is tried
	reported time.Time
	gone     int             // copies in a row that failed because an image is gone
	lost     map[string]bool // images that were reported

	mu    sync.Mutex
	files []file // in the place; guarded by mu
}

// Follow copies the changes of a data directory to a place until ctx ends. A server may use the
// directory, start and stop meanwhile. Follow returns an error if it cannot start, if another process
// has begun to write to the place, or if the database was replaced: it then has to be started again. If the
// sessions were moved to another store, the error is a store.ErrMoving.
func Follow(ctx context.Context, o Options) (err error) {
	lock, err := lockPlace(o.Dir, o.Name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	f, err := newFollower(ctx, o)
	if err == nil {
		defer func() { err = errors.Join(err, f.tracker.Close()) }()
		err = f.begin(ctx, o.Permanent)
	}
	if err != nil && ctx.Err() != nil {
		return nil // it is stopped before it has begun
	}
	if err != nil {
		return err
	}
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return f.copyLoop(running) })
	group.Go(func() error { return f.maintainLoop(running) })
	if err := group.Wait(); err != nil && ctx.Err() == nil {
		return errors.Join(err, f.leave(ctx))
	}
	return f.end(context.WithoutCancel(ctx))
}

// lockPlace keeps other processes from copying the same directory to the same place.
func lockPlace(dir, name string) (*flock.Flock, error) {
	if err := sqlite.Require(dir); err != nil {
		return nil, err
	}
	lock := flock.New(placeFile(dir, name, "lock"))
	ok, err := lock.TryLock()
	if err == nil && !ok {
		err = fmt.Errorf("another process already copies %s to %s; stop it, or choose another destination", dir, name)
	}
	return lock, err
}

// placeFile returns the path of a file in a data directory that is about one place.
func placeFile(dir, name, ending string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(dir, fmt.Sprintf("loquat.backup-%x.%s", sum[:4], ending))
}

func newFollower(ctx context.Context, o Options) (*follower, error) {
	tracker, err := sqlite.Track(ctx, o.Dir)
	if err != nil {
		return nil, err
	}
	f := &follower{
		name: o.Name, place: o.Place, every: o.Every, keep: o.Keep, expiry: statusExpiry, log: o.Logger, tracker: tracker,
		images: &mirror{dir: filepath.Join(o.Dir, "assets"), place: o.Place}, lost: map[string]bool{},
	}
	if f.status, err = thisProcess(o.Dir); err == nil {
		err = tracker.Read(ctx, func(q store.SQL) (err error) {
			if err := store.RequireInPlace(q); err != nil {
				return err
			}
			var serverErr, eventErr error
			f.status.Server, serverErr = store.ServerID(q)
			f.status.Event, eventErr = store.LastEvent(q)
			return errors.Join(serverErr, eventErr)
		})
	}
	if err != nil {
		return nil, errors.Join(err, tracker.Close())
	}
	if f.status.DirID, err = dirID(o.Dir, o.Name); err != nil {
		f.log.Warn("the data directory cannot keep its id, so the next process waits whether this one still copies", "error", err)
	}
	f.status.Process = uuid.NewString()
	f.status.Every, f.status.Keep = o.Every.Seconds(), o.Keep.Seconds()
	return f, nil
}

// begin finds out what is in the place. If the place cannot be reached, begin waits for it.
func (f *follower) begin(ctx context.Context, permanent func(error) bool) error {
	for {
		err := f.load(ctx)
		if _, taken := errors.AsType[*takenError](err); err == nil || taken || ctx.Err() != nil || permanent(err) {
			return err
		}
		f.report(err)
		if err := f.meanwhile(ctx, f.wait); err != nil {
			return err
		}
	}
}

func (f *follower) load(ctx context.Context) error {
	var newest int64
	var from lastCopy
	err := f.meanwhile(ctx, func(ctx context.Context) (err error) {
		newest, from, err = f.look(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if from.whyFull == "" {
		known, err := f.tracker.Resume(ctx, from.at, from.commit)
		if err != nil {
			return err
		}
		if !known {
			from.whyFull = "the write-ahead log does not go back to the newest copy"
		}
	}
	whyFull := from.whyFull
	f.newest.Store(newest)
	f.full.Store(whyFull != "")
	if err := f.meanwhile(ctx, f.writeStatus); err != nil {
		return err
	}
	f.owns = true
	if whyFull != "" {
		f.log.Info("the first copy has all pages", "to", f.name, "reason", whyFull)
	}
	f.log.Info("copying", "to", f.name, "every", f.every, "keep", f.keep)
	return nil
}

// look reads what is in the place.
func (f *follower) look(ctx context.Context) (newest int64, from lastCopy, err error) {
	if err := f.takeOver(ctx); err != nil {
		return 0, from, err
	}
	if err := f.place.Clean(ctx); err != nil {
		return 0, from, err
	}
	found, err := listFiles(ctx, f.place)
	if err != nil {
		return 0, from, err
	}
	if err := f.images.load(ctx); err != nil {
		return 0, from, err
	}
	f.mu.Lock()
	f.files = found
	f.mu.Unlock()
	newest = reach(found, 1<<62).newest()
	from, err = f.findLast(ctx, newest)
	return newest, from, err
}

// lastCopy is where the tracker stood that wrote the newest state, or why the next copy has all pages.
type lastCopy struct {
	at      sqlite.Position
	commit  uint32 // pages of the database
	whyFull string
}

// findLast finds the copy with which the newest state in the place ends.
func (f *follower) findLast(ctx context.Context, newest int64) (lastCopy, error) {
	if newest == 0 {
		return lastCopy{whyFull: "the destination has no copy yet"}, nil
	}
	for _, last := range f.list() {
		if last.max != newest || last.level != levelCopies && last.level != levelSnapshots {
			continue
		}
		h, err := readPages(ctx, f.place, last, func(ltx.Header, uint32, []byte) error { return nil })
		if _, damaged := errors.AsType[*damagedError](err); damaged {
			f.forget(last)
			continue
		}
		if err != nil {
			return lastCopy{}, err
		}
		if at, commit, ok := positionOf(h); ok {
			return lastCopy{at: at, commit: commit}, nil
		}
	}
	return lastCopy{whyFull: "the newest copy is missing or damaged"}, nil
}

// copyLoop copies what changes. It returns an error that ends the follower.
func (f *follower) copyLoop(ctx context.Context) error {
	tick := time.NewTicker(f.every)
	defer tick.Stop()
	for {
		if err := f.step(ctx, time.Now()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// wait waits before the place is tried again.
func (f *follower) wait(ctx context.Context) error {
	return backoff.Sleep(ctx, time.Until(f.retryAt))
}

// step copies what has changed. It returns an error of the database; that of the place is reported,
// and the copy is tried again later.
func (f *follower) step(ctx context.Context, now time.Time) error {
	if err := f.tracker.Advance(ctx); err != nil {
		return err
	}
	if f.tracker.Changed() { // else copies of the old place would seem to be copies of the new one
		if err := f.tracker.Read(ctx, store.RequireInPlace); err != nil {
			return err
		}
	}
	if err := f.tracker.Turn(ctx); err != nil {
		return err
	}
	if now.Before(f.retryAt) {
		return nil
	}
	err := f.copyState(ctx, max(now.UnixMilli(), f.newest.Load()+1))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if _, taken := errors.AsType[*takenError](err); taken {
		return err
	}
	if err == nil {
		err = f.images.expire(ctx, now.Add(-f.keep).UnixMilli())
	}
	f.report(err)
	return nil
}

// copyState copies the state of the tracker's transaction, which has all that was committed before at.
func (f *follower) copyState(ctx context.Context, at int64) error {
	full := f.full.Load()
	if !full && !f.tracker.Changed() {
		f.checked.Store(at)
		return nil
	}
	began := time.Now()
	// While the place or this machine was away, another follower may have taken over.
	if began.Sub(time.UnixMilli(f.written.Load())) > f.expiry {
		if err := f.meanwhile(ctx, f.writeStatus); err != nil {
			return err
		}
	}
	if full { // it takes long, and so may the images, for which the transaction is not needed
		if err := f.meanwhile(ctx, f.images.copyAll); err != nil {
			return err
		}
	}
	var event loquat.EventID
	err := f.tracker.Read(ctx, func(q store.SQL) (err error) {
		event, err = store.LastEvent(q)
		return err
	})
	if err != nil {
		return err
	}
	pages := f.tracker.Take()
	if err := f.copyPages(ctx, at, pages, full); err != nil {
		f.tracker.Return(pages)
		f.images.again()
		return err
	}
	f.event.Store(int64(event))
	if full {
		f.full.Store(false)
		f.log.Info("all pages are copied", "to", f.name, "took", time.Since(began).Round(time.Millisecond))
	}
	f.newest.Store(at)
	f.checked.Store(at)
	return nil
}

// errGone reports that an image was removed before it could be copied. A newer state does not name it.
var errGone = errors.New("an image was removed meanwhile")

func (f *follower) copyPages(ctx context.Context, at int64, pages []uint32, full bool) error {
	next := file{level: levelCopies, min: f.newest.Load() + 1, max: at}
	if full {
		commit, _ := f.tracker.Size()
		next, pages = file{level: levelSnapshots, min: 1, max: at}, allPages(commit)
	}
	send, err := f.prepare(ctx, next, pages)
	if err != nil {
		return err
	}
	named, changed, err := f.namedImages(ctx)
	if err != nil {
		return err
	}
	put := func(ctx context.Context) error {
		if changed {
			if err := f.syncImages(ctx, named, at); err != nil {
				return err
			}
		}
		next.size, err = send(ctx)
		return err
	}
	if len(pages) <= smallCopy {
		err = f.meanwhile(ctx, put)
	} else {
		err = put(ctx) // which reads the transaction
	}
	if err == nil {
		f.add(next)
	}
	return err
}

// prepare returns a function that stores a file of pages. That of few pages does not need the
// transaction any more.
func (f *follower) prepare(ctx context.Context, next file, pages []uint32) (send func(context.Context) (int64, error), err error) {
	if len(pages) > smallCopy {
		return func(ctx context.Context) (int64, error) {
			return putStream(ctx, f.place, next.name(), func(w io.Writer) error { return encode(ctx, w, next, pages, f.tracker) })
		}, nil
	}
	var b bytes.Buffer
	if err := encode(ctx, &b, next, pages, f.tracker); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (int64, error) {
		return int64(b.Len()), f.place.Put(ctx, next.name(), int64(b.Len()), bytes.NewReader(b.Bytes()))
	}, nil
}

// namedImages returns the images that the state names, if any may have changed since the last copy.
func (f *follower) namedImages(ctx context.Context) (named []store.ImageFile, changed bool, err error) {
	if changed, err = f.images.scan(); err != nil || !changed {
		return nil, false, err
	}
	err = f.tracker.Read(ctx, func(q store.SQL) (err error) {
		named, err = store.ImageFiles(q)
		return err
	})
	return named, true, err
}

func (f *follower) syncImages(ctx context.Context, named []store.ImageFile, at int64) error {
	missing, err := f.images.sync(ctx, named, at)
	if err != nil || len(missing) == 0 {
		f.gone = 0
		return err
	}
	if f.gone < maxGone {
		f.gone++
		return errGone
	}
	missing = slices.DeleteFunc(missing, func(hash string) bool { return f.lost[hash] })
	for _, hash := range missing {
		f.lost[hash] = true
	}
	if len(missing) > 0 {
		f.log.Error("images are missing or damaged in the data directory; everything else is copied", "images", len(missing), "first", missing[0])
	}
	return nil
}

// meanwhile runs fn, while the tracker advances: a transaction that stays open would let the
// write-ahead log grow.
func (f *follower) meanwhile(ctx context.Context, fn func(context.Context) error) error {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(f.every)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				// The next step reports a failure.
				if f.tracker.Advance(ctx) == nil {
					_ = f.tracker.Turn(ctx)
				}
			}
		}
	}()
	err := fn(ctx)
	close(stop)
	<-stopped
	return err
}

// report logs when copies begin to fail and when they work again, and sets the time of the next try.
func (f *follower) report(err error) {
	now := time.Now()
	switch {
	case err == nil && f.failures > 0 && f.failing.Load() != nil:
		f.log.Info("copies work again", "to", f.name, "newest", f.newestTime())
	case err != nil && !errors.Is(err, errGone) && now.Sub(f.reported) >= reportEvery:
		f.log.Error("cannot copy; trying again", "to", f.name, "newest", f.newestTime(), "error", err)
		f.reported = now
	}
	if err == nil {
		f.failures, f.reported = 0, time.Time{}
		f.failing.Store(nil)
		return
	}
	if !errors.Is(err, errGone) {
		text := err.Error()
		f.failing.Store(&text)
		f.retryAt = now.Add(backoff.Backoff{First: f.every, Max: maxRetryWait}.Delay(f.failures))
	}
	f.failures++
}

// newestTime returns the time of the newest state in the place, for messages.
func (f *follower) newestTime() string {
	newest := f.newest.Load()
	if newest == 0 {
		return "none"
	}
	return timeText(newest)
}

// maintainLoop merges files, removes old ones and writes the status.
func (f *follower) maintainLoop(ctx context.Context) error {
	failing := false
	for {
		err := f.maintain(ctx, time.Now())
		if status := f.writeStatus(ctx); status != nil {
			if _, taken := errors.AsType[*takenError](status); taken {
				return status
			}
			err = errors.Join(err, status)
		}
		if err != nil && ctx.Err() == nil && !failing {
			f.log.Warn("cannot merge copies or remove old ones; trying again", "to", f.name, "error", err)
		}
		failing = err != nil
		if err := backoff.Sleep(ctx, maintainWait); err != nil {
			return err
		}
	}
}

// end makes a last copy.
func (f *follower) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lastCopyWait)
	defer cancel()
	f.retryAt = time.Time{}
	err := f.step(ctx, time.Now())
	if failing := f.failing.Load(); err == nil && failing != nil {
		err = fmt.Errorf("the last changes are not copied: %s", *failing)
	}
	left := f.leave(ctx)
	if err = cmp.Or(err, left); err != nil {
		return err
	}
	f.log.Info("stopped", "to", f.name, "newest", f.newestTime())
	return nil
}

// leave says in the place that this follower has stopped, so that the next one need not wait for it. It
// says nothing if another follower has taken over.
func (f *follower) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lastCopyWait)
	defer cancel()
	f.status.Ended = true
	err := f.writeStatus(ctx)
	if _, taken := errors.AsType[*takenError](err); taken {
		return nil
	}
	return err
}

func (f *follower) list() []file {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.files)
}

func (f *follower) add(added file) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.files = append(slices.DeleteFunc(f.files, func(g file) bool { return g.name() == added.name() }), added)
}

func (f *follower) forget(removed file) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.files = slices.DeleteFunc(f.files, func(g file) bool { return g.name() == removed.name() })
}
