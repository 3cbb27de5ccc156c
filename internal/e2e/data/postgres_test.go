//go:build unix

package data_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"loquat/internal/e2e/binary"
	"loquat/internal/store/postgres/pgtest"
)

// postgresConfig writes a configuration with a store.url and returns its file.
func postgresConfig(t *testing.T, url string) string {
	t.Helper()
	text := fmt.Sprintf(`{"providers": {"main": {"provider": "reference_generic_compatible", "model": "demo", "base_url": "http://127.0.0.1:1/v1"}},
		"store": {"url": %q}}`, url)
	return binary.WriteConfig(t, text)
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

// Two servers use one database. What one answers, the other knows at once. One that was killed
// comes back, and the sessions of both are there.
func TestTwoServersOnPostgres(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off")
	file := postgresConfig(t, server.URL("postgres"))
	dirs := []string{filepath.Join(t.TempDir(), "first"), filepath.Join(t.TempDir(), "second")}
	servers := []*binary.Process{servePostgres(t, file, dirs[0]), servePostgres(t, file, dirs[1])}
	for i := range 6 {
		id := fmt.Sprint("s", i)
		if status, _, body := createSession(t, servers[i%2].URL, id); status != 201 {
			t.Fatalf("%d %s", status, body)
		}
		if status, body := binary.GetOnce(t, servers[1-i%2].URL+"/sessions/"+id); status != 200 {
			t.Errorf("the other server does not know session %s: %d %s", id, status, body)
		}
		if status, _, _ := createSession(t, servers[1-i%2].URL, id); status != 409 {
			t.Errorf("the other server creates session %s again: %d", id, status)
		}
	}
	servers[0].Kill(t)
	if status, _, body := createSession(t, servers[1].URL, "alone"); status != 201 {
		t.Errorf("the server that is left: %d %s", status, body)
	}
	again := servePostgres(t, file, dirs[0])
	for _, id := range []string{"s0", "s5", "alone"} {
		if status, _ := binary.GetOnce(t, again.URL+"/sessions/"+id); status != 200 {
			t.Errorf("session %s after the restart: %d", id, status)
		}
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
	if code != 1 || !strings.Contains(stderr, "postgres:***@127.0.0.1") || !strings.Contains(stderr, "start the database, or correct the host and the port in store.url") || strings.Contains(stderr, "hunter2") {
		t.Errorf("a start without the database: %d, %s", code, stderr)
	}
}
