package chat_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"loquat"
	"loquat/internal/chat"
	"loquat/internal/store"
)

// fullDisk is a database whose commits fail for a while.
type fullDisk struct {
	store.Driver
	full atomic.Bool
}

func (d *fullDisk) Write(ctx context.Context, fn func(store.SQL) error) error {
	return d.Driver.Write(ctx, func(q store.SQL) error {
		if err := fn(q); err != nil {
			return err
		}
		if d.full.Load() {
			return errors.New("no space left on device")
		}
		return nil
	})
}

func newRigOnFullDisk(t *testing.T) (*rig, *fullDisk) {
	t.Helper()
	disk := &fullDisk{}
	return newRigOn(t, func(db store.Driver) store.Driver { disk.Driver = db; return disk }), disk
}

// A stream whose disk is full waits with no more in hand than the bound, and goes on
// by itself when there is room.
func TestStreamOnAFullDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, streamOnAFullDisk)
}

func streamOnAFullDisk(t *testing.T) {
	r, disk := newRigOnFullDisk(t)
	const chunks, size = 100, 32 << 10
	gate := make(chan struct{}, chunks+1)
	word := strings.Repeat("x", size)
	p := phase{gate: gate, reply: loquat.Reply{Content: strings.Repeat(word, chunks)}}
	for range chunks {
		p.chunks = append(p.chunks, loquat.Chunk{Text: word})
	}
	r.provider.then(p)
	s := r.create(loquat.NewSession{})
	q := r.send(s.SessionID, loquat.Send{Content: text("hi"), Stream: new(true)})
	gate <- struct{}{}
	r.waitFor("the first text", func() bool { return strings.Contains(story(r.log(s.SessionID, 0)), "partial") })

	disk.full.Store(true)
	tick(gate, chunks)
	r.waitFor("the disk to be noticed", func() bool { return !r.Ready(t.Context()).Ready })
	for name, change := range map[string]func() error{
		"create": func() error { return second(r.CreateSession(t.Context(), chat.Call{}, loquat.NewSession{})) },
		"cancel": func() error { return second(r.Requests.Cancel(t.Context(), chat.Call{}, q.RequestID)) },
		"send": func() error {
			return second(r.Requests.Send(t.Context(), chat.Call{}, s.SessionID, loquat.Send{Content: text("x"), OnBusy: loquat.BusyQueue}))
		},
	} {
		if err := change(); loquat.CodeOf(err) != loquat.CodeUnavailable {
			t.Errorf("%s on a full disk: %v", name, err)
		}
	}
	time.Sleep(10 * time.Second) // several attempts to write, none of which may take in more
	if left := len(gate); left < chunks-(1<<20)/size-3 {
		t.Errorf("%d KiB of the stream were taken in while nothing could be written", (chunks-left)*size>>10)
	}

	disk.full.Store(false)
	if got := r.ended(q.RequestID); got.Status != loquat.StatusCompleted {
		t.Errorf("after the disk had room: %+v", got)
	}
	after := r.snapshot(s.SessionID)
	if n := len(after.Messages); n != 2 || len(after.Messages[1].Content) != chunks*size {
		t.Errorf("%d messages", n)
	}
	streamed := 0
	for _, e := range r.log(s.SessionID, 0) {
		if e.Type == loquat.Partial {
			streamed += len(e.Message.Content)
		}
	}
	if streamed != chunks*size {
		t.Errorf("%d bytes were streamed, want %d", streamed, chunks*size)
	}
	r.waitFor("the service to be ready", func() bool { return r.Ready(t.Context()).Ready })
}

// A request that is cancelled or fails while nothing can be written gets its end when
// something can.
func TestEndOnAFullDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, endOnAFullDisk)
}

func endOnAFullDisk(t *testing.T) {
	r, disk := newRigOnFullDisk(t)
	gate := make(chan struct{})
	r.provider.then(phase{chunks: words("seen "), gate: gate, err: loquat.Errorf(loquat.CodeBackendError, "cut")})
	s := r.create(loquat.NewSession{})
	q := r.send(s.SessionID, loquat.Send{Content: text("hi"), Stream: new(true)})
	tick(gate, 1)
	r.waitFor("the text", func() bool { return strings.Contains(story(r.log(s.SessionID, 0)), "seen") })
	disk.full.Store(true)
	tick(gate, 1)
	r.waitFor("the disk to be noticed", func() bool { return !r.Ready(t.Context()).Ready })
	if row, err := r.Requests.Request(t.Context(), q.RequestID); err != nil || row.Status != loquat.StatusRunning {
		t.Errorf("an end that is not on disk: %+v, %v", row, err)
	}
	disk.full.Store(false)
	if got := r.ended(q.RequestID); got.Status != loquat.StatusFailed || got.Error != "cut" {
		t.Errorf("the end: %+v", got)
	}
	if got, want := transcript(r.snapshot(s.SessionID).Messages), "user:hi | assistant:seen  (error)"; got != want {
		t.Errorf("messages %s, want %s", got, want)
	}
}

