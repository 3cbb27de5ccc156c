package crash_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

// The sizes of a crash run.
const (
	crashRounds      = 20 // kills, unless LOQUAT_CRASH_ROUNDS says otherwise
	crashRoundsShort = 6
	roundsPerDir     = 50 // kills on one data directory
	roundsPerAudit   = 5
	users            = 8
	maxLife          = 400 * time.Millisecond // of a server that is killed at random
	maxCommits       = 120                    // after which one is killed at a commit
	crashPatience    = time.Minute            // for whatever has to happen
)

// Kill -9 at any instant loses nothing that was acknowledged and nothing that anybody
// has seen, gives no id two meanings, leaves no request without its one end, and every
// client ends with what is stored. It kills the process, not the machine: what the
// disk does with a sync is the disk's.
func TestCrash(t *testing.T) {
	rounds := roundsWanted(t)
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("LOQUAT_CRASH_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("LOQUAT_CRASH_SEED: %v", err)
		}
	}
	t.Logf("LOQUAT_CRASH_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	program, err := binary.Build(filepath.Join(t.TempDir(), "loquat"), "-tags", "crashpoints")
	if err != nil {
		t.Fatal(err)
	}
	backend := binary.Start(t, nil, "backend", "--listen", "127.0.0.1:0")
	total := tally{kills: map[string]int{}, acknowledged: map[string]int{}}
	begun := time.Now()
	for total.rounds < rounds && !t.Failed() {
		e := newEra(t, random, program, backend.URL, &total)
		e.run(min(roundsPerDir, rounds-total.rounds))
		if rounds > roundsPerDir {
			fmt.Printf("%s: %s\n", time.Since(begun).Round(time.Second), &total) // as it goes, not at the end
		}
	}
	t.Logf("seed %d, %s: %s", seed, time.Since(begun).Round(time.Second), &total)
}

func roundsWanted(t *testing.T) int {
	t.Helper()
	if s := os.Getenv("LOQUAT_CRASH_ROUNDS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			t.Fatalf("LOQUAT_CRASH_ROUNDS: %q is not a number of kills", s)
		}
		return n
	}
	if testing.Short() {
		return crashRoundsShort
	}
	return crashRounds
}

// tally counts what a run did.
type tally struct {
	rounds       int
	kills        map[string]int
	acknowledged map[string]int
	requests     int
	seen         int // events delivered to clients
	folds        int // compared with what is stored
	states       int // snapshots, and sessions within events, compared with the log
	audits       int
}

func (n *tally) String() string {
	changes := 0
	for kind, k := range n.acknowledged {
		if kind != "repeat" { // it changes nothing
			changes += k
		}
	}
	return fmt.Sprintf("%d kills (%s); %d acknowledged changes (%s); %d requests, each with one end; %d events delivered; %d folds and %d snapshots compared in %d audits",
		n.rounds, counts(n.kills), changes, counts(n.acknowledged), n.requests, n.seen, n.folds, n.states, n.audits)
}

func counts(of map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, fmt.Sprintf("%d %s", of[name], name))
	}
	return strings.Join(parts, ", ")
}

// era is the life of one data directory, through many servers.
type era struct {
	t       *testing.T
	random  *rand.Rand
	program string
	args    []string
	total   *tally

	current *mortal // while there is calm
	door    *door
	c       *client.Client
	crowd   *crowd
	witness *witness

	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	watchers []*watcher
	initial  map[string]*loquat.Session // as they were created
	ended    map[string]loquat.Request
}

