//go:build unix

// Package failover_test lets the primary of a PostgreSQL cluster fail while servers use it.
package failover_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"loquat/internal/backend"
	"loquat/internal/client"
	"loquat/internal/e2e/audit"
	"loquat/internal/e2e/binary"
	"loquat/internal/store/postgres/pgtest"
)

const (
	patience = 90 * time.Second // for whatever has to happen
	backIn   = 10 * time.Second // within which changes must succeed after the promotion
)

// shared is the cluster of all tests of this package.
var shared struct {
	sync.Mutex
	cluster *pgtest.Cluster
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.cluster != nil {
		shared.cluster.Stop()
	}
	os.Exit(code)
}

func cluster(t *testing.T) *pgtest.Cluster {
	t.Helper()
	pgtest.ClusterPrograms(t)
	shared.Lock()
	defer shared.Unlock()
	if shared.cluster == nil {
		began := time.Now()
		c, err := pgtest.StartCluster()
		if err != nil {
			t.Fatal(err)
		}
		shared.cluster = c
		t.Logf("the cluster started within %s", time.Since(began).Round(time.Millisecond))
	}
	return shared.cluster
}

// fault is a way in which a primary fails.
type fault struct {
	name    string
	strike  func(*pgtest.Member) error
	heal    func(*pgtest.Member) error
	inPlace bool // Patroni starts the primary again, without a promotion
}

var faults = []fault{
	{name: "the machine of the primary is killed", strike: (*pgtest.Member).Kill, heal: (*pgtest.Member).Start},
	{name: "the primary is paused", strike: (*pgtest.Member).Pause, heal: (*pgtest.Member).Resume},
	{
		name:   "the primary is cut off from etcd",
		strike: func(m *pgtest.Member) error { m.EtcdLink.Block(); return nil },
		heal:   func(m *pgtest.Member) error { m.EtcdLink.Unblock(); return nil },
	},
	{name: "PostgreSQL is killed", strike: (*pgtest.Member).KillServer, heal: func(*pgtest.Member) error { return nil }, inPlace: true},
}

// failovers returns how many failovers to make: LOQUAT_FAILOVERS. They take too long for every
// run of all tests.
func failovers(t *testing.T) int {
	t.Helper()
	n := binary.Number(t, "LOQUAT_FAILOVERS", 0)
	if n == 0 {
		t.Skip("skipped: make failover runs it")
	}
	return n
}

// With a synchronous standby nothing that was acknowledged is lost and no id is given twice,
// however the primary fails. Changes succeed again within seconds of the promotion, and clients
// resume by themselves.
func TestSynchronousFailover(t *testing.T) {
	rounds := failovers(t)
	c := cluster(t)
	n := startNodes(t, c)
	load := audit.New(t.Context(), audit.Options{
		Client: n.client(t), Random: rand.New(rand.NewPCG(1, 2)), Sessions: 6, Users: 6, Streams: 12,
		Fault: func(err error) { t.Error(err) },
	})
	defer load.Stop()
	load.Run()
	for i := range rounds {
		f := faults[i%len(faults)]
		t.Run(fmt.Sprintf("%d %s", i+1, f.name), func(t *testing.T) { n.failover(t, f, load) })
		if t.Failed() {
			n.logs(t)
			return
		}
	}
	var tally audit.Tally
	tally.Add(load)
	t.Log(&tally)
}

// failover lets the primary fail, and checks what clients see.
func (n *nodes) failover(t *testing.T, f fault, load *audit.Load) {
	if err := n.cluster.Await(patience, true); err != nil {
		t.Fatal(err)
	}
	primary, err := n.cluster.Primary()
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second) // of load
	stop := n.probe(t)
	began := time.Now()
	if err := f.strike(primary); err != nil {
		t.Fatal(err)
	}
	promoted := awaitPromotion(t, primary, f.inPlace)
	took := promoted.Sub(began)
	for _, p := range n.probes {
		p.awaitSuccess(t, promoted)
	}
	time.Sleep(2 * time.Second) // of load
	if err := f.heal(primary); err != nil {
		t.Fatal(err)
	}
	for _, p := range stop() {
		p.check(t, began, promoted, f)
	}
	t.Logf("promotion after %s", took.Round(100*time.Millisecond))
	if err := n.cluster.Await(patience, true); err != nil {
		t.Fatal(err)
	}
	n.audit(t, load)
}

// awaitPromotion returns when the other member became the primary, or when this one did again.
func awaitPromotion(t *testing.T, failed *pgtest.Member, inPlace bool) time.Time {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if failed.Other().IsPrimary() || inPlace && failed.AcceptsWrites() {
			return time.Now()
		}
	}
	t.Fatal("no server was promoted")
	return time.Time{}
}

// HAProxy leads to the primary only, also before its first checks.
func TestHAProxyLeadsToThePrimary(t *testing.T) {
	failovers(t)
	c := cluster(t)
	for i := range 5 {
		t.Run(fmt.Sprint(i+1), func(t *testing.T) { c.StartHAProxy(t) })
	}
}

func (n *nodes) audit(t *testing.T, load *audit.Load) {
	t.Helper()
	load.Pause(func() {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := load.Settle(ctx); err != nil {
			t.Error(err)
			return
		}
		for i, fault := range load.Audit(ctx) {
			if i < 20 { // one loss shows in many ways
				t.Error(fault)
			}
		}
	})
}

// nodes are the servers that use the cluster.
type nodes struct {
	cluster  *pgtest.Cluster
	database string
	servers  []*binary.Process
	probes   []*probe
}

// startNodes starts three nodes. Two connect to the cluster by the addresses of both database
// servers, and one through HAProxy.
func startNodes(t *testing.T, c *pgtest.Cluster) *nodes {
	t.Helper()
	database, err := c.Database()
	if err != nil {
		t.Fatal(err)
	}
	model := binary.ScriptedBackend(t, backend.Options{})
	n := &nodes{cluster: c, database: database}
	for _, url := range []string{c.URL(database), c.URL(database), c.URL(database, c.StartHAProxy(t))} {
		n.servers = append(n.servers, startNode(t, url, model))
	}
	return n
}

// logs logs what the nodes and the cluster wrote. A node that hangs shows where.
func (n *nodes) logs(t *testing.T) {
	t.Helper()
	for _, p := range n.servers {
		_ = p.Cmd.Process.Signal(syscall.SIGQUIT)
		_ = p.Cmd.Wait() // it was killed
		t.Logf("%s:\n%s", p.URL, p.Log)
	}
	t.Log(n.cluster.Logs())
}

// client returns a client whose calls go to any node.
func (n *nodes) client(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.New(n.servers[0].URL, client.Options{HTTPClient: &http.Client{Transport: anyNode{n, &http.Transport{MaxIdleConnsPerHost: 64}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// anyNode sends each request to a node at random.
type anyNode struct {
	n    *nodes
	next *http.Transport
}

func (a anyNode) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	server := a.n.servers[rand.IntN(len(a.n.servers))]
	req.URL.Host = strings.TrimPrefix(server.URL, "http://")
	req.Host = req.URL.Host
	return a.next.RoundTrip(req)
}

func (a anyNode) CloseIdleConnections() { a.next.CloseIdleConnections() }
