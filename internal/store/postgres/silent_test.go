//go:build unix

package postgres_test

import (
	"context"
	"fmt"
	"net"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"loquat"
	"loquat/internal/store"
	"loquat/internal/store/postgres"
	"loquat/internal/store/postgres/pgtest"
)

// A paused server keeps its connections open and silent. Reads and changes fail long before the
// time limit of a statement, also those on connections that were idle.
func TestServerIsPaused(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off")
	s, db := openStore(t, postgres.Options{URL: server.URL("postgres"), Lease: 2 * time.Second})
	mustCreate(t, s, "before")
	time.Sleep(1100 * time.Millisecond) // connections that were idle for a second are tested before use
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Resume() }) // it cannot be stopped while it is paused
	results := make(chan error, 4)
	for i := range cap(results) / 2 {
		go func() { results <- create(t.Context(), s, fmt.Sprint("during-", i)) }()
		go func() {
			results <- s.View(t.Context(), func(r *store.Reader) error { _, err := r.Taken("before"); return err })
		}()
	}
	limit := time.After(30 * time.Second)
	for range cap(results) {
		select {
		case err := <-results:
			if loquat.CodeOf(err) != loquat.CodeUnavailable {
				t.Errorf("while the server is paused: %v", err)
			}
		case <-limit:
			var stacks strings.Builder
			_ = pprof.Lookup("goroutine").WriteTo(&stacks, 2)
			t.Fatalf("a call waits for the paused server:\n%s", &stacks)
		}
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	recovers(t, s, db, "after")
}

