package crash_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/e2e/audit"
	"loquat/internal/e2e/binary"
	"loquat/internal/faultproxy"
)

// The sizes of a soak run.
const (
	soakSeconds      = 10 // unless LOQUAT_SOAK_SECONDS says otherwise
	soakSecondsShort = 4
	soakUsers        = 8
	soakPlaces       = 12 // sessions that are in use at once
	soakOperations   = 40 // after which a session is checked and another takes its place
	soakPatience     = time.Minute
)

// Everything at once, for a while: sends with all modes of recovery, cancels, changes,
// polls, streams, over lines that are cut, stalled, split and slow on both sides of
// the server, which watches itself for data races. Every request has its one end,
// every client's fold is its session, and nothing grows.
func TestSoak(t *testing.T) {
	t.Parallel()
	length := soakLength(t)
	program, raced := soakProgram(t)
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("LOQUAT_SOAK_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("LOQUAT_SOAK_SEED: %v", err)
		}
	}
	t.Logf("LOQUAT_SOAK_SEED=%d for %v", seed, length)
	backend := binary.Start(t, nil, "backend", "--listen", "127.0.0.1:0")
	below := unkind(t, backend.URL, seed)
	server, err := binary.Launch(program, nil, "serve", "--config", soakConfig(t, below.Addr()), "--listen", "127.0.0.1:0", "--data", t.TempDir())
	if server != nil {
		t.Cleanup(func() { server.End(t) })
	}
	if err == nil {
		err = server.Listening()
	}
	if err != nil {
		t.Fatal(err)
	}
	above := unkind(t, server.URL, seed+1)
	ctx, cancel := context.WithTimeout(t.Context(), length+5*time.Minute)
	defer cancel()
	s := newSoak(ctx, t, server.URL, above.Addr())
	idle := binary.Metrics(t, server.URL)
	s.run(seed, length)

	t.Logf("line to the backend: %+v", below.Stats())
	t.Logf("line to the clients: %+v", above.Stats())
	if below.Stats().Cuts == 0 || above.Stats().Cuts == 0 {
		t.Error("nothing was cut")
	}
	above.Close()
	below.Close()
	s.report()
	s.checkMemory(raced)
	binary.CheckLeaks(t, server.URL, idle, nil)
	server.End(t)
	for _, sign := range []string{"DATA RACE", "panic", "the cleanup failed", "fatal error"} {
		if log := server.Log.String(); strings.Contains(log, sign) {
			at := strings.Index(log, sign)
			t.Errorf("the server says:\n%s", log[max(0, at-200):min(len(log), at+5000)])
		}
	}
}

func soakLength(t *testing.T) time.Duration {
	seconds := soakSeconds
	if testing.Short() {
		seconds = soakSecondsShort
	}
	if s := os.Getenv("LOQUAT_SOAK_SECONDS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			t.Fatalf("LOQUAT_SOAK_SECONDS is %q, not a number of seconds", s)
		}
		seconds = n
	}
	return time.Duration(seconds) * time.Second
}

// soakProgram builds the program with the race detector. A short run uses the program
// without it, because building everything again takes longer than the run.
func soakProgram(t *testing.T) (path string, raced bool) {
	t.Helper()
	if testing.Short() {
		path, err := binary.Path()
		if err != nil {
			t.Fatal(err)
		}
		return path, false
	}
	path, err := binary.Build(filepath.Join(t.TempDir(), "loquat-race"), "-race")
	if err != nil {
		t.Fatalf("build with the race detector, which needs a C compiler (-short does without): %v", err)
	}
	return path, true
}

