//go:build unix

package data_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"loquat"
	"loquat/internal/e2e/binary"
	"loquat/internal/store/postgres/pgtest"
)

// cursorOf creates a session and returns its cursor.
func cursorOf(t *testing.T, url, session string) loquat.EventID {
	t.Helper()
	status, _, body := createSession(t, url, session)
	var answer struct {
		Cursor loquat.EventID `json:"cursor_event_id"`
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != http.StatusCreated || answer.Cursor == 0 {
		t.Fatalf("%d %s", status, body)
	}
	return answer.Cursor
}

// wantStatus requires the status of a GET.
func wantStatus(t *testing.T, what, url string, want int) {
	t.Helper()
	if status, body := binary.GetOnce(t, url); status != want {
		t.Errorf("%s: %d %s, want %d", what, status, body, want)
	}
}

func stopServer(t *testing.T, p *binary.Process) {
	t.Helper()
	if err := p.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.Stopped(t); code != 0 {
		t.Fatalf("the server ended with %d:\n%s", code, p.Log)
	}
}

// ask returns the text of an SQL expression.
func ask(t *testing.T, url, expression string) (answer string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), "SELECT ("+expression+")::text").Scan(&answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

// must runs a command of a database server.
func must(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
}

// onPage requires that docs/postgresql.md shows a command that begins like one that the test runs.
func onPage(t *testing.T, command string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "postgresql.md"))
	if err != nil || !strings.Contains(string(page), "\n$ "+command) {
		t.Errorf("docs/postgresql.md does not show %q (%v)", command, err)
	}
}

// pgbackrest is pgBackRest for a server, with the configuration of the page on PostgreSQL.
type pgbackrest struct {
	server  *pgtest.Server
	program string
	file    string // the configuration
}

func newPgbackrest(t *testing.T, server *pgtest.Server) *pgbackrest {
	t.Helper()
	program, err := exec.LookPath("pgbackrest")
	if err != nil {
		pgtest.Missing(t, "pgbackrest")
	}
	dir := filepath.Join(server.Dir(), "backup")
	must(t, server.Command("mkdir", dir))
	text, err := pgtest.Sample("postgresql.md", "ini")
	if err != nil {
		t.Fatal(err)
	}
	port := server.URL("")
	port = port[strings.LastIndex(port, ":")+1 : strings.LastIndex(port, "/")]
	for _, pair := range [][2]string{
		{"/var/lib/pgbackrest", filepath.Join(dir, "repository")},
		{"[global]\n", "[global]\nlog-path=" + dir + "\nlock-path=" + dir + "\nspool-path=" + dir + "\nstart-fast=y\n"},
		{"/var/lib/postgresql/15/main", filepath.Join(server.Dir(), "data")},
		{"pg1-port=5432\n", "pg1-port=" + port + "\npg1-socket-path=" + server.Dir() + "\n"},
	} {
		if !strings.Contains(text, pair[0]) {
			t.Fatalf("the sample lacks %q", pair[0])
		}
		text = strings.ReplaceAll(text, pair[0], pair[1])
	}
	b := &pgbackrest{server: server, program: program, file: filepath.Join(dir, "pgbackrest.conf")}
	if err := os.WriteFile(b.file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *pgbackrest) run(t *testing.T, args ...string) {
	t.Helper()
	if args[0] != "check" {
		onPage(t, "sudo -u postgres pgbackrest --stanza=loquat "+args[0])
	}
	must(t, b.server.Command(b.program, append([]string{"--config=" + b.file, "--stanza=loquat"}, args...)...))
}

// A database is restored to a moment. Clients whose last event is in the restored state continue.
// The others load their sessions again, and no id of an event gets a second meaning, also if the
// server has another data directory.
func TestPointInTimeRecovery(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "archive_mode=on")
	b := newPgbackrest(t, server)
	archive := "ALTER SYSTEM SET archive_command = '" + b.program + " --config=" + b.file + " --stanza=loquat archive-push %p'"
	for _, statement := range []string{archive, "SELECT pg_reload_conf()"} {
		if err := server.Exec("postgres", statement); err != nil {
			t.Fatal(err)
		}
	}
	b.run(t, "stanza-create")
	file := postgresConfig(t, server.URL("postgres"))
	p := servePostgres(t, file, filepath.Join(t.TempDir(), "data"))
	cursorOf(t, p.URL, "in-the-backup")
	b.run(t, "backup")
	kept := cursorOf(t, p.URL, "kept")
	time.Sleep(2 * time.Second) // pgBackRest counts whole seconds since the end of the backup
	moment := ask(t, server.URL("postgres"), "clock_timestamp()")
	time.Sleep(100 * time.Millisecond)
	lost := cursorOf(t, p.URL, "lost")
	stopServer(t, p)
	b.run(t, "check") // waits until all changes are archived
	server.Stop()
	b.run(t, "restore", "--delta", "--type=time", "--target="+moment, "--target-action=promote")
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	binary.Eventually(t, "the database accepts writes", func() bool { return ask(t, server.URL("postgres"), "pg_is_in_recovery()") == "false" })
	p = servePostgres(t, file, filepath.Join(t.TempDir(), "another"))
	wantStatus(t, "a session of the backup", p.URL+"/sessions/in-the-backup", http.StatusOK)
	wantStatus(t, "a session of the archive", p.URL+"/sessions/kept", http.StatusOK)
	wantStatus(t, "a session after the moment", p.URL+"/sessions/lost", http.StatusNotFound)
	wantStatus(t, "a client whose last event was restored", p.URL+"/events?since_id="+kept.String(), http.StatusOK)
	wantStatus(t, "a client that saw lost events", p.URL+"/events?since_id="+lost.String(), http.StatusGone)
	if next := cursorOf(t, p.URL, "new"); next <= lost+1000 {
		t.Errorf("the ids continue at %s, and %s was given before", next, lost)
	}
}

