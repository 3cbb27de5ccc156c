//go:build unix

// Package together_test runs everything at once: users, every API, plugins, push, webhooks, search, imports,
// exports and backups, while all that the server depends on is killed and the network has faults.
package together_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"loquat/internal/e2e/binary"
)

// The sizes of a run.
const (
	actSeconds = 90 // after which everything comes to rest and is checked, because clients remember all that they saw
	nodeCount  = 3
	patience   = 10 * time.Minute // for whatever has to happen once nothing fails any more
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && strings.HasPrefix(os.Args[1], pluginMark) {
		runPlugin()
		return
	}
	os.Exit(m.Run())
}

// pluginMark begins the only argument of the test program when it is a plugin.
const pluginMark = "plugin-of-"

// number is the argument of the plugin's tool and of its action.
type number struct {
	N int `json:"n"`
}

// doubled is the result of the plugin's action.
type doubled struct {
	Doubled int `json:"doubled"`
}

// runPlugin serves a plugin with a tool, an action and a setting on standard input and output.
func runPlugin() {
	server := mcp.NewServer(&mcp.Implementation{Name: "numbers", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "double"}, func(ctx context.Context, req *mcp.CallToolRequest, in number) (*mcp.CallToolResult, any, error) {
		for step := range 3 {
			if token := req.Params.GetProgressToken(); token != nil {
				_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: float64(step + 1), Total: 3, Message: "step\n"})
			}
			time.Sleep(30 * time.Millisecond)
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: strconv.Itoa(2 * in.N)}}}, nil, nil
	})
	type action struct {
		Params number `json:"params"`
	}
	mcp.AddTool(server, &mcp.Tool{Name: "double_now", InputSchema: map[string]any{"type": "object"}}, func(_ context.Context, _ *mcp.CallToolRequest, in action) (*mcp.CallToolResult, doubled, error) {
		return nil, doubled{2 * in.Params.N}, nil
	})
	_ = server.Run(context.Background(), &mcp.StdioTransport{}) // it ends with its standard input
}

// Everything at once, for a while: users, each API, plugins, push, webhooks, searches, imports, exports and
// backups, while nodes, the database, the bridge, the backend, plugins and receivers are killed and every
// network has faults. When all has come to rest, the log proves that nothing was lost, nothing was done
// twice, nobody saw what belongs to others, and each part agrees with the log.
func TestTogether(t *testing.T) {
	if os.Getenv("LOQUAT_TOGETHER_SECONDS") == "" {
		t.Skip("make together runs this for as long as SECONDS says")
	}
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("LOQUAT_TOGETHER_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("LOQUAT_TOGETHER_SEED: %v", err)
		}
	}
	length := time.Duration(binary.Number(t, "LOQUAT_TOGETHER_SECONDS", 0)) * time.Second // of load
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		r := record(t)
		newRun(r, seed, length, embedded(r)).play()
	})
	t.Run("three nodes", func(t *testing.T) {
		t.Parallel()
		r := record(t)
		newRun(r, seed, length, threeNodes(r)).play()
	})
}

// programOf returns the program of the embedded server, built with the race detector. A short run uses the
// program without it, because building everything again takes longer than the run.
func programOf(t testing.TB) (path string, raced bool) {
	t.Helper()
	if testing.Short() {
		path, err := binary.Path()
		if err != nil {
			t.Fatal(err)
		}
		return path, false
	}
	path, err := binary.Build(filepath.Join(t.TempDir(), "loquat-race"), binary.RaceFlags...)
	if err != nil {
		t.Fatalf("build with the race detector, which needs a C compiler (-short does without): %v", err)
	}
	return path, true
}

// play runs acts until the time is over. In the last quarter no node is killed, so that memory and goroutines
// of these processes can be compared.
func (r *run) play() {
	ctx, cancel := context.WithTimeout(r.t.Context(), r.length+time.Duration(len(r.acts()))*2*patience)
	defer cancel()
	r.ctx = ctx
	r.open()
	var watch *memory
	for n, a := range r.acts() {
		if a.calm && watch == nil {
			watch = r.watchMemory()
		}
		r.act(n, a)
		if r.t.Failed() {
			break
		}
		if r.length > 2*actSeconds*time.Second {
			fmt.Printf("%s, act %d: %s\n", r.t.Name(), n+1, r) // as it goes, not at the end
		}
	}
	if watch != nil {
		watch.check()
	}
	if !r.t.Failed() {
		r.checkAll()
	}
	r.close()
	r.report()
}

// act is a part of a run.
type act struct {
	length time.Duration
	calm   bool // no node is killed
}

// acts divides the run.
func (r *run) acts() (list []act) {
	killed := r.length * 3 / 4
	for _, part := range []act{{killed, false}, {r.length - killed, true}} {
		for left := part.length; left > 0; left -= actSeconds * time.Second {
			list = append(list, act{min(left, actSeconds*time.Second), part.calm})
		}
	}
	return list
}
