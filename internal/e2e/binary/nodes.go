//go:build unix

package binary

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/store/postgres/pgtest"
)

// Nodes are servers that share the sessions in one PostgreSQL database, with a load balancer in
// front of them.
type Nodes struct {
	*Balancer
	List     []*Node
	Database string // URL
	Server   *pgtest.Server

	t *testing.T
}

// NodesOptions configure Nodes.
type NodesOptions struct {
	Count   int
	Config  string           // JSON of the configuration, without store
	Store   map[string]any   // further keys of store
	Program string           // "" means Path
	Env     map[int][]string // of single nodes
	// NodeStore changes the keys of store for one node. It may be nil.
	NodeStore func(node int, store map[string]any)
}

// Node is one of Nodes. It keeps its data directory and its address when it is started again.
type Node struct {
	*Process
	Address string
	Dir     string

	t       *testing.T
	program string
	env     []string
	args    []string
}

// StartNodes starts a PostgreSQL server with a new database, the nodes and the load balancer. It
// skips the test where PostgreSQL is not installed.
func StartNodes(t *testing.T, opts NodesOptions) *Nodes {
	t.Helper()
	server := pgtest.Start(t, "max_connections=200", "fsync=off")
	_, url := server.Database(t)
	n := StartNodesOn(t, url, opts)
	n.Server = server
	return n
}

// StartNodesOn is StartNodes on a database that exists.
func StartNodesOn(t *testing.T, database string, opts NodesOptions) *Nodes {
	t.Helper()
	n := &Nodes{t: t, Database: database}
	var addresses []string
	for i := range opts.Count {
		node := n.newNode(i, opts)
		addresses = append(addresses, node.Address)
		node.Start()
	}
	n.Balancer = startBalancer(t, addresses...)
	return n
}

func (n *Nodes) newNode(i int, opts NodesOptions) *Node {
	n.t.Helper()
	program := opts.Program
	if program == "" {
		var err error
		if program, err = Path(); err != nil {
			n.t.Fatal(err)
		}
	}
	var config map[string]json.RawMessage
	if err := json.Unmarshal([]byte(opts.Config), &config); err != nil {
		n.t.Fatal(err)
	}
	settings := map[string]any{"url": n.Database}
	for key, value := range opts.Store {
		settings[key] = value
	}
	if opts.NodeStore != nil {
		opts.NodeStore(i, settings)
	}
	config["store"] = MustJSON(n.t, settings)
	dir := filepath.Join(n.t.TempDir(), "node"+strconv.Itoa(i))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		n.t.Fatal(err)
	}
	WriteFiles(n.t, dir, map[string]string{"loquat.json": string(MustJSON(n.t, config))})
	node := &Node{
		t: n.t, Address: FreeAddress(n.t), Dir: filepath.Join(dir, "data"), program: program, env: opts.Env[i],
	}
	node.args = []string{"serve", "--config", filepath.Join(dir, "loquat.json"), "--listen", node.Address, "--data", node.Dir}
	n.List = append(n.List, node)
	return node
}

// Start starts a node that does not run, and waits until it listens.
func (n *Node) Start() {
	n.t.Helper()
	p, err := Launch(n.program, n.env, n.args...)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { p.End(n.t) })
	n.Process = p
	if err := p.Listening(); err != nil {
		n.t.Fatal(err)
	}
}

// Pause stops a node's process as a machine that hangs would, and Resume lets it go on.
func (n *Node) Pause() {
	n.t.Helper()
	n.signal(syscall.SIGSTOP)
}

// Resume ends Pause.
func (n *Node) Resume() {
	n.t.Helper()
	n.signal(syscall.SIGCONT)
}

func (n *Node) signal(s syscall.Signal) {
	n.t.Helper()
	if err := n.Cmd.Process.Signal(s); err != nil {
		n.t.Fatal(err)
	}
}

// ID returns the node_id of a node, which has to run.
func (n *Node) ID() string {
	n.t.Helper()
	var list loquat.NodeList
	_, body := GetOnce(n.t, "http://"+n.Address+"/nodes")
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		n.t.Fatal(err)
	}
	for _, one := range list.Nodes {
		if one.Self {
			return one.NodeID
		}
	}
	n.t.Fatalf("the nodes are %s", body)
	return ""
}

// Client returns a client of one node.
func (n *Node) Client() *client.Client { return NewClient(n.t, "http://"+n.Address) }

// Client returns a client of the load balancer.
func (n *Nodes) Client() *client.Client { return NewClient(n.t, n.URL) }

// AwaitUp waits until the load balancer sends calls to all nodes.
func (n *Nodes) AwaitUp() {
	n.t.Helper()
	for range 300 {
		if n.Up() == len(n.List) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	n.t.Fatalf("%d of %d nodes are up", n.Up(), len(n.List))
}

// CheckLogs fails the test if a node's log has one of the signs of a fault, or a line of level
// ERROR that has none of the expected texts.
func (n *Nodes) CheckLogs(expected ...string) {
	n.t.Helper()
	for _, node := range n.List {
		node.CheckLog(expected...)
	}
}

// CheckLog checks the log of one node as [Nodes.CheckLogs] does.
func (n *Node) CheckLog(expected ...string) {
	n.t.Helper()
	for line := range strings.Lines(n.Log.String()) {
		bad := strings.Contains(line, "panic:") || strings.Contains(line, "fatal error:") || strings.Contains(line, "DATA RACE") || strings.Contains(line, "level=ERROR")
		if bad && !slices.ContainsFunc(expected, func(text string) bool { return strings.Contains(line, text) }) {
			n.t.Errorf("the node at %s says: %s", n.Address, line)
		}
	}
}