func newEra(t *testing.T, random *rand.Rand, program, backendURL string, total *tally) *era {
	t.Helper()
	dir := t.TempDir()
	cfg := filepath.Join(dir, "loquat.json")
	text := fmt.Sprintf(`{"providers": {"main": {"provider": "reference_generic_compatible", "model": "demo", "base_url": "%s/v1", "timeout": 10,
		"retry_on_status": {"503": [0.02]}, "stream_recovery": {"mode": "aggressive", "max_retries": 1}}}, "limits": {"max_tool_rounds": 2}}`, backendURL)
	if err := os.WriteFile(cfg, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	e := &era{
		t: t, random: random, program: program, total: total, witness: newWitness(),
		args: []string{"serve", "--config", cfg, "--listen", "127.0.0.1:0", "--data", filepath.Join(dir, "data")},
		door: newDoor(), initial: map[string]*loquat.Session{}, ended: map[string]loquat.Request{},
	}
	e.ctx, e.stop = context.WithCancel(t.Context())
	e.c = e.newClient()
	states := &stateLedger{}
	e.crowd = &crowd{
		c: e.c, promises: &promises{kinds: map[string]int{}}, states: states, deleting: map[string]bool{},
		fault: func(err error) { e.t.Error(err) },
		opened: func(s loquat.Snapshot) {
			kind := "poller"
			w := &watcher{query: client.Query{SessionID: s.SessionID, OmitSession: e.seed()%3 > 0}, at: s.CursorEventID}
			if w.stream = e.seed()%2 == 0; w.stream {
				kind = "stream"
			}
			w.name, w.folds = kind+" of session "+s.SessionID, map[string]*loquat.Fold{s.SessionID: loquat.NewFold(s)}
			e.watch(w)
		},
	}
	return e
}

// newClient makes a client with connections of its own.
func (e *era) newClient() *client.Client {
	c, err := client.New("http://127.0.0.1", client.Options{HTTPClient: &http.Client{Transport: e.door.transport()}})
	if err != nil {
		e.t.Fatal(err)
	}
	return c
}

// seed draws a number for a random source of another goroutine.
func (e *era) seed() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.random.Uint64()
}

func (e *era) watch(w *watcher) {
	w.c, w.witness, w.states, w.random = e.c, e.witness, e.crowd.states, rand.New(rand.NewPCG(e.seed(), 1))
	w.void = map[string]bool{}
	if w.folds == nil {
		w.folds = map[string]*loquat.Fold{}
	}
	e.mu.Lock()
	e.watchers = append(e.watchers, w)
	e.mu.Unlock()
	e.running.Go(func() {
		if err := w.follow(e.ctx); err != nil {
			e.t.Error(err)
		}
	})
}

// run kills so many servers of the directory, one after the other.
func (e *era) run(rounds int) {
	defer e.running.Wait()
	defer e.stop()
	defer e.door.shut()
	e.watch(&watcher{name: "poller of everything"})
	e.watch(&watcher{name: "stream of everything", stream: true})
	for range users {
		u := user{e.crowd, rand.New(rand.NewPCG(e.seed(), 2))}
		e.running.Go(func() { u.run(e.ctx) })
	}
	for i := 1; i <= rounds && !e.t.Failed(); i++ {
		e.round()
		if i%roundsPerAudit == 0 || i == rounds || e.t.Failed() { // an audit says more of a failure
			e.calmly(e.audit)
		}
	}
	e.account()
}

func (e *era) account() {
	for kind, n := range e.crowd.promises.counts() {
		e.total.acknowledged[kind] += n
	}
	e.total.requests += len(e.ended)
	e.total.seen += e.witness.delivered()
	e.total.states += e.crowd.states.count()
}

// round starts a server and kills it.
func (e *era) round() {
	e.total.rounds++
	way := []string{"at random", "before a commit", "after a commit", "at random", "before a commit", "after a commit", "at its start", "at its stop"}[e.seed()%8]
	e.total.kills[way]++
	switch way {
	case "at random":
		s := e.start("")
		e.serve(s)
		time.Sleep(time.Duration(e.seed() % uint64(maxLife)))
		e.kill(s)
	case "at its start":
		s := e.start("")
		time.Sleep(time.Duration(e.seed() % uint64(maxLife/4)))
		e.kill(s)
	case "at its stop":
		s := e.start("")
		e.serve(s)
		time.Sleep(time.Duration(e.seed() % uint64(maxLife)))
		_ = s.Cmd.Process.Signal(syscall.SIGTERM)
		time.Sleep(time.Duration(e.seed() % uint64(maxLife/2)))
		e.kill(s)
	default:
		point, _, _ := strings.Cut(way, " ")
		s := e.start(fmt.Sprintf("%s:%d", point, 1+e.seed()%maxCommits))
		e.serve(s) // it may die before it listens, of the commits that take up what was left
		select {
		case <-s.died:
		case <-time.After(crashPatience):
			e.t.Errorf("the server did not come to its crash point %s", point)
		}
		e.kill(s)
	}
}

