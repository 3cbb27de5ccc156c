//go:build unix

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"loquat"
	"loquat/internal/store"
	"loquat/internal/store/postgres"
	"loquat/internal/store/postgres/pgtest"
)

// The error of a database that cannot be used names it, without its password, and says what to
// do.
func TestDatabaseThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	sql := func(database, statements string) {
		t.Helper()
		if err := server.Exec(database, statements); err != nil {
			t.Fatal(err)
		}
	}
	at := func(user, database string) string {
		return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", user, server.Port, database)
	}
	sql("postgres", `CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0`)
	sql("postgres", `CREATE DATABASE taken`)
	sql("taken", `CREATE TABLE events (id INTEGER)`)
	sql("postgres", `CREATE DATABASE frozen`)
	sql("postgres", `ALTER DATABASE frozen SET default_transaction_read_only = on`)
	sql("postgres", `CREATE DATABASE newer`)
	sql("newer", `CREATE TABLE loquat_schema (version INTEGER); INSERT INTO loquat_schema VALUES (999)`)
	sql("postgres", `CREATE ROLE guest LOGIN; CREATE ROLE nobody_at_all NOLOGIN`)
	sql("postgres", `CREATE DATABASE foreign_rights`)
	sql("postgres", `CREATE DATABASE locked`)
	sql("foreign_rights", `REVOKE CREATE ON SCHEMA public FROM PUBLIC`)
	sql("locked", `CREATE ROLE secretive LOGIN PASSWORD 'right'`)
	requirePassword(t, server, "secretive")
	for _, c := range []struct{ name, url, want, remedy string }{
		{"nobody listens", "postgres://u:hunter2@127.0.0.1:1/loquat", "postgres://u:***@127.0.0.1:1/loquat", "start the database, or correct the host and the port in store.url"},
		{"nobody answers", "postgres://u:hunter2@" + silent(t) + "/loquat?connect_timeout=1", "timeout", "raise connect_timeout there if the database is slow"},
		{"no such host", "postgres://u:hunter2@no-such-host.invalid/loquat", "no-such-host.invalid", "correct the host and the port in store.url"},
		{"a database without TLS", strings.Replace(at("postgres", "postgres"), "disable", "require", 1), "refused TLS", "correct sslmode and sslrootcert in store.url"},
		{"an unknown parameter", at("postgres", "postgres") + "&sslmod=require", "sslmod", "correct the parameters of store.url"},
		{"no such database", at("postgres", "nothing"), "nothing", "CREATE DATABASE"},
		{"no such user", at("nobody_at_all", "postgres"), "not permitted to log in", "correct the user in store.url"},
		{"wrong password", at("secretive:hunter2", "locked"), "secretive:***@", "correct the user and the password in store.url"},
		{"wrong password, with TLS if the database has it", strings.TrimSuffix(at("secretive:hunter2", "locked"), "?sslmode=disable"), "secretive:***@", "correct the user and the password in store.url"},
		{"no rights", at("guest", "foreign_rights"), "permission denied", "owner of the database"},
		{"wrong encoding", at("postgres", "latin"), "LATIN1", "ENCODING 'UTF8'"},
		{"read-only", at("postgres", "frozen"), "read only", "target_session_attrs=read-write"},
		{"tables of another program", at("postgres", "taken"), "table events", "a database of its own"},
		{"newer schema", at("postgres", "newer"), "schema is 999", "a newer one"},
		{"an @ in the password", "postgres://u:top@hunter2@127.0.0.1:1/loquat", "postgres://u:***@127.0.0.1:1/loquat", "write @ as %40"},
		{"a / in the password", "postgres://u:hunter2/top@127.0.0.1:1/loquat", "postgres://u:***@127.0.0.1:1/loquat", "/ as %2F"},
		{"a # and a ? in the password", "postgres://u:#hunter2?@127.0.0.1:1/loquat", "postgres://u:***@127.0.0.1:1/loquat", "start the database, or correct the host and the port in store.url"},
		{"a password that is no URL", "postgres://u:%hunter2@127.0.0.1:1/loquat", "postgres://u:***@127.0.0.1:1/loquat", "postgres://USER:PASSWORD@HOST"},
		{"a password among the parameters", "postgres://127.0.0.1:1/loquat?user=u&password=%hunter2", "user=u&password=***", "postgres://USER:PASSWORD@HOST"},
		{"a parameter in the password", "postgres://u@127.0.0.1:1/loquat?password=hunter2=3", "loquat?password=***", "postgres://USER:PASSWORD@HOST"},
		{"not a URL", "postgres://u:hunter2@host:port/loquat", "u:***@host:port", "postgres://USER:PASSWORD@HOST"},
	} {
		t.Run(c.name, func(t *testing.T) {
			db, err := postgres.Open(t.Context(), postgres.Options{URL: c.url, Node: "test", Logger: slog.New(slog.DiscardHandler)})
			if err == nil {
				db.Close()
				t.Fatal("it was opened")
			}
			text := err.Error()
			if !strings.Contains(text, c.want) || !strings.Contains(text, c.remedy) || strings.Contains(text, "hunter2") || !strings.HasPrefix(text, "store.url: ") {
				t.Errorf("the error is %q", text)
			}
			if strings.Contains(text, "\n") || strings.Count(text, "refused") > 1 || strings.Count(text, "no such host") > 1 {
				t.Errorf("the error repeats itself: %q", text)
			}
			if strings.Contains(text, "by itself") {
				t.Errorf("the server has not started: %q", text)
			}
		})
	}
	if got := postgres.Unfit("130012", "UTF8", "off"); !strings.Contains(got, "PostgreSQL 13") || !strings.Contains(got, "14") {
		t.Errorf("PostgreSQL 13: %q", got)
	}
	if got := postgres.Unfit("140000", "UTF8", "off"); got != "" {
		t.Errorf("PostgreSQL 14: %q", got)
	}
}