// A server is also paused while this node has no hold, because another transaction has locked the log.
// Reads work until the pause, and fail soon after it.
func TestServerIsPausedWithoutAHold(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off")
	s, db := openStore(t, postgres.Options{URL: server.URL("postgres"), Lease: 2 * time.Second})
	mustCreate(t, s, "before")
	read := func() error {
		return s.View(t.Context(), func(r *store.Reader) error { _, err := r.Taken("before"); return err })
	}
	admin := connect(t, server.URL("postgres"))
	exec(t, admin, "BEGIN; SELECT 1 FROM log FOR UPDATE")
	exec(t, connect(t, server.URL("postgres")), "UPDATE nodes SET ended_at = clock_timestamp()")
	eventually(t, "the hold is lost", func() bool { return postgres.HoldLost(db) })
	changed := make(chan error, 1)
	go func() { changed <- create(t.Context(), s, "during") }() // it waits for the lock
	if err := read(); err != nil {
		t.Fatal(err)
	}
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Resume() }) // it cannot be stopped while it is paused
	result := make(chan error, 1)
	go func() { result <- read() }()
	select {
	case err := <-result:
		if loquat.CodeOf(err) != loquat.CodeUnavailable {
			t.Errorf("while the server is paused: %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("a read waits for the paused server")
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	exec(t, admin, "ROLLBACK")
	if err := <-changed; loquat.CodeOf(err) != loquat.CodeUnavailable {
		t.Errorf("a change: %v", err)
	}
	recovers(t, s, db, "after", "during")
}

// silentHost returns the address of a host that accepts connections and does not answer.
func silentHost(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln.Addr().String()
}

// A host that does not answer delays neither the use of another nor the discovery that a standby
// was promoted.
func TestHostThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off")
	url := fmt.Sprintf("postgres://postgres@%s,127.0.0.1:%d/postgres?sslmode=disable", silentHost(t), server.Port)
	s, db := openStore(t, postgres.Options{URL: url})
	mustCreate(t, s, "before")
	admin := connect(t, server.URL("postgres"))
	exec(t, admin, "ALTER SYSTEM SET default_transaction_read_only = on")
	exec(t, admin, "SELECT pg_reload_conf()")
	eventually(t, "the server accepts no writes", func() bool {
		conn := connect(t, server.URL("postgres"))
		return pgconn.ValidateConnectTargetSessionAttrsReadWrite(t.Context(), conn.PgConn()) != nil
	})
	exec(t, admin, "SET default_transaction_read_only = off")
	exec(t, admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'loquat'")
	eventually(t, "a change is refused", func() bool { return create(t.Context(), s, "during") != nil })
	exec(t, admin, "ALTER SYSTEM RESET default_transaction_read_only")
	exec(t, admin, "SELECT pg_reload_conf()")
	began := time.Now()
	eventually(t, "changes are stored", func() bool { return create(t.Context(), s, fmt.Sprint("after-", time.Now().UnixNano())) == nil })
	if d := time.Since(began); d > 4*time.Second {
		t.Errorf("the first change after the promotion took %s", d)
	}
	sound(t, db)
}

// A server that is on an older timeline than this node has used is a former primary, which
// answers with an old state.
func TestFormerPrimaryIsRefused(t *testing.T) {
	t.Parallel()
	_, url := pgtest.Shared(t).Database(t)
	s, db := openStore(t, postgres.Options{URL: url})
	mustCreate(t, s, "before")
	restore := postgres.SetTimeline(db, 1<<20)
	exec(t, connect(t, url), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
	_ = create(t.Context(), s, "cut") // on a connection that was ended
	refusedWith(t, s, "during", "former primary")
	restore()
	recovers(t, s, db, "after", "during", "cut")
}

// A change whose COMMIT waited for a synchronous standby when the server crashed is in the
// server's log, and visible after its restart. It counts as stored only when the standby has it.
func TestDoubtWaitsForTheStandby(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	s, db := openStore(t, postgres.Options{URL: server.URL("postgres")})
	mustCreate(t, s, "before")
	admin := connect(t, server.URL("postgres"))
	exec(t, admin, "ALTER SYSTEM SET synchronous_standby_names = 'absent'")
	exec(t, admin, "SELECT pg_reload_conf()")
	time.Sleep(500 * time.Millisecond) // the main process reloads on a signal
	done := make(chan error, 1)
	go func() { done <- create(context.WithoutCancel(t.Context()), s, "doubtful") }()
	time.Sleep(500 * time.Millisecond) // the COMMIT waits for the standby
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		t.Fatalf("the change was answered before the standby had it: %v", err)
	case <-time.After(3 * time.Second):
	}
	admin = connect(t, server.URL("postgres"))
	exec(t, admin, "ALTER SYSTEM RESET synchronous_standby_names")
	exec(t, admin, "SELECT pg_reload_conf()")
	if err := <-done; err != nil {
		t.Errorf("the change: %v", err)
	}
	l := ledger{accepted: []string{"before", "doubtful"}}
	l.check(t, s)
	sound(t, db)
}

// A change that waits in the queue is refused while the database does not answer, and nothing of
// it is kept. A change that is being written waits until its outcome is known.
func TestChangesThatWaitForASilentServer(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off")
	s, db := openStore(t, postgres.Options{URL: server.URL("postgres"), Lease: 60 * time.Second})
	mustCreate(t, s, "before")
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Resume() }) // it cannot be stopped while it is paused
	first := make(chan error, 1)
	go func() { first <- create(context.WithoutCancel(t.Context()), s, "first") }()
	time.Sleep(500 * time.Millisecond) // the committer waits for the server
	waited, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	err := create(waited, s, "queued")
	if loquat.CodeOf(err) != loquat.CodeUnavailable || !strings.Contains(fmt.Sprint(err), "nothing of this change was kept") {
		t.Errorf("a change in the queue: %v", err)
	}
	if s.Healthy() == nil {
		t.Error("the store counts as healthy")
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	l := ledger{accepted: []string{"before", "after"}, refused: []string{"queued"}}
	l.add("first", <-first)
	eventually(t, "a change is stored", func() bool { return create(t.Context(), s, "after") == nil })
	eventually(t, "the store is healthy", func() bool { return s.Healthy() == nil })
	l.check(t, s)
	sound(t, db)
}