// calmly runs fn while a server runs and nobody changes anything, and then kills the
// server.
func (e *era) calmly(fn func(context.Context)) {
	s := e.start("")
	e.current = s
	e.serve(s)
	if s.URL == "" {
		e.t.Errorf("the server does not start:\n%s", s.Log)
		return
	}
	e.crowd.gate.Lock()
	ctx, cancel := context.WithTimeout(e.ctx, crashPatience)
	fn(ctx)
	cancel()
	e.crowd.gate.Unlock()
	e.kill(s)
}

// mortal is a server that is about to die.
type mortal struct {
	*binary.Process
	died chan struct{} // closed when it is dead
}

func (e *era) start(crashAt string) *mortal {
	p, err := binary.Launch(e.program, []string{"LOQUAT_CRASH_AT=" + crashAt}, e.args...)
	if err != nil {
		e.t.Fatal(err)
	}
	s := &mortal{Process: p, died: make(chan struct{})}
	e.t.Cleanup(func() { e.bury(s) })
	go func() {
		defer close(s.died)
		_ = p.Cmd.Wait() // how it ended is known
	}()
	return s
}

// serve lets clients in when the server listens. It may die before.
func (e *era) serve(s *mortal) {
	listens := make(chan error, 1)
	go func() { listens <- s.Listening() }()
	select {
	case err := <-listens:
		if err == nil {
			e.door.open(s.URL)
		}
	case <-s.died:
		<-listens
	}
}

func (e *era) kill(s *mortal) {
	e.door.shut()
	e.bury(s)
	for _, sign := range []string{"panic:", "level=ERROR", "fatal error:", "DATA RACE"} {
		if strings.Contains(s.Log.String(), sign) {
			e.t.Errorf("the server says:\n%s", s.Log)
		}
	}
}

func (e *era) bury(s *mortal) {
	select {
	case <-s.died:
	default:
		_ = s.Cmd.Process.Kill()
		<-s.died
	}
}

// door leads clients to the server of the moment; while there is none they wait.
type door struct {
	mu      sync.Mutex
	changed chan struct{} // closed when at changes
	at      string        // host and port; "" is nowhere
}

func newDoor() *door { return &door{changed: make(chan struct{})} }

func (d *door) open(serverURL string) { d.set(strings.TrimPrefix(serverURL, "http://")) }
func (d *door) shut()                 { d.set("") }

func (d *door) set(at string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = at
	close(d.changed)
	d.changed = make(chan struct{})
}

// find waits for a server.
func (d *door) find(ctx context.Context) (string, error) {
	for {
		d.mu.Lock()
		at, changed := d.at, d.changed
		d.mu.Unlock()
		if at != "" {
			return at, nil
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-changed:
		}
	}
}

// transport sends requests through the door.
func (d *door) transport() http.RoundTripper {
	return roundTripper{d, &http.Transport{MaxIdleConnsPerHost: 64}}
}

type roundTripper struct {
	door *door
	next *http.Transport
}

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	at, err := r.door.find(req.Context())
	if err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.URL = &url.URL{Scheme: "http", Host: at, Path: req.URL.Path, RawQuery: req.URL.RawQuery}
	req.Host = at
	return r.next.RoundTrip(req)
}

