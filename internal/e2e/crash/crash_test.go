package crash_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"loquat/internal/client"
	"loquat/internal/e2e/audit"
	"loquat/internal/e2e/binary"
)

// The sizes of a crash run.
const (
	crashRounds      = 20 // kills, unless LOQUAT_CRASH_ROUNDS says otherwise
	crashRoundsShort = 6
	roundsPerDir     = 50 // kills on one data directory
	roundsPerAudit   = 5
	users            = 8
	sessions         = 5                      // about
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
	total := tally{kills: map[string]int{}}
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
	usual := crashRounds
	if testing.Short() {
		usual = crashRoundsShort
	}
	return binary.Number(t, "LOQUAT_CRASH_ROUNDS", usual)
}

// tally counts what a run did.
type tally struct {
	audit.Tally
	rounds int
	kills  map[string]int
}

func (n *tally) String() string {
	return fmt.Sprintf("%d kills (%s); %s", n.rounds, audit.Counts(n.kills), &n.Tally)
}

// era is the life of one data directory, through many servers.
type era struct {
	t       *testing.T
	program string
	args    []string
	total   *tally

	current *mortal // while there is calm
	door    *door
	load    *audit.Load
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
		t: t, program: program, total: total, door: newDoor(),
		args: []string{"serve", "--config", cfg, "--listen", "127.0.0.1:0", "--data", filepath.Join(dir, "data")},
	}
	c, err := client.New("http://127.0.0.1", client.Options{HTTPClient: &http.Client{Transport: e.door.transport()}})
	if err != nil {
		t.Fatal(err)
	}
	e.load = audit.New(t.Context(), audit.Options{Client: c, Random: random, Sessions: sessions, Users: users, Fault: func(err error) { t.Error(err) }})
	return e
}

// run kills so many servers of the directory, one after the other.
func (e *era) run(rounds int) {
	defer e.load.Stop()
	defer e.door.shut()
	e.load.Run()
	for i := 1; i <= rounds && !e.t.Failed(); i++ {
		e.round()
		if i%roundsPerAudit == 0 || i == rounds || e.t.Failed() { // an audit says more of a failure
			e.calmly(e.audit)
		}
	}
	e.total.Add(e.load)
}

// round starts a server and kills it.
func (e *era) round() {
	e.total.rounds++
	way := []string{"at random", "before a commit", "after a commit", "at random", "before a commit", "after a commit", "at its start", "at its stop"}[e.load.Seed()%8]
	e.total.kills[way]++
	switch way {
	case "at random":
		s := e.start("")
		e.serve(s)
		time.Sleep(time.Duration(e.load.Seed() % uint64(maxLife)))
		e.kill(s)
	case "at its start":
		s := e.start("")
		time.Sleep(time.Duration(e.load.Seed() % uint64(maxLife/4)))
		e.kill(s)
	case "at its stop":
		s := e.start("")
		e.serve(s)
		time.Sleep(time.Duration(e.load.Seed() % uint64(maxLife)))
		_ = s.Cmd.Process.Signal(syscall.SIGTERM)
		time.Sleep(time.Duration(e.load.Seed() % uint64(maxLife/2)))
		e.kill(s)
	default:
		point, _, _ := strings.Cut(way, " ")
		s := e.start(fmt.Sprintf("%s:%d", point, 1+e.load.Seed()%maxCommits))
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
	e.load.Pause(func() {
		ctx, cancel := context.WithTimeout(e.t.Context(), crashPatience)
		defer cancel()
		fn(ctx)
	})
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

// audit compares everything that was promised and seen with what the server says now.
func (e *era) audit(ctx context.Context) {
	e.total.Audits++
	if err := e.load.Settle(ctx); err != nil {
		_ = e.current.Cmd.Process.Signal(syscall.SIGQUIT) // prints the goroutines, which shows where the server hangs
		select {
		case <-e.current.died:
		case <-time.After(crashPatience):
		}
		e.t.Errorf("%v; the server says:\n%s", err, e.current.Log)
		return
	}
	for i, fault := range e.load.Audit(ctx) {
		if i < 20 { // one loss shows in many ways
			e.t.Error(fault)
		}
	}
}