// A request whose writes fail for a minute is stopped: its backend is cancelled then, and its
// followers see its end when something can be written. What it had streamed is kept.
func TestRequestThatCannotBeStored(t *testing.T) {
	t.Parallel()
	for name, waits := range map[string]bool{"increments wait": false, "the end of a phase waits": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { requestThatCannotBeStored(t, waits) })
		})
	}
}

func requestThatCannotBeStored(t *testing.T, phaseEnds bool) {
	r, disk := newRigOnFullDisk(t)
	const unstoredLimit = time.Minute
	stopped := make(chan time.Time, 1)
	gate := make(chan struct{})
	r.provider.chat = func(ctx context.Context, _ loquat.LLMRequest) iter.Seq2[loquat.Chunk, error] {
		return func(yield func(loquat.Chunk, error) bool) {
			yield(loquat.Chunk{Text: "seen "}, nil)
			<-gate
			yield(loquat.Chunk{Text: "waits "}, nil)
			if phaseEnds {
				stopped <- time.Now().Add(unstoredLimit)
				yield(loquat.Chunk{Reply: &loquat.Reply{Content: "seen waits "}}, nil)
				return
			}
			<-ctx.Done()
			stopped <- time.Now()
			yield(loquat.Chunk{}, ctx.Err())
		}
	}
	s := r.create(loquat.NewSession{})
	q := r.send(s.SessionID, loquat.Send{Content: text("hi"), Stream: new(true)})
	r.waitFor("the text", func() bool { return strings.Contains(story(r.log(s.SessionID, 0)), "seen") })
	time.Sleep(3 * time.Minute) // with nothing to store, a request may be silent for longer
	disk.full.Store(true)
	full := time.Now()
	close(gate)
	if took := (<-stopped).Sub(full); took < 55*time.Second || took > 65*time.Second {
		t.Errorf("the backend worked for %s while nothing could be stored", took)
	}
	time.Sleep(time.Hour)
	if row, err := r.Requests.Request(t.Context(), q.RequestID); err != nil || row.Status != loquat.StatusRunning {
		t.Errorf("an end that is not on disk: %+v, %v", row, err)
	}
	disk.full.Store(false)
	if got := r.ended(q.RequestID); got.Status != loquat.StatusFailed || !strings.Contains(got.Error, "could not be stored for 60 seconds") {
		t.Errorf("the end: %+v", got)
	}
	if got, want := transcript(r.snapshot(s.SessionID).Messages), "user:hi | assistant:seen waits  (error)"; got != want {
		t.Errorf("messages %s, want %s", got, want)
	}
	log := r.log(s.SessionID, 0)
	if last := log[len(log)-1]; last.Type != loquat.RequestCompleted {
		t.Errorf("the log ends with %s", last.Type)
	}
}

// A check of the limit that runs when a request ends is the last one.
func TestLimitOfAClosedSink(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if chat.ChecksAfterClose(r.Service, store.Request{}) {
		t.Error("a sink that is closed checks its limit again")
	}
}

// away is a database that goes away while it commits: nobody knows whether the change was kept.
type away struct {
	store.Driver
	gone  atomic.Bool
	asked atomic.Int32 // how often the store asked what became of a change
}

type doubt struct{ *away }

func (doubt) Error() string { return "the connection was cut during COMMIT" }

func (d doubt) Resolve(context.Context) (bool, error) {
	d.asked.Add(1)
	if d.gone.Load() {
		return false, errors.New("connection refused")
	}
	return false, nil
}

func (d *away) Write(ctx context.Context, fn func(store.SQL) error) error {
	if d.gone.Load() {
		return doubt{d}
	}
	return d.Driver.Write(ctx, fn)
}

// A change whose outcome is unknown is waited for as long as the server runs, and until the end
// of its grace time when it stops: then its caller learns that it is unknown.
func TestStopWhileACommitIsInDoubt(t *testing.T) {
	t.Parallel() // not in a bubble: a send holds a mutex that Stop waits for
	db := &away{}
	r := newRigOn(t, func(d store.Driver) store.Driver { db.Driver = d; return db })
	s := r.create(loquat.NewSession{})
	db.gone.Store(true)
	sent := make(chan error, 1)
	go func() {
		_, err := r.Requests.Send(t.Context(), chat.Call{}, s.SessionID, loquat.Send{Content: text("hi")})
		sent <- err
	}()
	r.waitFor("several attempts", func() bool { return db.asked.Load() > 3 })
	select {
	case err := <-sent:
		t.Fatalf("a running server answers before it knows: %v", err)
	default:
	}
	const grace = 500 * time.Millisecond
	stopping, cancel := context.WithTimeout(t.Context(), grace)
	defer cancel()
	began := time.Now()
	r.Stop(stopping)
	if took := time.Since(began); took < grace {
		t.Errorf("it stopped after %s, before the end of the grace time", took)
	}
	if err := <-sent; loquat.CodeOf(err) != loquat.CodeUnavailable || !strings.Contains(err.Error(), "not known") {
		t.Errorf("the send: %v", err)
	}
}