// A dump that is restored into another database can be used next to the original.
func TestRestoredDump(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off")
	bin := pgtest.Binaries(t)
	for _, name := range []string{"original", "copy"} {
		if err := server.Exec("postgres", "CREATE DATABASE "+name); err != nil {
			t.Fatal(err)
		}
	}
	data := filepath.Join(t.TempDir(), "data")
	original := servePostgres(t, postgresConfig(t, server.URL("original")), data)
	kept := cursorOf(t, original.URL, "kept")
	dump := filepath.Join(server.Dir(), "loquat.dump")
	onPage(t, "pg_dump --format=custom --file=loquat.dump ")
	onPage(t, "pg_restore --no-owner --dbname=")
	must(t, server.Command(filepath.Join(bin, "pg_dump"), "--format=custom", "--file="+dump, server.URL("original")))
	later := cursorOf(t, original.URL, "later")
	must(t, server.Command(filepath.Join(bin, "pg_restore"), "--no-owner", "--dbname="+server.URL("copy"), dump))
	copied := servePostgres(t, postgresConfig(t, server.URL("copy")), filepath.Join(t.TempDir(), "copy"))
	wantStatus(t, "a session of the dump", copied.URL+"/sessions/kept", http.StatusOK)
	wantStatus(t, "a session after the dump", copied.URL+"/sessions/later", http.StatusNotFound)
	wantStatus(t, "a client whose last event is in the dump", copied.URL+"/events?since_id="+kept.String(), http.StatusOK)
	wantStatus(t, "a client that saw later events", copied.URL+"/events?since_id="+later.String(), http.StatusGone)
	if there, here := cursorOf(t, copied.URL, "new"), cursorOf(t, original.URL, "new"); there <= here+1000 {
		t.Errorf("both continue the same log: %s and %s", there, here)
	}
	wantStatus(t, "a client of the original", original.URL+"/events?since_id="+later.String(), http.StatusOK)
}