// requirePassword makes a server ask a user for a password.
func requirePassword(t *testing.T, server *pgtest.Server, user string) {
	t.Helper()
	path := filepath.Join(server.Dir(), "data", "pg_hba.conf")
	rules, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append([]byte("host all "+user+" 127.0.0.1/32 scram-sha-256\n"), rules...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := server.Exec("postgres", "SELECT pg_reload_conf()"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond) // the main process reloads on a signal
}

func TestMasked(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"postgres://u:p@h/d":                          "postgres://u:***@h/d",
		"postgres://u@h/d":                            "postgres://u@h/d",
		"postgres://u:p?s#w@h/d":                      "postgres://u:***@h/d",
		"postgres://u:p@ss:w@h1:1,h2:2/d?sslmode=off": "postgres://u:***@h1:1,h2:2/d?sslmode=off",
		"postgres://h/d?password=p&user=u":            "postgres://h/d?password=***&user=u",
		"postgres://h/d?sslpassword=p":                "postgres://h/d?sslpassword=***",
		"host=h password=p user=u":                    "host=h password=*** user=u",
		"host=h password='p q' user=u":                "host=h password=*** user=u",
	} {
		if got := postgres.Masked(text); got != want {
			t.Errorf("%s is shown as %s", text, got)
		}
	}
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for range 2000 {
		if condition() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s: it did not happen", what)
}

// refusedWith creates a session and requires that the store refuses it for a reason.
func refusedWith(t *testing.T, s *store.Store, id, reason string) {
	t.Helper()
	err := create(t.Context(), s, id)
	if loquat.CodeOf(err) != loquat.CodeUnavailable || !strings.Contains(fmt.Sprint(err), reason) {
		t.Errorf("%s: %v, want %q", id, err, reason)
	}
	if fault, ok := errors.AsType[store.Fault](s.Healthy()); !ok || !strings.Contains(fault.Text, reason) {
		t.Errorf("%s: the store's health is %v", id, s.Healthy())
	}
}

// recovers requires that the store stores again, on its own.
func recovers(t *testing.T, s *store.Store, db *postgres.DB, id string, refused ...string) {
	t.Helper()
	eventually(t, "the store stores "+id, func() bool { return create(t.Context(), s, id) == nil })
	eventually(t, "the store is healthy", func() bool { return s.Healthy() == nil })
	l := ledger{accepted: []string{"before", id}, refused: refused}
	l.check(t, s)
	sound(t, db)
}

func mustCreate(t *testing.T, s *store.Store, id string) {
	t.Helper()
	if err := create(t.Context(), s, id); err != nil {
		t.Fatal(err)
	}
}

func TestServerIsStopped(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off")
	s, db := openStore(t, postgres.Options{URL: server.URL("postgres"), Lease: time.Second})
	mustCreate(t, s, "before")
	server.Stop()
	eventually(t, "an idle store notices", func() bool { return s.Healthy() != nil })
	refusedWith(t, s, "during", "cannot be reached")
	if err := s.View(t.Context(), func(r *store.Reader) error { _, err := r.Taken("before"); return err }); loquat.CodeOf(err) != loquat.CodeUnavailable {
		t.Errorf("a read: %v", err)
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	recovers(t, s, db, "after", "during")
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func exec(t *testing.T, conn *pgx.Conn, statement string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// Another program locks the log for longer than the statement timeout.
// A caller that leaves in the middle of a read is not a fault of the database, and its
// connection can be used again.
func TestReaderThatLeaves(t *testing.T) {
	t.Parallel()
	_, url := pgtest.Shared(t).Database(t)
	db := open(t, postgres.Options{URL: url, PoolSize: 1})
	defer db.Close()
	backend := func(ctx context.Context, meanwhile func()) (pid int) {
		t.Helper()
		err := db.Read(ctx, func(q store.SQL) error {
			for _, query := range []string{`SELECT 1, pg_sleep(0.2)::text`, `SELECT pg_backend_pid(), ''`} {
				meanwhile()
				rows, err := q.Query(query)
				if err != nil {
					return err
				}
				var text string
				for rows.Next() {
					if err := rows.Scan(&pid, &text); err != nil {
						return err
					}
				}
				if err := errors.Join(rows.Err(), rows.Close()); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("a read fails: %v", err)
		}
		return pid
	}
	ctx, leave := context.WithCancel(t.Context())
	first := backend(ctx, func() { time.AfterFunc(50*time.Millisecond, leave) })
	if second := backend(t.Context(), func() {}); first != second {
		t.Errorf("the connection of process %d was not used again, but one of process %d", first, second)
	}
}

func TestStatementTimeout(t *testing.T) {
	t.Parallel()
	_, url := pgtest.Shared(t).Database(t)
	s, db := openStore(t, postgres.Options{URL: url, StatementTimeout: 300 * time.Millisecond})
	mustCreate(t, s, "before")
	other := connect(t, url)
	exec(t, other, "BEGIN")
	exec(t, other, "SELECT * FROM log FOR UPDATE")
	refusedWith(t, s, "during", "took too long")
	exec(t, other, "ROLLBACK")
	recovers(t, s, db, "after", "during")
}

func TestDatabaseBecomesReadOnly(t *testing.T) {
	t.Parallel()
	name, url := pgtest.Shared(t).Database(t)
	s, db := openStore(t, postgres.Options{URL: url})
	mustCreate(t, s, "before")
	other := connect(t, url)
	exec(t, other, "ALTER DATABASE "+name+" SET default_transaction_read_only = on")
	exec(t, other, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
	if err := create(t.Context(), s, "cut"); err == nil {
		t.Error("a change on a connection that was cut was accepted")
	}
	refusedWith(t, s, "during", "accepts no writes")
	exec(t, other, "SET default_transaction_read_only = off")
	exec(t, other, "ALTER DATABASE "+name+" RESET default_transaction_read_only")
	recovers(t, s, db, "after", "during", "cut")
}

func TestRightsAreTakenAway(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	name, url := server.Database(t)
	owner := connect(t, url)
	exec(t, owner, "CREATE ROLE limited LOGIN")
	exec(t, owner, "GRANT ALL ON SCHEMA public TO limited")
	s, db := openStore(t, postgres.Options{URL: strings.Replace(server.URL(name), "postgres@", "limited@", 1)})
	mustCreate(t, s, "before")
	exec(t, owner, "ALTER TABLE sessions OWNER TO postgres")
	exec(t, owner, "REVOKE ALL ON sessions FROM limited")
	// Other changes may still succeed, so the store counts as healthy.
	if err := create(t.Context(), s, "during"); loquat.CodeOf(err) != loquat.CodeUnavailable || !strings.Contains(fmt.Sprint(err), "lacks a right") {
		t.Errorf("a change: %v", err)
	}
	exec(t, owner, "GRANT ALL ON sessions TO limited")
	recovers(t, s, db, "after", "during")
}

// All places of the server are taken when this node must connect again.
func TestTooManyConnections(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off", "max_connections=12", "superuser_reserved_connections=2", "max_wal_senders=0")
	if err := server.Exec("postgres", "CREATE ROLE plain LOGIN; GRANT ALL ON SCHEMA public TO plain"); err != nil {
		t.Fatal(err)
	}
	url := strings.Replace(server.URL("postgres"), "postgres@", "plain@", 1)
	s, db := openStore(t, postgres.Options{URL: url, PoolSize: 4})
	mustCreate(t, s, "before")
	admin := connect(t, server.URL("postgres"))
	var others []*pgx.Conn
	// Without the reserved ones and that of admin. The store needs fewer: its pool, and the
	// connections of its lease and of notifications.
	const places = 12 - 2 - 1
	eventually(t, "all places are taken by others", func() bool { // the node connects again meanwhile, to renew its lease
		exec(t, admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'plain' AND application_name = 'loquat'")
		for len(others) < places {
			conn, err := pgx.Connect(t.Context(), url+"&application_name=other")
			if err != nil {
				break
			}
			others = append(others, conn)
		}
		return len(others) == places
	})
	eventually(t, "the connections that were ended are gone", func() bool {
		return strings.Contains(fmt.Sprint(create(t.Context(), s, "cut")), "no more connections")
	})
	refusedWith(t, s, "during", "no more connections")
	for _, conn := range others {
		conn.Close(t.Context())
	}
	recovers(t, s, db, "after", "during", "cut")
}

// The file system of the tables is full.
func TestDiskOfTheDatabaseIsFull(t *testing.T) {
	t.Parallel()
	server := pgtest.StartSmall(t, 24)
	s, db := openStore(t, postgres.Options{URL: server.URL("small")})
	mustCreate(t, s, "before")
	other := connect(t, server.URL("small"))
	exec(t, other, "CREATE TABLE filler (data BYTEA)")
	exec(t, other, "ALTER TABLE filler ALTER data SET STORAGE EXTERNAL") // not compressed
	eventually(t, "the disk is full", func() bool {
		_, err := other.Exec(t.Context(), "INSERT INTO filler SELECT decode(repeat('ab', 4000), 'hex') FROM generate_series(1, 20)")
		return err != nil
	})
	var text strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&text, "%x", i*7919)
	}
	err := s.Update(t.Context(), func(tx *store.Tx) error {
		h, err := tx.Head("before")
		if err != nil {
			return err
		}
		for range 20 {
			if _, err := tx.AppendMessage(&h, loquat.Message{ID: "m", Role: "user", Content: text.String()}); err != nil {
				return err
			}
		}
		return tx.Checkpoint(&h, nil, false)
	})
	if loquat.CodeOf(err) != loquat.CodeUnavailable || !strings.Contains(fmt.Sprint(err), "disk of the database is full") {
		t.Errorf("a change: %v", err)
	}
	exec(t, other, "DROP TABLE filler")
	recovers(t, s, db, "after")
}

// A pooler in transaction mode gives each transaction another connection.
func TestPooler(t *testing.T) {
	t.Parallel()
	program, err := findPooler()
	if err != nil {
		pgtest.Missing(t, "pgbouncer")
	}
	server := pgtest.Shared(t)
	name, _ := server.Database(t)
	pooler := server.StartPooler(t, program)
	s, db := openStore(t, postgres.Options{URL: fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable", pooler, name)})
	var l ledger
	n := 0
	l.fillUntil(t, s, 8, func() bool { l.mu.Lock(); defer l.mu.Unlock(); n++; return n > 300 })
	l.check(t, s)
	sound(t, db)
	if len(l.refused) > 0 {
		t.Errorf("%d updates were refused", len(l.refused))
	}
}

func findPooler() (string, error) {
	if path, err := osexec.LookPath("pgbouncer"); err == nil {
		return path, nil
	}
	return osexec.LookPath("/usr/sbin/pgbouncer")
}

// silent returns an address that accepts connections and never answers.
func silent(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String()
}
