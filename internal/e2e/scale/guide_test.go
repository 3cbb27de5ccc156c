//go:build unix

package scale_test

import (
	"bytes"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
	"loquat/internal/store/postgres/pgtest"
)

// newcomer does what the pages say, in places of its own.
type newcomer struct {
	t      *testing.T
	dir    string
	env    []string
	places *strings.Replacer
}

// newNewcomer writes the configuration of docs/scale.md and the files that it refers to.
func newNewcomer(t *testing.T, database string) *newcomer {
	t.Helper()
	path, err := binary.Path()
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	n := &newcomer{t: t, dir: t.TempDir(), env: append(binary.CleanEnv(), "PATH="+filepath.Dir(path)+":"+os.Getenv("PATH"))}
	db := u.Host + u.Path + "?" + u.RawQuery
	n.places = strings.NewReplacer(
		"/var/lib/loquat", filepath.Join(n.dir, "lib"), "/etc/loquat/", n.dir+"/", "sudo -u loquat ", "",
		"db.example.org:5432/loquat?sslmode=verify-full", db, "db.example.org/loquat", db, "postgres://loquat:", "postgres://"+u.User.Username()+":")
	config := regexp.MustCompile("(?ms)^   ```json\n(.*?)^   ```").FindStringSubmatch(page(t, "scale.md"))
	if config == nil {
		t.Fatal("the page has no configuration")
	}
	binary.WriteFiles(t, n.dir, map[string]string{"loquat.json": n.places.Replace(config[1]), "database-password": "secret\n", "openai-key": "sk-key\n"})
	return n
}

func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// command returns the only command of a page that contains text.
func command(t *testing.T, name, text string) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^ *\$ (.*`+regexp.QuoteMeta(text)+`.*)$`).FindAllStringSubmatch(page(t, name), -1)
	if len(found) != 1 {
		t.Fatalf("docs/%s has %d commands with %q", name, len(found), text)
	}
	return found[0][1]
}

// run runs a command of a page and returns what it prints.
func (n *newcomer) run(command string) string {
	n.t.Helper()
	cmd := exec.CommandContext(n.t.Context(), "bash", "-c", n.places.Replace(command))
	cmd.Dir, cmd.Env = n.dir, n.env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		n.t.Fatalf("$ %s\n%v\n%s%s", command, err, out, &stderr)
	}
	return strings.TrimSpace(string(out))
}

// embedded starts a server on the embedded store, creates a session, and stops the server.
func (n *newcomer) embedded() (session loquat.Snapshot) {
	n.t.Helper()
	server := binary.Start(n.t, nil, "serve", "--demo", "--listen", "127.0.0.1:0", "--data", filepath.Join(n.dir, "lib"))
	session = binary.CreateSession(n.t.Context(), n.t, binary.NewClient(n.t, server.URL), nil)
	server.End(n.t)
	return session
}

// A new user moves the sessions of one server to a database, and starts three nodes on it, with
// the commands of docs/scale.md and docs/postgresql.md.
func TestFromOneNodeToThree(t *testing.T) {
	for _, tool := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("skipped: the commands of the pages need %s", tool)
		}
	}
	_, database := pgtest.Shared(t).Database(t)
	n := newNewcomer(t, database)
	session := n.embedded()
	n.run(command(t, "postgresql.md", "--from /var/lib/loquat"))
	token := n.run(command(t, "scale.md", "TOKEN=") + `; echo "$TOKEN"`)
	n.env = append(n.env, "TOKEN="+token)
	serve := strings.Fields(n.places.Replace(strings.TrimPrefix(command(t, "scale.md", "loquat serve"), "loquat ")))
	ready, nodes := command(t, "scale.md", "/readyz"), command(t, "scale.md", "/nodes")
	for i, address := range addresses {
		here := append([]string(nil), serve...)
		for j, arg := range here {
			switch arg {
			case addresses[0]:
				here[j] = binary.FreeAddress(t)
			case filepath.Join(n.dir, "lib"): // on a machine of its own
				here[j] = filepath.Join(n.dir, "machine "+address)
			}
		}
		server := binary.Start(t, nil, here...)
		if got := n.run(strings.Replace(ready, "http://"+addresses[0], server.URL, 1)); !strings.Contains(page(t, "scale.md"), got) {
			t.Errorf("node %d: /readyz is %s", i, got)
		}
		if got := n.run(strings.Replace(nodes, "https://chat.example.org", server.URL, 1)); strings.Count(got, `"node_id"`) != i+1 {
			t.Errorf("node %d: /nodes is %s", i, got)
		}
		api, err := client.New(server.URL, client.Options{Token: token})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(api.CloseIdleConnections)
		if got, err := api.Session(t.Context(), session.SessionID); err != nil || got.CursorEventID != session.CursorEventID {
			t.Errorf("node %d: the session that was moved is at %v, and was at %v: %v", i, got.CursorEventID, session.CursorEventID, err)
		}
		if status, _ := binary.GetOnce(t, server.URL+"/sessions"); status != http.StatusUnauthorized {
			t.Errorf("node %d: without the token: %d", i, status)
		}
	}
}