// refusing is a database that refuses statements with a text in their values.
type refusing struct {
	store.Driver
	text string
}

func (d *refusing) Write(ctx context.Context, fn func(store.SQL) error) error {
	return d.Driver.Write(ctx, func(q store.SQL) error { return fn(refusingSQL{q, d.text}) })
}

type refusingSQL struct {
	store.SQL
	text string
}

func (q refusingSQL) Exec(query string, args ...any) (int64, error) {
	for _, arg := range args {
		if b, ok := arg.([]byte); ok && strings.Contains(string(b), q.text) {
			return 0, errors.New("canceling statement due to statement timeout")
		}
	}
	return q.SQL.Exec(query, args...)
}

// keepsAnswers is a database that refuses to remove old answers.
type keepsAnswers struct{ store.Driver }

func (d keepsAnswers) Write(ctx context.Context, fn func(store.SQL) error) error {
	return d.Driver.Write(ctx, func(q store.SQL) error { return fn(keepsAnswersSQL{q}) })
}

type keepsAnswersSQL struct{ store.SQL }

func (q keepsAnswersSQL) Exec(query string, args ...any) (int64, error) {
	if strings.Contains(query, "DELETE FROM answers") {
		return 0, errors.New("canceling statement due to statement timeout")
	}
	return q.SQL.Exec(query, args...)
}

// If some rows cannot be removed, images that nothing needs are removed all the same.
func TestImagesGoAlthoughRowsStay(t *testing.T) {
	r := newRigOn(t, func(db store.Driver) store.Driver { return keepsAnswers{db} })
	s := r.create(loquat.NewSession{})
	image := r.upload(s.SessionID, 1)
	if err := r.Assets.DeleteAsset(t.Context(), s.SessionID, image.AssetID); err != nil {
		t.Fatal(err)
	}
	if n, err := r.countImages(); err != nil || n != 1 {
		t.Fatalf("%d files, %v", n, err)
	}
	if err := r.Cleanup(t.Context()); err == nil || !strings.Contains(err.Error(), "old answers") {
		t.Errorf("the cleanup: %v", err)
	}
	if n, err := r.countImages(); err != nil || n != 0 {
		t.Errorf("%d files are left, %v", n, err)
	}
}

// A request whose text alone cannot be stored ends without this text, while other changes go on.
func TestTextThatCannotBeStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, textThatCannotBeStored)
}

func textThatCannotBeStored(t *testing.T) {
	r := newRigOn(t, func(db store.Driver) store.Driver { return &refusing{db, "too large"} })
	gate := make(chan struct{}, 2)
	r.provider.then(phase{chunks: words("seen ", "too large"), gate: gate, hang: true})
	s, other := r.create(loquat.NewSession{}), r.create(loquat.NewSession{})
	q := r.send(s.SessionID, loquat.Send{Content: text("hi"), Stream: new(true)})
	tick(gate, 1)
	r.waitFor("the text", func() bool { return strings.Contains(story(r.log(s.SessionID, 0)), "seen") })
	tick(gate, 1)
	began := time.Now()
	time.Sleep(30 * time.Second)
	if err := second(r.AppendMessage(t.Context(), chat.Call{}, other.SessionID, loquat.NewMessage{Role: "user", Content: "x"})); err != nil {
		t.Errorf("another change: %v", err)
	}
	if got := r.ended(q.RequestID); got.Status != loquat.StatusFailed || !strings.Contains(got.Error, "could not be stored for 60 seconds") {
		t.Errorf("the end: %+v", got)
	}
	if took := time.Since(began); took > 75*time.Second {
		t.Errorf("the end came after %s", took)
	}
	if got, want := transcript(r.snapshot(s.SessionID).Messages), "user:hi | assistant:seen  (error)"; got != want {
		t.Errorf("messages %s, want %s", got, want)
	}
}

