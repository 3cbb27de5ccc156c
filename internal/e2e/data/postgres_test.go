//go:build unix

package data_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"loquat/internal/e2e/binary"
	"loquat/internal/store/postgres/pgtest"
)

// postgresConfig writes a configuration with a store.url and returns its file.
func postgresConfig(t *testing.T, url string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "loquat.json")
	text := fmt.Sprintf(`{"providers": {"main": {"provider": "reference_generic_compatible", "model": "demo", "base_url": "http://127.0.0.1:1/v1"}},
		"store": {"url": %q}}`, url)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func servePostgres(t *testing.T, file, dir string) *binary.Process {
	t.Helper()
	return binary.Start(t, nil, "serve", "--config", file, "--listen", "127.0.0.1:0", "--data", dir)
}

func createSession(t *testing.T, url, id string) (status int, header http.Header, body string) {
	t.Helper()
	resp, err := http.Post(url+"/sessions", "application/json", strings.NewReader(fmt.Sprintf(`{"session_id": %q}`, id)))
	if err != nil {
		t.Fatal(err)
	}
	status, body = binary.AnswerOf(t, resp)
	return status, resp.Header, body
}

// While PostgreSQL is away, changes get 503 with Retry-After and the server is not ready. It
// goes on by itself. A restart of the server finds everything.
func TestPostgresStopsAndComesBack(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	file, dir := postgresConfig(t, server.URL("postgres")), filepath.Join(t.TempDir(), "data")
	p := servePostgres(t, file, dir)
	if status, _, body := createSession(t, p.URL, "before"); status != 201 {
		t.Fatalf("%d %s", status, body)
	}
	server.Stop()
	binary.Eventually(t, "the server is not ready", func() bool { return binary.Readiness(t, p.URL) == 503 })
	status, header, body := createSession(t, p.URL, "during")
	if status != 503 || header.Get("Retry-After") == "" || !strings.Contains(body, "cannot be reached") {
		t.Errorf("a change while the database is away: %d %v %s", status, header, body)
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	binary.Eventually(t, "the server stores again", func() bool { status, _, _ := createSession(t, p.URL, "after"); return status == 201 })
	binary.Eventually(t, "the server is ready", func() bool { return binary.Readiness(t, p.URL) == 200 })

	p.Kill(t)
	p = servePostgres(t, file, dir) // at once, without a wait for the lease
	for id, want := range map[string]int{"before": 200, "during": 404, "after": 200} {
		if status, _ := binary.GetOnce(t, p.URL+"/sessions/"+id); status != want {
			t.Errorf("session %s: %d, want %d", id, status, want)
		}
	}
}

// A second server is refused while the first one runs. When the first is paused for longer
// than its lease, the second may start, and the first then stops without another write.
func TestSecondServerOnPostgres(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off")
	file := postgresConfig(t, server.URL("postgres"))
	first := servePostgres(t, file, filepath.Join(t.TempDir(), "first"))
	second := filepath.Join(t.TempDir(), "second")
	code, stderr := binary.Exit(t, "serve", "--config", file, "--listen", "127.0.0.1:0", "--data", second)
	if code != 1 || !strings.Contains(stderr, "is in use by process "+fmt.Sprint(first.Cmd.Process.Pid)) || !strings.Contains(stderr, "stop that server first") {
		t.Errorf("a second server: %d, %s", code, stderr)
	}
	if err := first.Cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	next := servePostgres(t, file, second) // waits for the end of the lease
	if status, _, body := createSession(t, next.URL, "next"); status != 201 {
		t.Errorf("the second server: %d %s", status, body)
	}
	if err := first.Cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if code := first.Stopped(t); code != 1 || !strings.Contains(first.Log.String(), "another server has taken over the database") {
		t.Errorf("the first server ended with %d:\n%s", code, first.Log)
	}
	if status, _, body := createSession(t, next.URL, "after"); status != 201 {
		t.Errorf("the second server afterwards: %d %s", status, body)
	}
}

// Commands say what to do with data that are not in the data directory.
func TestCommandsOnPostgres(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off")
	file, dir := postgresConfig(t, strings.Replace(server.URL("postgres"), "postgres@", "postgres:hunter2@", 1)), filepath.Join(t.TempDir(), "data")
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"backup", "--config", file, filepath.Join(t.TempDir(), "backup")}, 2, "pg_dump"},
		{[]string{"check", "--config", file}, 2, "pg_amcheck"},
		{[]string{"token", "new", "laptop", "--config", file, "--data", dir}, 0, "token"},
	} {
		code, stderr := binary.Exit(t, c.args...)
		if code != c.code || !strings.Contains(stderr, c.says) || strings.Contains(stderr, "hunter2") {
			t.Errorf("%v: %d, %s", c.args, code, stderr)
		}
	}
	p := servePostgres(t, file, dir)
	if status, _ := binary.GetOnce(t, p.URL+"/sessions"); status != 401 {
		t.Errorf("the server does not ask for the token: %d", status)
	}
	server.Stop()
	code, stderr := binary.Exit(t, "serve", "--config", file, "--listen", "127.0.0.1:0", "--data", filepath.Join(t.TempDir(), "other"))
	if code != 1 || !strings.Contains(stderr, "postgres:***@127.0.0.1") || !strings.Contains(stderr, "start it, or correct store.url") || strings.Contains(stderr, "hunter2") {
		t.Errorf("a start without the database: %d, %s", code, stderr)
	}
}
