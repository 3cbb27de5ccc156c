//go:build unix

package chat_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"loquat/internal/chat"
	"loquat/internal/images"
	"loquat/internal/plugin"
	"loquat/internal/store"
	"loquat/internal/store/postgres"
	"loquat/internal/store/postgres/pgtest"
)

func init() {
	closeDatabases = pgtest.StopShared
	if os.Getenv("LOQUAT_TEST_STORE") != "postgres" {
		return
	}
	openDatabase = func(t testing.TB, log *slog.Logger) (store.Driver, error) {
		_, url := pgtest.Shared(t).Database(t)
		return postgres.Open(t.Context(), postgres.Options{URL: url, Node: "test", PoolSize: 4, Logger: log})
	}
	openImages = func(_ testing.TB, db store.Driver, st *store.Store, _ string) (images.Keeper, func() (int, error)) {
		quiet := slog.New(slog.DiscardHandler)
		kept := images.NewShared(images.SharedOptions{Store: st, Bytes: db.(*postgres.DB).Images(), Logger: quiet})
		return kept, func() (n int, err error) {
			err = db.Read(context.Background(), func(q store.SQL) error {
				rows, err := q.Query(`SELECT count(DISTINCT name) FROM image_objects`)
				if err != nil {
					return err
				}
				defer rows.Close()
				rows.Next()
				return rows.Scan(&n)
			})
			return n, err
		}
	}
}

// newNodes returns services that share a database.
func newNodes(t *testing.T, count int, provider *fake) (nodes []*rig) {
	t.Helper()
	server := pgtest.Shared(t)
	name, url := server.Database(t)
	for i := range count {
		id := fmt.Sprint("node", i)
		db, err := postgres.Open(t.Context(), postgres.Options{URL: url, Node: id, PoolSize: 4, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		r := newRigWith(t, db, provider)
		r.fence = func() {
			t.Helper()
			if err := server.Exec(name, "UPDATE nodes SET ended_at = clock_timestamp() WHERE node_id = '"+id+"' AND ended_at IS NULL"); err != nil {
				t.Fatal(err)
			}
		}
		nodes = append(nodes, r)
	}
	return nodes
}

// TestModelNodes is TestModel of three services on one log. LOQUAT_MODEL_CHECKS is the number of
// runs.
func TestModelNodes(t *testing.T) {
	const checks = "rapid.checks"
	before := flag.Lookup(checks).Value.String()
	if err := flag.Set(checks, cmp.Or(os.Getenv("LOQUAT_MODEL_CHECKS"), "10")); err != nil {
		t.Fatalf("LOQUAT_MODEL_CHECKS: %v", err)
	}
	t.Cleanup(func() { _ = flag.Set(checks, before) })
	chat.SetLookPause(t, 100*time.Millisecond)
	p := newPuppet()
	provider := &fake{tools: []plugin.Tool{p.tool()}, chat: p.Chat, entered: make(chan struct{}, 100)}
	nodes := newNodes(t, 3, provider)
	p.called = nodes[0].checkHistory
	checkModel(t, p, nodes...)
}
