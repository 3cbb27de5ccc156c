//go:build unix

// Package network_test puts a faulty network between three nodes and their database, and between
// the nodes and their clients.
package network_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"loquat/internal/backend"
	"loquat/internal/client"
	"loquat/internal/e2e/audit"
	"loquat/internal/e2e/binary"
	"loquat/internal/faultproxy"
	"loquat/internal/store/postgres/pgtest"
)

const (
	nodeCount      = 3
	roundsPerAudit = 5
	patience       = 90 * time.Second // for whatever has to happen
)

// nodes are nodes with a faulty network on either side of each.
type nodes struct {
	*binary.Nodes
	t         *testing.T
	databases []*faultproxy.Proxy // between the nodes and the database
	clients   []*faultproxy.Proxy // between the clients and the nodes
	audits    int
}

// Connections that are cut, stalled and slow, at random and for seconds at a time, lose nothing
// that was acknowledged, and leave no request that never ends. Every client ends with the stored
// state.
func TestNetworkFaults(t *testing.T) {
	rounds := roundsWanted(t)
	n := startNodes(t)
	load := audit.New(t.Context(), audit.Options{
		Client: n.client(), Random: rand.New(rand.NewPCG(3, 4)), Sessions: 6, Users: 8, Streams: 6,
		Fault: func(err error) { t.Error(err) },
	})
	defer load.Stop()
	load.Run()
	kinds := map[string]int{}
	began := time.Now()
	for i := 1; i <= rounds && !t.Failed(); i++ {
		kinds[n.round()]++
		if i%roundsPerAudit == 0 || i == rounds {
			n.audit(load)
		}
	}
	n.CheckLogs("the store fails")
	tally := audit.Tally{Audits: n.audits}
	tally.Add(load)
	var total faultproxy.Stats
	for _, l := range slices.Concat(n.databases, n.clients) {
		s := l.Stats()
		total.Connections, total.Cuts, total.Stalls, total.Slowed = total.Connections+s.Connections, total.Cuts+s.Cuts, total.Stalls+s.Stalls, total.Slowed+s.Slowed
	}
	t.Logf("%s: %d rounds (%s); %+v; %s", time.Since(began).Round(time.Second), rounds, audit.Counts(kinds), total, &tally)
	if total.Cuts == 0 || total.Stalls == 0 || total.Slowed == 0 {
		t.Error("the network had no faults")
	}
}

func roundsWanted(t *testing.T) int {
	t.Helper()
	n := binary.Number(t, "LOQUAT_NETWORK_ROUNDS", 0)
	if n == 0 {
		t.Skip("skipped: make network runs it")
	}
	return n
}

func (n *nodes) newLink(target string, seed uint64, within int) *faultproxy.Proxy {
	n.t.Helper()
	proxy, err := faultproxy.Start(faultproxy.Options{
		Target: target, Seed: seed, Cut: 0.4, Stall: 0.3, Slow: 0.15, Within: within, StallFor: 2 * time.Second, Rate: 256 << 10,
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { proxy.Close() })
	return proxy
}

func startNodes(t *testing.T) *nodes {
	t.Helper()
	server := pgtest.Start(t, "fsync=off", "max_connections=200")
	port := fmt.Sprint(":", server.Port, "/")
	n := &nodes{t: t}
	n.Nodes = binary.StartNodesOn(t, server.URL("postgres"), binary.NodesOptions{
		Count: nodeCount,
		Config: fmt.Sprintf(`{"providers": {"main": {"provider": "reference_generic_compatible", "model": "demo", "base_url": "%s/v1", "timeout": 10,
			"retry_on_status": {"503": [0.02]}, "stream_recovery": {"mode": "aggressive", "max_retries": 1}}}, "limits": {"max_tool_rounds": 2}}`,
			binary.ScriptedBackend(t, backend.Options{})),
		Store: map[string]any{"statement_timeout_seconds": 5},
		NodeStore: func(i int, store map[string]any) {
			l := n.newLink(fmt.Sprintf("127.0.0.1:%d", server.Port), uint64(i), 1<<20)
			n.databases = append(n.databases, l)
			store["url"] = strings.Replace(server.URL("postgres"), port, ":"+portOf(l.Addr())+"/", 1)
		},
	})
	for i, node := range n.List {
		n.clients = append(n.clients, n.newLink(node.Address, uint64(i+nodeCount), 256<<10))
	}
	return n
}

func portOf(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

// round lets some links fall silent for a while, and returns which kind.
func (n *nodes) round() (kind string) {
	long := rand.IntN(10) == 0 // longer than a lease
	silent := time.Duration(100+rand.IntN(1500)) * time.Millisecond
	if long {
		silent = 12 * time.Second
	}
	var links []*faultproxy.Proxy
	switch rand.IntN(5) {
	case 0, 1:
		kind, links = "a database", n.databases[rand.IntN(nodeCount):][:1]
	case 2:
		kind, links = "all databases", n.databases
	case 3:
		kind, links = "the clients of a node", n.clients[rand.IntN(nodeCount):][:1]
	default:
		i := rand.IntN(nodeCount)
		kind, links = "both sides of a node", []*faultproxy.Proxy{n.databases[i], n.clients[i]}
	}
	if long {
		kind += ", for long"
	}
	for _, l := range links {
		l.Block()
	}
	time.Sleep(silent)
	for _, l := range links {
		l.Unblock()
	}
	time.Sleep(time.Second) // of load
	return kind
}

// client returns a client whose calls go to all nodes in turn. Its timeouts are those that a
// client of a faulty network has.
func (n *nodes) client() *client.Client {
	n.t.Helper()
	var routes []binary.Route
	for i, node := range n.List {
		routes = append(routes, binary.Route{Through: n.clients[i].Addr(), Server: node.Address})
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 64, ResponseHeaderTimeout: 15 * time.Second}
	c, err := client.New("http://127.0.0.1", client.Options{HTTPClient: &http.Client{Transport: binary.NewSpread(transport, routes...)}})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(c.CloseIdleConnections)
	return c
}

// audit compares everything that was promised and seen with what the nodes say, while nobody
// changes anything.
func (n *nodes) audit(load *audit.Load) {
	n.audits++
	load.Pause(func() {
		ctx, cancel := context.WithTimeout(n.t.Context(), patience)
		defer cancel()
		faults := load.Rest(ctx)
		for i, fault := range faults {
			if i < 20 { // one loss shows in many ways
				n.t.Error(fault)
			}
		}
		if len(faults) > 0 {
			for i, node := range n.List {
				n.t.Logf("node %d says:\n%s", i, node.Log)
			}
		}
	})
}
