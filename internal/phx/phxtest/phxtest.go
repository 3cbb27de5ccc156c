// Package phxtest runs the unmodified npm client of Phoenix Channels, in pinned versions, for
// tests of servers. On a machine without node or npm the tests are skipped.
package phxtest

import (
	"bufio"
	"crypto/sha256"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

//go:embed node
var sources embed.FS

// Packages are the npm packages of the installed clients.
var Packages = []string{"phoenix", "phoenix-1.7"}

var install = sync.OnceValues(func() (string, error) {
	sum := sha256.New()
	for _, name := range []string{"package-lock.json", "client.mjs"} {
		b, err := sources.ReadFile("node/" + name)
		if err != nil {
			return "", err
		}
		sum.Write(b)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "loquat-test", fmt.Sprintf("phoenix-%x", sum.Sum(nil)[:8]))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	files, err := fs.Sub(sources, "node")
	if err != nil {
		return "", err
	}
	if err := os.CopyFS(tmp, files); err != nil {
		return "", err
	}
	npm := exec.Command("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	npm.Dir = tmp
	if out, err := npm.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	if err := os.Rename(tmp, dir); err != nil {
		if _, other := os.Stat(dir); other == nil { // another test has installed it meanwhile
			return dir, nil
		}
		return "", err
	}
	return dir, nil
})

// Dir installs the clients, if necessary, and returns their directory. It skips the test if
// they cannot be installed.
func Dir(t testing.TB) string {
	t.Helper()
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed: the tests with the npm client are skipped", tool)
		}
	}
	dir, err := install()
	if err != nil {
		t.Skipf("the npm client cannot be installed: the tests with it are skipped: %v", err)
	}
	return dir
}

// Options configure a client.
type Options struct {
	URL       string `json:"url"` // of the endpoint, without /websocket
	Package   string `json:"package"`
	Vsn       string `json:"vsn"`
	Heartbeat int    `json:"heartbeat,omitempty"` // milliseconds
	Timeout   int    `json:"timeout,omitempty"`   // of pushes, milliseconds
	Whole     bool   `json:"whole"`               // report events with all fields
}

// Report is a line of the client's output: something that happened to the client.
type Report struct {
	Type     string          `json:"type"`
	Code     int             `json:"code"`
	Status   string          `json:"status"`
	Response json.RawMessage `json:"response"`
	Event    json.RawMessage `json:"event"`
}

// Client is a running client.
type Client struct {
	t       testing.TB
	in      *json.Encoder
	reports chan Report
	after   time.Duration
}

// Start runs a client until the end of the test.
func Start(t testing.TB, opts Options) *Client {
	t.Helper()
	dir := Dir(t)
	arg, err := json.Marshal(opts)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("node", "client.mjs", string(arg))
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &Client{t: t, in: json.NewEncoder(in), reports: make(chan Report, 1<<16), after: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(c.reports)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 64<<20)
		for lines.Scan() {
			var s Report
			if json.Unmarshal(lines.Bytes(), &s) == nil {
				c.reports <- s
			}
		}
	}()
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		for range c.reports { // unblocks the goroutine that reads the output
		}
		<-done
		_ = cmd.Wait() // fails because the process was killed
	})
	return c
}

// Do sends a command: join, push or leave.
func (c *Client) Do(what string, fields map[string]any) {
	c.t.Helper()
	command := map[string]any{"do": what}
	for k, v := range fields {
		command[k] = v
	}
	if err := c.in.Encode(command); err != nil {
		c.t.Fatalf("the client has ended: %v", err)
	}
}

// Join joins a topic. If params have no since_id, the client receives events from now on.
// With follow, the client resumes after its last event when it joins again.
func (c *Client) Join(topic string, params map[string]any, follow bool) {
	c.t.Helper()
	if params == nil {
		params = map[string]any{}
	}
	c.Do("join", map[string]any{"topic": topic, "params": params, "follow": follow})
}

// Next returns the next report.
func (c *Client) Next() Report {
	c.t.Helper()
	select {
	case s, ok := <-c.reports:
		if !ok {
			c.t.Fatal("the client has ended")
		}
		return s
	case <-time.After(c.after):
		c.t.Fatalf("the client reported nothing for %s", c.after)
	}
	return Report{}
}

// Until returns the next report of a type, and skips other reports.
func (c *Client) Until(kind string) Report {
	c.t.Helper()
	for {
		if s := c.Next(); s.Type == kind {
			return s
		}
	}
}

// EventID returns the id of the reported event.
func (s Report) EventID() string {
	var e struct {
		ID string `json:"event_id"`
	}
	_ = json.Unmarshal(s.Event, &e)
	return e.ID
}