// Whatever is sent while the service stops, and with or without time for what runs,
// nothing is left running behind it.
func TestNothingRunsAfterStop(t *testing.T) {
	rounds := 8
	if testing.Short() {
		rounds = 3
	}
	r := newRig(t)
	for round := range rounds {
		senders := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 4 {
			s := r.create(loquat.NewSession{})
			go func() {
				defer func() { senders <- struct{}{} }()
				for n := 0; ctx.Err() == nil; n++ {
					_, err := r.Requests.Send(t.Context(), chat.Call{}, s.SessionID, loquat.Send{Content: text(fmt.Sprint(i, n)), OnBusy: loquat.BusyQueue})
					if loquat.CodeOf(err) == loquat.CodeUnavailable {
						return
					}
				}
			}()
		}
		time.Sleep(5 * time.Millisecond)
		grace := 10 * time.Second
		if round%2 == 1 {
			grace = 0
		}
		stopping, done := context.WithTimeout(t.Context(), grace)
		r.Stop(stopping)
		done()
		cancel()
		for range 4 {
			<-senders
		}
		err := r.store.View(t.Context(), func(reader *store.Reader) error {
			left, err := reader.Unended(nil)
			for _, q := range left {
				if q.Status == loquat.StatusRunning {
					t.Errorf("request %s runs after Stop", q.RequestID)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		r.restart()
		r.waitFor("what was queued", func() bool { return r.Requests.Running() == 0 })
	}
}

// A service that is stopped while nothing can be written gives up in time; what it
// could not end is ended by the next start, and what clients saw is kept.
func TestStopOnAFullDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, stopOnAFullDisk)
}

func stopOnAFullDisk(t *testing.T) {
	r, disk := newRigOnFullDisk(t)
	gate := make(chan struct{})
	r.provider.then(phase{chunks: words("seen ", "lost "), gate: gate, hang: true})
	s := r.create(loquat.NewSession{})
	q := r.send(s.SessionID, loquat.Send{Content: text("hi"), Stream: new(true)})
	tick(gate, 1)
	r.waitFor("the text", func() bool { return strings.Contains(story(r.log(s.SessionID, 0)), "seen") })
	disk.full.Store(true)
	tick(gate, 1)
	r.waitFor("the disk to be noticed", func() bool { return !r.Ready(t.Context()).Ready })
	began := time.Now()
	r.Stop(expired())
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("it took %v to stop", took)
	}
	if said := r.said.String(); !strings.Contains(said, "could not be written; it is ended later") || strings.Contains(said, "request cancelled") {
		t.Errorf("the log says %s", said)
	}
	disk.full.Store(false)
	r.restart()
	if got := r.ended(q.RequestID); got.Status != loquat.StatusFailed {
		t.Errorf("the end: %+v", got)
	}
	if got, want := transcript(r.snapshot(s.SessionID).Messages), "user:hi | assistant:seen  (interrupted)"; got != want {
		t.Errorf("messages %s, want %s", got, want)
	}
}

// A service that starts while nothing can be written serves reads and refuses changes.
// When there is room, what the last run left is taken up before any change is made.
func TestStartOnAFullDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, startOnAFullDisk)
}

func startOnAFullDisk(t *testing.T) {
	r, disk := newRigOnFullDisk(t)
	gate := make(chan struct{})
	r.provider.then(phase{chunks: words("seen ", "lost "), gate: gate, hang: true})
	s, other := r.create(loquat.NewSession{}), r.create(loquat.NewSession{})
	q := r.send(s.SessionID, loquat.Send{Content: text("hi"), Stream: new(true)})
	tick(gate, 1)
	r.waitFor("the text", func() bool { return strings.Contains(story(r.log(s.SessionID, 0)), "seen") })
	disk.full.Store(true)
	r.Stop(expired())

	r.restart()
	if got, want := transcript(r.snapshot(s.SessionID).Messages), "user:hi"; got != want {
		t.Errorf("messages %s, want %s", got, want)
	}
	ready := r.Ready(t.Context())
	if ready.Ready || ready.Detail["start"] == "" {
		t.Errorf("the service says %+v", ready)
	}
	appendTo := func(session string) error {
		return second(r.AppendMessage(t.Context(), chat.Call{}, session, loquat.NewMessage{Role: "user", Content: "x"}))
	}
	time.Sleep(3 * time.Second)
	if err := appendTo(other.SessionID); loquat.CodeOf(err) != loquat.CodeUnavailable {
		t.Errorf("a change on a full disk: %v", err)
	}
	disk.full.Store(false)
	for { // whatever is accepted first finds the session at rest
		err := appendTo(s.SessionID)
		if err == nil {
			break
		}
		if loquat.CodeOf(err) != loquat.CodeUnavailable {
			t.Fatalf("a change before the last run is taken up: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if got := r.ended(q.RequestID); got.Status != loquat.StatusFailed {
		t.Errorf("the end: %+v", got)
	}
	if got, want := transcript(r.snapshot(s.SessionID).Messages), "user:hi | assistant:seen  (interrupted) | user:x"; got != want {
		t.Errorf("messages %s, want %s", got, want)
	}
	r.waitFor("the service to be ready", func() bool { return r.Ready(t.Context()).Ready })
}
