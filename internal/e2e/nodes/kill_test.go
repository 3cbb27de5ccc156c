//go:build unix

package nodes_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/e2e/audit"
	"loquat/internal/e2e/binary"
)

// The sizes of a run. LOQUAT_NODES_SECONDS is its duration, LOQUAT_NODES_STREAMS the number of
// replies that stream at a time, LOQUAT_NODES_KILL_SECONDS the pause between two kills.
const (
	killSeconds    = 40
	killStreams    = 40
	killPause      = 5
	killUsers      = 6
	killSessions   = 5
	secondsPerLoad = 100 // after which other sessions take their place, because the clients remember all that they saw
)

// Nodes that die at any instant lose nothing that was acknowledged and nothing that anybody
// saw. Every request ends once, those of a dead node within takeover, and every follower ends
// with what is stored.
func TestKilledNodes(t *testing.T) {
	seconds := time.Duration(binary.Number(t, "LOQUAT_NODES_SECONDS", killSeconds)) * time.Second
	streams := binary.Number(t, "LOQUAT_NODES_STREAMS", killStreams)
	if testing.Short() {
		seconds, streams = min(seconds, 20*time.Second), min(streams, 20)
	}
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("LOQUAT_NODES_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("LOQUAT_NODES_SEED: %v", err)
		}
	}
	t.Logf("LOQUAT_NODES_SEED=%d", seed)
	backend := binary.Start(t, nil, "backend", "--listen", "127.0.0.1:0")
	n := binary.StartNodes(t, binary.NodesOptions{Count: 3, Config: configFor(backend.URL)})
	r := &killRun{t: t, nodes: n, random: rand.New(rand.NewPCG(seed, 0)), db: connect(t, n.Database),
		pause: time.Duration(binary.Number(t, "LOQUAT_NODES_KILL_SECONDS", killPause)) * time.Second}
	r.c = n.Client()
	for began := time.Now(); time.Since(began) < seconds && !t.Failed(); {
		r.load(streams, min(seconds-time.Since(began), secondsPerLoad*time.Second))
	}
	n.CheckLogs()
	t.Logf("%d kills, %d nodes stayed dead until the end of their lease; %d requests of dead nodes, the last one ended after %s; %s",
		r.kills, r.buried, r.orphans, r.longest.Round(10*time.Millisecond), &r.tally)
	if r.kills == 0 || r.buried == 0 {
		t.Error("no node was killed")
	}
}

// killRun kills nodes under load.
type killRun struct {
	t      *testing.T
	nodes  *binary.Nodes
	c      *client.Client
	db     database
	random *rand.Rand
	pause  time.Duration // between two kills

	kills, buried, orphans int
	longest                time.Duration // until the requests of a dead node had ended
	tally                  audit.Tally
}

// load runs clients for a while and kills nodes, then compares what they were promised and saw
// with what is stored.
func (r *killRun) load(streams int, duration time.Duration) {
	at, err := r.c.Events(r.t.Context(), client.Query{})
	if err != nil {
		r.t.Fatal(err)
	}
	l := audit.New(r.t.Context(), audit.Options{
		Client: r.c, Random: rand.New(rand.NewPCG(r.random.Uint64(), 0)), From: at.LatestEventID,
		Sessions: killSessions, Users: killUsers, Streams: streams, Fault: func(err error) { r.t.Error(err) },
	})
	defer l.Stop()
	l.Run()
	for began := time.Now(); time.Since(began) < duration && !r.t.Failed(); {
		time.Sleep(r.pause/2 + rand.N(r.pause))
		r.kill()
	}
	r.nodes.AwaitUp()
	l.Pause(func() { r.audit(l) })
	l.Stop()
	r.settle(l) // the followers of the next load would see the rest of these requests alone
	r.tally.Add(l)
	if os.Getenv("LOQUAT_NODES_SECONDS") != "" {
		fmt.Printf("%d kills; %s\n", r.kills, &r.tally) // as it goes, not at the end
	}
}