// unkind puts a proxy in front of a server.
func unkind(t *testing.T, url string, seed uint64) *faultproxy.Proxy {
	t.Helper()
	p, err := faultproxy.Start(faultproxy.Options{
		Target: strings.TrimPrefix(url, "http://"), Seed: seed,
		Cut: 0.5, Stall: 0.2, Split: 0.2, Slow: 0.2, Within: 32 << 10, StallFor: 1500 * time.Millisecond, Rate: 256 << 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// The agents differ in what they do when a stream breaks.
var soakAgents = []string{"default", "early", "aggressive"}

func soakConfig(t *testing.T, backend string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "loquat.json")
	text := fmt.Sprintf(`{"providers": {"main": {"provider": "reference_generic_compatible", "model": "lorem", "base_url": "http://%s/v1", "timeout": 1,
		"rate_limit_retry_delays_seconds": [0.01, 0.05], "retry_on_status": {"500": [0.01], "503": [0.01, 0.05]}, "retry_on_timeout": [0.01, 0.1]}},
		"agents": {"default": {"provider": "main"},
			"early": {"provider": "main", "stream_recovery": {"mode": "early_only"}},
			"aggressive": {"provider": "main", "stream_recovery": {"mode": "aggressive", "max_retries": 5}}}}`, backend)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// soak is a run and what it has seen.
type soak struct {
	ctx    context.Context
	t      *testing.T
	url    string
	line   string         // where clients connect to
	direct *client.Client // past the proxies
	places []*place

	mu         sync.Mutex
	operations map[string]int
	ends       map[loquat.RequestStatus]int
	sessions   int // checked
	folds      int // compared
	received   int // events that followers received
	heap       []float64
	resident   []float64
}

func newSoak(ctx context.Context, t *testing.T, url, line string) *soak {
	t.Helper()
	direct, err := client.New(url, client.Options{HTTPClient: &http.Client{Transport: &http.Transport{}}})
	if err != nil {
		t.Fatal(err)
	}
	return &soak{ctx: ctx, t: t, url: url, line: line, direct: direct, operations: map[string]int{}, ends: map[loquat.RequestStatus]int{}}
}

// through makes a client whose lines lead through the proxy, and which gives up on
// none of them by itself.
func (s *soak) through() *client.Client {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", s.line)
	}}
	c, err := client.New(s.url, client.Options{HTTPClient: &http.Client{Transport: transport}})
	if err != nil {
		panic(err) // the same address was good before
	}
	return c
}

// run lets the users loose for a while, then checks what is still in use.
func (s *soak) run(seed uint64, length time.Duration) {
	stop := s.watchMemory()
	random := rand.New(rand.NewPCG(seed, 1))
	for range soakPlaces {
		p := &place{}
		s.occupy(p, random)
		s.places = append(s.places, p)
	}
	ctx, cancel := context.WithTimeout(s.ctx, length)
	defer cancel()
	var users sync.WaitGroup
	for i := range soakUsers {
		users.Go(func() {
			u := soakUser{soak: s, random: rand.New(rand.NewPCG(seed, uint64(i)+2)), client: s.through()}
			defer u.client.CloseIdleConnections()
			for ctx.Err() == nil && !s.t.Failed() {
				u.act()
			}
		})
	}
	users.Wait()
	stop()
	var rest sync.WaitGroup
	for _, p := range s.places {
		rest.Go(func() {
			p.inUse.Lock()
			defer p.inUse.Unlock()
			s.cancelAll(p)
			s.settle(p)
		})
	}
	rest.Wait()
	s.direct.CloseIdleConnections()
}

// place is one of the sessions in use, with those who follow it. Deeds hold inUse
// shared; who exchanges the session holds it alone.
type place struct {
	inUse     sync.RWMutex
	id        string
	followers []*soakFollower
	leave     func() // ends the followers

	mu         sync.Mutex
	operations int
	requests   []string // that were sent, perhaps in vain
}

// occupy creates a session for a place and lets three clients follow it.
func (s *soak) occupy(p *place, random *rand.Rand) {
	created, err := s.direct.CreateSession(s.ctx, loquat.NewSession{
		AgentID:  soakAgents[random.IntN(len(soakAgents))],
		Metadata: loquat.Object{}.Set("overrides", map[string]any{"request_options": map[string]any{"loquat_script": soakScript(random)}}),
	})
	if err != nil {
		s.t.Error(err)
		return
	}
	p.id, p.operations, p.requests = created.SessionID, 0, nil
	ctx, cancel := context.WithCancel(s.ctx)
	var all sync.WaitGroup
	p.followers = nil
	for kind := range 3 {
		f := &soakFollower{soak: s, session: p.id, fold: loquat.NewFold(created), client: s.through(), random: rand.New(rand.NewPCG(random.Uint64(), 0))}
		p.followers = append(p.followers, f)
		all.Go(func() {
			defer f.client.CloseIdleConnections()
			f.run(ctx, kind)
		})
	}
	p.leave = func() { cancel(); all.Wait() }
}

// soakScript is what the backend does for one session.
func soakScript(random *rand.Rand) map[string]any {
	script := map[string]any{"chunks": 5 + random.IntN(150), "rate": 50 + random.IntN(400), "chunk_bytes": 4 + random.IntN(20)}
	faults := []map[string]any{
		nil, nil, {"status": 429}, {"status": 503}, {"drop_after": 3}, {"drop_after": -1}, {"drop_after": 4, "drop": "short"},
		{"stall_after": 2}, {"delay_ms": 1200}, {"error_after": 4}, {"malformed_after": 3},
	}
	if fault := faults[random.IntN(len(faults))]; fault != nil {
		script["id"] = strconv.FormatUint(random.Uint64(), 36)
		script["attempts"] = []map[string]any{fault, {}, fault, fault, {}, {}, {}, fault, {}, {}, fault, {}}
	}
	return script
}

// soakUser does things to sessions, at random.
type soakUser struct {
	*soak
	random *rand.Rand
	client *client.Client
}

// act does one thing to one session, and exchanges it when it has had enough.
func (u soakUser) act() {
	p := u.places[u.random.IntN(len(u.places))]
	p.inUse.RLock()
	name, fine, err := u.operate(p)
	p.mu.Lock()
	p.operations++
	enough := p.operations >= soakOperations
	p.mu.Unlock()
	p.inUse.RUnlock()
	u.judge(name, err, fine)
	if enough && p.inUse.TryLock() {
		if p.operations >= soakOperations {
			u.settle(p)
			u.occupy(p, u.random)
		}
		p.inUse.Unlock()
	}
	time.Sleep(time.Duration(u.random.IntN(60)) * time.Millisecond)
}

// operate does one random operation. It returns the operation's name and the refusals that
// are expected. A connection that breaks too often is always expected.
func (u soakUser) operate(p *place) (name string, fine []loquat.Code, err error) {
	ctx := u.ctx
	switch n := u.random.IntN(100); {
	case n < 45:
		return "send", []loquat.Code{loquat.CodeBusy, loquat.CodeRateLimited}, u.send(p)
	case n < 60:
		p.mu.Lock()
		requests := slices.Clone(p.requests)
		p.mu.Unlock()
		if len(requests) == 0 {
			return "nothing", nil, nil
		}
		_, err := u.client.Cancel(ctx, requests[len(requests)-1-u.random.IntN(min(2, len(requests)))])
		return "cancel", []loquat.Code{loquat.CodeNotFound}, err
	case n < 75:
		_, err := u.client.AppendMessage(ctx, p.id, loquat.NewMessage{Role: loquat.RoleUser, Content: u.words()})
		return "append", []loquat.Code{loquat.CodeBusy}, err
	case n < 82:
		_, err := u.client.ModifyMessage(ctx, p.id, u.random.IntN(5), u.words())
		return "modify", []loquat.Code{loquat.CodeBusy, loquat.CodeNotFound, loquat.CodeInvalid}, err
	case n < 88:
		_, err := u.client.DeleteMessages(ctx, p.id, []int{u.random.IntN(5)})
		return "delete", []loquat.Code{loquat.CodeBusy, loquat.CodeNotFound, loquat.CodeInvalid}, err
	case n < 92:
		_, err := u.client.UpdateSession(ctx, p.id, loquat.SessionPatch{Metadata: loquat.Object{}.Set("note", u.words())})
		return "describe", nil, err
	default:
		_, err := u.client.Session(ctx, p.id)
		return "load", nil, err
	}
}

func (u soakUser) send(p *place) error {
	id := "r" + strconv.FormatUint(u.random.Uint64(), 36)
	p.mu.Lock()
	p.requests = append(p.requests, id) // before: the answer may get lost
	p.mu.Unlock()
	content := u.words()
	_, err := u.client.Send(u.ctx, p.id, loquat.Send{
		RequestID: id, Content: &content, Stream: new(u.random.IntN(5) > 0),
		OnBusy: []string{"reject", "queue", "interrupt", "steer", "rollback"}[u.random.IntN(5)],
	})
	return err
}

func (u soakUser) words() string {
	return strings.Repeat("words "+strconv.Itoa(u.random.IntN(1000))+" ", 1+u.random.IntN(8))
}

func (s *soak) judge(name string, err error, fine []loquat.Code) {
	code := loquat.CodeOf(err)
	if err != nil && code != loquat.CodeUnavailable && !slices.Contains(fine, code) && s.ctx.Err() == nil {
		s.t.Errorf("%s: %v", name, err)
	}
	if code == "" {
		code = "done"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.operations[name+" "+string(code)]++
}

// cancelAll spares the end of a run the wait for what is queued.
func (s *soak) cancelAll(p *place) {
	for _, id := range p.requests {
		if _, err := s.direct.Cancel(s.ctx, id); err != nil && loquat.CodeOf(err) != loquat.CodeNotFound {
			s.t.Error(err)
		}
	}
}

// settle waits until nothing runs on the session of a place, and checks all there is
// to check of it. p.inUse is held.
func (s *soak) settle(p *place) {
	if p.leave == nil || s.t.Failed() {
		return
	}
	defer func() { p.leave(); p.leave = nil }()
	time.Sleep(200 * time.Millisecond) // for what a broken line had already passed on
	requests := map[string]loquat.Request{}
	for _, id := range p.requests {
		q, err := s.ended(id)
		if loquat.CodeOf(err) == loquat.CodeNotFound {
			continue // it was refused, or never arrived
		}
		if err != nil {
			s.t.Error(err)
			return
		}
		requests[id] = q
	}
	snapshot, err := s.direct.Session(s.ctx, p.id)
	if err != nil {
		s.t.Error(err)
		return
	}
	log, err := s.log(p.id)
	if err != nil {
		s.t.Error(err)
		return
	}
	all := audit.NewTruth(log)
	all.Sessions[p.id], all.Requests = snapshot, requests
	for _, fault := range all.Check() {
		s.t.Error(fault)
	}
	for id := range requests {
		if len(all.ByRequest[id]) == 0 {
			s.t.Errorf("request %s is stored as %s and has no events", id, requests[id].Status)
		}
	}
	for kind, f := range p.followers {
		if err := f.await(snapshot); err != nil {
			s.t.Errorf("follower %d of session %s: %v", kind, p.id, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions++
	for _, q := range requests {
		s.ends[q.Status]++
	}
	s.folds += len(p.followers)
}

// ended waits for the end of a request.
func (s *soak) ended(id string) (loquat.Request, error) {
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		q, err := s.direct.Request(s.ctx, id)
		if err != nil || q.Status.Ended() {
			return q, err
		}
		if time.Since(began) > soakPatience {
			return q, fmt.Errorf("request %s is still %s", id, q.Status)
		}
	}
}

// log reads all events of a session.
func (s *soak) log(session string) (events []loquat.Event, err error) {
	for since := loquat.EventID(0); ; {
		w, err := s.direct.Events(s.ctx, client.Query{Since: &since, SessionID: session, OmitSession: true, Limit: 500})
		if err != nil || len(w.Events) == 0 {
			return events, err
		}
		events = append(events, w.Events...)
		since = w.Events[len(w.Events)-1].EventID
	}
}

// soakFollower keeps a fold of a session over a faulty network.
type soakFollower struct {
	*soak
	session string
	client  *client.Client
	random  *rand.Rand

	mu   sync.Mutex
	fold *loquat.Fold
}

// run follows by a stream, by polls, or by loading the session now and then and
// following from there.
func (f *soakFollower) run(ctx context.Context, kind int) {
	for ctx.Err() == nil {
		var err error
		switch kind {
		case 0:
			err = f.stream(ctx)
		case 1:
			err = f.poll(ctx)
		default:
			err = f.reload(ctx)
		}
		if code := loquat.CodeOf(err); err != nil && code != loquat.CodeUnavailable && ctx.Err() == nil {
			f.t.Errorf("a follower of kind %d: %v", kind, err)
			return
		}
	}
}

// stream follows for some events, then connects again.
func (f *soakFollower) stream(ctx context.Context) error {
	left := 1 + f.random.IntN(300)
	since := f.position()
	for e, err := range f.client.Follow(ctx, client.Query{SessionID: f.session, Since: &since, OmitSession: true}) {
		if err != nil {
			return err
		}
		f.apply(e)
		if left--; left == 0 {
			break
		}
	}
	return nil
}

func (f *soakFollower) poll(ctx context.Context) error {
	since := f.position()
	w, err := f.client.Events(ctx, client.Query{SessionID: f.session, Since: &since, OmitSession: true,
		Limit: 1 + f.random.IntN(200), Wait: time.Duration(f.random.IntN(3)) * time.Second})
	if err != nil {
		return err
	}
	f.apply(w.Events...)
	return nil
}

// reload follows like a client that connects in the middle of a reply.
func (f *soakFollower) reload(ctx context.Context) error {
	left := 1 + f.random.IntN(300)
	for u, err := range f.client.FollowSession(ctx, f.session) {
		if err != nil {
			return err
		}
		if u.Event != nil {
			f.apply(*u.Event)
		} else {
			f.mu.Lock()
			f.fold = loquat.NewFold(loquat.Snapshot{CursorEventID: u.State.Cursor(), Session: loquat.Session{
				SessionID: f.session, AgentID: u.State.AgentID(), Metadata: u.State.Metadata(), Messages: u.State.Messages()}})
			f.mu.Unlock()
		}
		if left--; left == 0 {
			break
		}
	}
	return nil
}

func (f *soakFollower) position() loquat.EventID {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fold.Cursor()
}

func (f *soakFollower) apply(events ...loquat.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range events {
		f.fold.Apply(e)
	}
	f.soak.mu.Lock()
	defer f.soak.mu.Unlock()
	f.received += len(events)
}

// await waits until the fold is as the session is stored.
func (f *soakFollower) await(stored loquat.Snapshot) error {
	want := audit.AsText(stored.Messages)
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		f.mu.Lock()
		at, got, draft := f.fold.Cursor(), audit.AsText(f.fold.Messages()), f.fold.Draft()
		f.mu.Unlock()
		if got == want && draft == nil {
			return nil
		}
		if time.Since(began) > soakPatience {
			return fmt.Errorf("at event %s of %s, with draft %v, it shows\n%.2000s\nstored is\n%.2000s", at, stored.CursorEventID, draft, got, want)
		}
	}
}

// watchMemory samples the server's memory until stop is called.
func (s *soak) watchMemory() (stop func()) {
	ctx, cancel := context.WithCancel(s.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			now := binary.Metrics(s.t, s.url)
			s.heap = append(s.heap, now["go_memstats_heap_inuse_bytes"])
			s.resident = append(s.resident, now["process_resident_memory_bytes"])
			time.Sleep(500 * time.Millisecond)
		}
	}()
	return func() { cancel(); <-ended }
}

// databaseCaches is about what the embedded database may come to keep of its file in
// memory as the file grows.
const databaseCaches = 128 << 20

// checkMemory compares the last third of the run with the first. Of a program with the
// race detector only the heap counts: the detector keeps a record of every defer for
// as long as its goroutine lives, outside the heap.
func (s *soak) checkMemory(raced bool) {
	middle := func(v []float64) float64 {
		v = slices.Sorted(slices.Values(v))
		return v[len(v)/2]
	}
	third := len(s.heap) / 3
	if third == 0 {
		return
	}
	heap, heapLater := middle(s.heap[:third]), middle(s.heap[len(s.heap)-third:])
	resident, residentLater := middle(s.resident[:third]), middle(s.resident[len(s.resident)-third:])
	s.t.Logf("heap %.0f MB in the first third, %.0f MB in the last; resident %.0f MB and %.0f MB", heap/1e6, heapLater/1e6, resident/1e6, residentLater/1e6)
	if heapLater > 1.5*heap+16e6 {
		s.t.Errorf("the heap grew from %.0f to %.0f MB", heap/1e6, heapLater/1e6)
	}
	if !raced && residentLater > 1.25*resident+databaseCaches {
		s.t.Errorf("resident memory grew from %.0f to %.0f MB", resident/1e6, residentLater/1e6)
	}
}

// report logs how much was done, and fails if that was too little to prove anything.
func (s *soak) report() {
	s.t.Logf("operations: %v", s.operations)
	s.t.Logf("ends of requests: %v", s.ends)
	s.t.Logf("%d sessions checked, %d folds compared, %d events received", s.sessions, s.folds, s.received)
	for _, name := range []string{"send done", "cancel done", "append done", "describe done", "load done"} {
		if s.operations[name] == 0 {
			s.t.Errorf("nobody ever had a %q", name)
		}
	}
	if s.sessions < soakPlaces || s.ends[loquat.StatusCompleted] == 0 || s.ends[loquat.StatusCancelled] == 0 {
		s.t.Errorf("%d sessions with ends %v are too few", s.sessions, s.ends)
	}
}
