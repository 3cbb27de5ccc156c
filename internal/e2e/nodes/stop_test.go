//go:build unix

package nodes_test

import (
	"syscall"
	"testing"
	"time"

	"loquat"
	"loquat/internal/e2e/binary"
	"loquat/internal/store/postgres/pgtest"
)

// A server that is told to stop ends although its database is away, and although it cannot learn whether
// the database has kept a change.
func TestStopWithoutDatabase(t *testing.T) {
	t.Parallel()
	const limit = time.Minute // the server's own limits of time add up to less
	for name, lose := range map[string]func(*pgtest.Server) error{"gone": (*pgtest.Server).Kill, "silent": (*pgtest.Server).Pause} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backend := binary.Start(t, nil, "backend", "--listen", "127.0.0.1:0")
			n := binary.StartNodes(t, binary.NodesOptions{Count: 1, Config: configFor(backend.URL)})
			c, node, db := n.Client(), n.List[0], connect(t, n.Database)
			session := create(t.Context(), t, c, scripted(map[string]any{"rate": 0}, "word "))
			for _, statement := range []string{"ALTER SYSTEM SET synchronous_standby_names = 'absent'", "SELECT pg_reload_conf()::text"} {
				db.strings(statement)
			}
			time.Sleep(500 * time.Millisecond) // the database's main process reloads on a signal
			sent := make(chan error, 1)
			go func() {
				_, err := c.Send(t.Context(), session, loquat.Send{Content: new("hello")})
				sent <- err
			}()
			binary.Eventually(t, "a COMMIT that waits for the standby", func() bool {
				return len(db.strings("SELECT 'it waits' FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query ILIKE 'commit%'")) > 0
			})
			if err := lose(n.Server); err != nil {
				t.Fatal(err)
			}
			if name == "silent" {
				t.Cleanup(func() { _ = n.Server.Resume() }) // it cannot be stopped while it is paused
			}
			time.Sleep(time.Second)
			if err := node.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			killer := time.AfterFunc(limit, func() { _ = node.Cmd.Process.Kill() })
			err := node.Cmd.Wait()
			if !killer.Stop() {
				t.Errorf("the server did not stop within %s: %v\n%s", limit, err, node.Log)
			}
			if err := <-sent; err == nil {
				t.Error("the send was acknowledged")
			}
		})
	}
}