// audit holds everything that was promised and seen against what the server says now.
func (e *era) audit(ctx context.Context) {
	e.total.audits++
	if err := e.settle(ctx); err != nil {
		_ = e.current.Cmd.Process.Signal(syscall.SIGQUIT) // prints the goroutines, which shows where the server hangs
		select {
		case <-e.current.died:
		case <-time.After(crashPatience):
		}
		e.t.Errorf("%v; the server says:\n%s", err, e.current.Log)
		return
	}
	t, err := e.read(ctx)
	if err != nil {
		e.t.Errorf("read the log: %v", err)
		return
	}
	faults := t.check()
	faults = append(faults, e.witness.missing(t)...)
	for _, event := range t.log {
		faults = append(faults, e.witness.see(event))
	}
	faults = append(faults, e.crowd.promises.check(t)...)
	faults = append(faults, e.crowd.states.check(t)...)
	faults = append(faults, e.crowd.onlyOnce(t)...)
	e.mu.Lock()
	watchers := slices.Clone(e.watchers)
	e.mu.Unlock()
	for _, w := range watchers {
		n, wrong := w.compare(ctx, t)
		e.total.folds += n
		faults = append(faults, wrong...)
	}
	for i, fault := range slices.DeleteFunc(faults, func(err error) bool { return err == nil }) {
		if i < 20 { // one loss shows in many ways
			e.t.Error(fault)
		}
	}
}

// settle waits until nothing runs.
func (e *era) settle(ctx context.Context) error {
	var busy []string
	for {
		list, err := e.c.Sessions(ctx, 200, "")
		if err != nil {
			return fmt.Errorf("list sessions, of which %v were busy: %w", busy, err)
		}
		busy = nil
		for _, s := range list.Sessions {
			if s.ActiveRequestID != "" {
				busy = append(busy, s.ActiveRequestID)
			}
		}
		if len(busy) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("requests run for ever: %v", busy)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// read reads the log from its beginning, and all sessions and requests in it.
func (e *era) read(ctx context.Context) (*truth, error) {
	var log []loquat.Event
	for at := loquat.EventID(0); ; {
		w, err := e.c.Events(ctx, client.Query{Since: &at, OmitSession: true, Limit: 5000})
		if err != nil {
			return nil, err
		}
		if len(w.Events) == 0 {
			break
		}
		log = append(log, w.Events...)
		at = log[len(log)-1].EventID
	}
	t := newTruth(log)
	for id, events := range t.bySession {
		if t.deleted(id) {
			if !e.crowd.wasDeleting(id) {
				return nil, fmt.Errorf("session %s was deleted by nobody", id)
			}
			continue
		}
		var err error
		if events[0].Session, err = e.sessionAtFirst(ctx, events[0]); err != nil {
			return nil, err
		}
		if t.sessions[id], err = e.c.Session(ctx, id); err != nil {
			return nil, err
		}
	}
	for id, events := range t.byRequest {
		if t.deleted(events[0].SessionID) {
			continue
		}
		q, known := e.ended[id]
		if !known {
			var err error
			if q, err = e.c.Request(ctx, id); err != nil {
				return nil, err
			}
		}
		t.requests[id], e.ended[id] = q, q
	}
	return t, nil
}

// sessionAtFirst returns the session within the event that created it.
func (e *era) sessionAtFirst(ctx context.Context, created loquat.Event) (*loquat.Session, error) {
	if s := e.initial[created.SessionID]; s != nil {
		return s, nil
	}
	before := created.EventID - 1
	w, err := e.c.Events(ctx, client.Query{Since: &before, SessionID: created.SessionID, Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(w.Events) != 1 || w.Events[0].Session == nil {
		return nil, fmt.Errorf("%s comes without its session", describe(created))
	}
	e.initial[created.SessionID] = w.Events[0].Session
	return w.Events[0].Session, nil
}

func (c *crowd) wasDeleting(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deleting[id]
}

// onlyOnce fails if the log holds a change twice, acknowledged or not. Each change has a
// unique text.
func (c *crowd) onlyOnce(t *truth) (faults []error) {
	first := map[string]loquat.EventID{}
	for _, e := range t.log {
		if e.Type != loquat.MessageAppended && e.Type != loquat.MessageModified {
			continue
		}
		if before, ok := first[*e.Content]; ok {
			faults = append(faults, fmt.Errorf("%q was done twice, by events %s and %s", *e.Content, before, e.EventID))
		}
		first[*e.Content] = e.EventID
	}
	return faults
}