// kill kills a node. Half of the nodes start again at once; the others stay dead until their
// requests have ended elsewhere.
func (r *killRun) kill() {
	r.kills++
	node := r.nodes.List[r.random.IntN(len(r.nodes.List))]
	id := node.ID()
	if r.random.IntN(8) == 0 { // dies while it stops
		_ = node.Cmd.Process.Signal(syscall.SIGTERM)
		time.Sleep(rand.N(500 * time.Millisecond))
	}
	node.Process.Kill(r.t)
	died := time.Now()
	orphans := r.db.runningOn(id)
	r.orphans += len(orphans)
	if r.kills%2 == 1 {
		r.buried++
		r.longest = max(r.longest, r.db.awaitEnds(died, orphans))
		node.Start()
		return
	}
	time.Sleep(rand.N(time.Second))
	node.Start()
	r.longest = max(r.longest, r.db.awaitEnds(died, orphans))
}

// settle waits until no request runs.
func (r *killRun) settle(l *audit.Load) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*patience)
	defer cancel()
	if err := l.Settle(ctx); err != nil {
		r.t.Fatal(err)
	}
}

func (r *killRun) audit(l *audit.Load) {
	r.tally.Audits++
	r.settle(l)
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*patience)
	defer cancel()
	for i, fault := range l.Audit(ctx) {
		if i < 20 { // one loss shows in many ways
			r.t.Error(fault)
		}
	}
}

// A node that is paused for longer than its lease finds that others have ended its requests. It
// writes nothing to them and goes on as a node.
func TestPausedNode(t *testing.T) {
	t.Parallel()
	const requests = 10
	pause := time.Duration(binary.Number(t, "LOQUAT_NODES_PAUSE_SECONDS", 20)) * time.Second
	backend := binary.Start(t, nil, "backend", "--listen", "127.0.0.1:0")
	n := binary.StartNodes(t, binary.NodesOptions{Count: 3, Config: configFor(backend.URL)})
	ctx, db := t.Context(), connect(t, n.Database)
	paused, other := n.List[0], n.List[1].Client()
	var sessions, running []string
	for i := range requests {
		// A reply of words, and silence now and then so that some workers wait when they go on.
		s := create(ctx, t, other, scripted(map[string]any{"rate": 5, "chunks": 2000}, fmt.Sprint("word", i, " ")))
		sessions = append(sessions, s)
		running = append(running, send(ctx, t, paused.Client(), s, "go on"))
	}
	time.Sleep(time.Second) // some text is there
	paused.Pause()
	stopped := time.Now()
	took := db.awaitEnds(stopped, running)
	t.Logf("%d requests ended %s after the pause began", requests, took.Round(10*time.Millisecond))
	last := map[string]string{}
	for _, id := range running {
		events := eventsOf(ctx, t, other, id)
		if end := events[len(events)-1]; end.Type != loquat.RequestCompleted || end.EventID == 0 {
			t.Errorf("request %s ends with %s", id, end.Type)
		}
		last[id] = asJSON(t, events[len(events)-1])
	}
	// Others take the sessions over meanwhile.
	for _, s := range sessions[:requests/2] {
		id := send(ctx, t, other, s, "and now?")
		if _, err := other.Cancel(ctx, id); err != nil {
			t.Fatal(err)
		}
		ended(ctx, t, other, id)
	}
	time.Sleep(time.Until(stopped.Add(pause)))
	paused.Resume()
	time.Sleep(5 * time.Second) // whatever it tries to write would be there
	for _, id := range running {
		events := eventsOf(ctx, t, other, id)
		if now := asJSON(t, events[len(events)-1]); now != last[id] {
			t.Errorf("after its end request %s got %s", id, now)
		}
	}
	n.AwaitUp()
	id := send(ctx, t, paused.Client(), create(ctx, t, paused.Client(), scripted(map[string]any{"rate": 0, "chunks": 3}, "x ")), "hi")
	if q := ended(ctx, t, other, id); q.Status != loquat.StatusCompleted {
		t.Errorf("a request at the node that was paused: %+v", q)
	}
	// When it finds that its lease is old, it closes its connections, and what it was asking the
	// database when it was paused is past its deadline.
	paused.CheckLog("use of closed network connection", "driver: bad connection", "context deadline exceeded")
	for _, node := range n.List[1:] {
		node.CheckLog()
	}
}
