//go:build unix

package upgrade_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
	"loquat/internal/store/postgres/pgtest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	pgtest.StopShared()
	os.Exit(code)
}

const schemaDir = "../../store/postgres/schema"

// schemaSteps is the number of steps of this program's schema.
func schemaSteps(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir(schemaDir)
	if err != nil || len(files) == 0 {
		t.Fatalf("%d steps, %v", len(files), err)
	}
	return len(files)
}

// buildWith builds this program with one more step of the schema.
func buildWith(t *testing.T, step string) (path string) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "step.sql")
	place, err := filepath.Abs(filepath.Join(schemaDir, "99_next.sql"))
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{place: file}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{file: step, filepath.Join(dir, "overlay.json"): string(overlay)} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path, err = binary.Build(filepath.Join(dir, "loquat"), "-overlay", filepath.Join(dir, "overlay.json"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// fleet is nodes of one database.
type fleet struct {
	t      *testing.T
	config string
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	_, url := pgtest.Shared(t).Database(t)
	config := filepath.Join(t.TempDir(), "loquat.json")
	if err := os.WriteFile(config, []byte(fmt.Sprintf(`{"store": {"url": %q}, "providers": {"main": {"provider": "reference_generic_compatible", "model": "m"}}}`, url)), 0o600); err != nil {
		t.Fatal(err)
	}
	return &fleet{t, config}
}

func (f *fleet) args(dir string) []string {
	return []string{"serve", "--demo", "--config", f.config, "--listen", "127.0.0.1:0", "--data", dir}
}

// start starts a program as a node.
func (f *fleet) start(program, dir string) (*binary.Process, *client.Client) {
	f.t.Helper()
	p, err := binary.Launch(program, nil, f.args(dir)...)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { p.End(f.t) })
	if err := p.Listening(); err != nil {
		f.t.Fatal(err)
	}
	c, err := client.New(p.URL, client.Options{})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(c.CloseIdleConnections)
	return p, c
}

// refused starts a program that must not become a node, and returns what it says.
func (f *fleet) refused(program, dir string) string {
	f.t.Helper()
	p, err := binary.Launch(program, nil, f.args(dir)...)
	if err != nil {
		f.t.Fatal(err)
	}
	if code := p.Stopped(f.t); code != binary.ExitFailure {
		f.t.Errorf("it exits with %d:\n%s", code, p.Log)
	}
	return p.Log.String()
}

// use appends at each node, sends at each node, and checks that all nodes have the same session.
func (f *fleet) use(session string, nodes ...*client.Client) {
	f.t.Helper()
	ctx := f.t.Context()
	for i, c := range nodes {
		m := loquat.NewMessage{Role: loquat.RoleUser, Content: fmt.Sprint("from node ", i)}
		if _, err := c.AppendMessage(ctx, session, m); err != nil {
			f.t.Fatalf("append at node %d: %v", i, err)
		}
		sent, err := c.Send(ctx, session, loquat.Send{Content: new("hello")})
		if err != nil {
			f.t.Fatalf("send at node %d: %v", i, err)
		}
		other := nodes[(i+1)%len(nodes)]
		binary.FollowRequest(ctx, f.t, other, sent.RequestID)
		r, err := other.Request(ctx, sent.RequestID)
		if err != nil || r.Status != loquat.StatusCompleted {
			f.t.Errorf("the request of node %d is %s, %v", i, r.Status, err)
		}
	}
	var first string
	for i, c := range nodes {
		s, err := c.Session(ctx, session)
		if err != nil {
			f.t.Fatal(err)
		}
		text, err := json.Marshal(s)
		if err != nil {
			f.t.Fatal(err)
		}
		if i == 0 {
			first = string(text)
		} else if string(text) != first {
			f.t.Errorf("node 0 has\n%s\nand node %d has\n%s", first, i, text)
		}
	}
}

// Nodes are upgraded one after the other. While a node of the next version has already added to
// the schema, nodes of this version go on, stop and start again.
func TestRollingUpgrade(t *testing.T) {
	this, err := binary.Path()
	if err != nil {
		t.Fatal(err)
	}
	next := buildWith(t, fmt.Sprintf(`-- What a version adds.
-- least: %d
ALTER TABLE sessions ADD COLUMN next_thing BIGINT NOT NULL DEFAULT 7;
CREATE TABLE next_table (id BIGINT PRIMARY KEY);`, schemaSteps(t)))
	f := newFleet(t)
	dirs := []string{t.TempDir(), t.TempDir()}
	old, a := f.start(this, dirs[0])
	session := binary.CreateSession(t.Context(), t, a, nil).SessionID
	f.use(session, a)
	code, said := upgradeCheck(t, next, f.config)
	expectCheck(t, code, said, binary.ExitOK, fmt.Sprintf("has schema %d; the next start changes it to %d", schemaSteps(t), schemaSteps(t)+1),
		"the change takes a moment", "way back: open", "a server uses the data now")
	_, b := f.start(next, dirs[1])
	f.use(session, a, b)
	code, said = upgradeCheck(t, this, f.config)
	expectCheck(t, code, said, binary.ExitOK, "of a newer program; this program knows ")
	if err := old.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := old.Stopped(t); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, old.Log)
	}
	// Back: the version before starts on the newer schema, and says so.
	again, a := f.start(this, dirs[0])
	f.use(session, a, b)
	if !strings.Contains(again.Log.String(), "newer schema") {
		t.Errorf("the log of the older program does not mention the schema:\n%s", again.Log)
	}
	again.End(t)
	// Onward: the last node of this version is replaced.
	_, a = f.start(next, dirs[0])
	f.use(session, a, b)
}

