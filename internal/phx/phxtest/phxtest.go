// Package phxtest runs the unmodified npm client of Phoenix Channels, for tests of what
// it talks to. It promises the pinned versions of the client, and that a machine
// without node or npm skips instead of failing.
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

// Packages are the clients that there are.
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
		if _, other := os.Stat(dir); other == nil { // another test was quicker
			return dir, nil
		}
		return "", err
	}
	return dir, nil
})

// Dir is where the clients are installed. The test is skipped where that cannot be.
func Dir(t testing.TB) string {
	t.Helper()
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not there: nothing is held against the npm client", tool)
		}
	}
	dir, err := install()
	if err != nil {
		t.Skipf("the npm client cannot be installed, so nothing is held against it: %v", err)
	}
	return dir
}

// Options choose a client.
type Options struct {
	URL       string `json:"url"` // of the endpoint, without /websocket
	Package   string `json:"package"`
	Vsn       string `json:"vsn"`
	Heartbeat int    `json:"heartbeat,omitempty"` // milliseconds
	Timeout   int    `json:"timeout,omitempty"`   // of pushes, milliseconds
	Whole     bool   `json:"whole"`               // tell of events in full
}

// Said is what a client tells of.
type Said struct {
	Type     string          `json:"type"`
	Code     int             `json:"code"`
	Status   string          `json:"status"`
	Response json.RawMessage `json:"response"`
	Event    json.RawMessage `json:"event"`
}

// Client is a running client.
type Client struct {
	t     testing.TB
	in    *json.Encoder
	said  chan Said
	after time.Duration
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
	c := &Client{t: t, in: json.NewEncoder(in), said: make(chan Said, 1<<16), after: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(c.said)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 64<<20)
		for lines.Scan() {
			var s Said
			if json.Unmarshal(lines.Bytes(), &s) == nil {
				c.said <- s
			}
		}
	}()
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		for range c.said { // or it could not end
		}
		<-done
		_ = cmd.Wait() // it was killed
	})
	return c
}

// Do sends a command: join, push, leave.
func (c *Client) Do(what string, fields map[string]any) {
	c.t.Helper()
	command := map[string]any{"do": what}
	for k, v := range fields {
		command[k] = v
	}
	if err := c.in.Encode(command); err != nil {
		c.t.Fatalf("the client is gone: %v", err)
	}
}

// Join joins a topic. Params without since_id begin with what happens from now on; with
// follow, each further join goes on where the client is.
func (c *Client) Join(topic string, params map[string]any, follow bool) {
	c.t.Helper()
	if params == nil {
		params = map[string]any{}
	}
	c.Do("join", map[string]any{"topic": topic, "params": params, "follow": follow})
}

// Next is the next thing that the client tells of.
func (c *Client) Next() Said {
	c.t.Helper()
	select {
	case s, ok := <-c.said:
		if !ok {
			c.t.Fatal("the client has ended")
		}
		return s
	case <-time.After(c.after):
		c.t.Fatal("the client has nothing to tell")
	}
	return Said{}
}

// Until returns the next thing of a type, and skips what is not.
func (c *Client) Until(kind string) Said {
	c.t.Helper()
	for {
		if s := c.Next(); s.Type == kind {
			return s
		}
	}
}

// EventID is the id of the event that the client tells of.
func (s Said) EventID() string {
	var e struct {
		ID string `json:"event_id"`
	}
	_ = json.Unmarshal(s.Event, &e)
	return e.ID
}