// A node refuses a schema that it cannot use, and leaves the database as it is.
func TestNodeRefusesNewerSchema(t *testing.T) {
	this, err := binary.Path()
	if err != nil {
		t.Fatal(err)
	}
	f := newFleet(t)
	next := buildWith(t, `ALTER TABLE sessions RENAME COLUMN agent_id TO agent;`)
	p, err := binary.Launch(next, nil, f.args(t.TempDir())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.End(t) })
	if err := p.Listening(); err != nil {
		t.Fatal(err)
	}
	steps := schemaSteps(t)
	code, checked := upgradeCheck(t, this, f.config)
	expectCheck(t, code, checked, binary.ExitFailure, "data: problem: store.url: ", "use the program that made it, or a newer one")
	said := f.refused(this, t.TempDir())
	for _, want := range []string{
		fmt.Sprintf("its schema is %d, for programs that know schema %d or newer, and this program knows %d", steps+1, steps+1, steps), "use the program that made it, or a newer one",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("the error lacks %q:\n%s", want, said)
		}
	}
}

// A step that nodes of this version cannot use waits until they are gone, and names them.
func TestUpgradeWaitsForOlderNodes(t *testing.T) {
	this, err := binary.Path()
	if err != nil {
		t.Fatal(err)
	}
	next := buildWith(t, `ALTER TABLE sessions ADD COLUMN next_thing BIGINT;`)
	f := newFleet(t)
	dirs := []string{t.TempDir(), t.TempDir()}
	old, a := f.start(this, dirs[0])
	session := binary.CreateSession(t.Context(), t, a, nil).SessionID
	var list struct{ Nodes []loquat.Node }
	if _, body := binary.GetOnce(t, old.URL+"/nodes"); json.Unmarshal([]byte(body), &list) != nil || len(list.Nodes) != 1 {
		t.Fatalf("the nodes are %s", body)
	}
	said, steps := f.refused(next, dirs[1]), schemaSteps(t)
	for _, want := range []string{
		fmt.Sprintf("change its schema from %d to %d", steps, steps+1), list.Nodes[0].NodeID, list.Nodes[0].Name, fmt.Sprintf("knows schema %d", steps), "stop them first",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("the error lacks %q:\n%s", want, said)
		}
	}
	f.use(session, a)
	code, checked := upgradeCheck(t, next, f.config, "--data", dirs[1])
	expectCheck(t, code, checked, binary.ExitFailure, "data: problem: store.url: ", "stop them first")
	code, checked = upgradeCheck(t, next, f.config, "--data", dirs[0]) // the server there ends before the next one starts
	expectCheck(t, code, checked, binary.ExitOK, "way back: closed: afterwards only programs that know schema ", "a server uses the data now")
	old.End(t)
	// The data directory of the old node does not matter, nor does a former process that was killed.
	_, a = f.start(next, dirs[0])
	f.use(session, a)
}
