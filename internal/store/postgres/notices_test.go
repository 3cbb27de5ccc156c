//go:build unix

package postgres_test

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"loquat"
	"loquat/internal/faultproxy"
	"loquat/internal/store"
	"loquat/internal/store/postgres"
	"loquat/internal/store/postgres/pgtest"
)

// countedReads counts the transactions that read.
type countedReads struct {
	*postgres.DB
	n atomic.Int64
}

func (c *countedReads) Read(ctx context.Context, fn func(store.SQL) error) error {
	c.n.Add(1)
	return c.DB.Read(ctx, fn)
}

// Notifications bring small commits to the other nodes, which read only the names of a request, and
// what is too large for a notification. All nodes have the same records.
func TestNotificationsBringSmallCommits(t *testing.T) {
	t.Parallel()
	_, url := pgtest.Shared(t).Database(t)
	writer := openNodes(t, url, 1, 0)[0]
	reads := &countedReads{DB: open(t, postgres.Options{URL: url, Node: "reader"})}
	reader, err := store.Open(t.Context(), reads, store.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reader.Close() })
	if err := writer.Update(t.Context(), func(tx *store.Tx) error {
		h, err := tx.CreateSession("s", "default", nil)
		if err == nil {
			err = tx.SetUser(&h, "ann")
		}
		if err == nil {
			_, err = tx.Publish(loquat.Event{Type: loquat.SessionCreated}, &h, nil)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	publish := startRequest(t, writer, "s")
	publish(loquat.Partial, "the first, whose request the reader does not know")
	level(t, writer, reader)

	const commits = 200
	before := reads.n.Load()
	for i := range commits {
		switch i % 20 {
		case 0:
			mustCreate(t, writer, fmt.Sprint("new-", i))
		case 1:
			publish(loquat.Partial, strings.Repeat("é<&\x00", 2000)) // too large
		case 2:
			publish(loquat.RequestStarted, "")
		case 3: // an event that neither has the user nor belongs to a request
			if err := writer.Update(t.Context(), func(tx *store.Tx) error { _, err := say(tx, "s", "é"); return err }); err != nil {
				t.Fatal(err)
			}
		default:
			publish(loquat.Partial, "é<&\x00")
		}
		level(t, writer, reader)
	}
	publish(loquat.RequestCompleted, "")
	level(t, writer, reader)
	// It looks twice a second for events and for other changes, and reads each commit that is too large.
	if n := reads.n.Load() - before; n > commits/2 {
		t.Errorf("the reader read %d times", n)
	}
	want, err := writer.Events(t.Context(), 0, store.Filter{}, store.Bounds{Events: 1000})
	if err != nil {
		t.Fatal(err)
	}
	got, err := reader.Events(t.Context(), 0, store.Filter{}, store.Bounds{Events: 1000})
	if err != nil || len(got) != len(want) || len(want) < commits {
		t.Fatalf("%d and %d events, %v", len(got), len(want), err)
	}
	for i := range want {
		a, b := want[i], got[i]
		if a.ID != b.ID || a.Type != b.Type || a.Rev != b.Rev || a.User != b.User || (a.User == "ann") != (a.SessionID == "s") || a.OmitMessages != b.OmitMessages || !a.At.Equal(b.At) || !reflect.DeepEqual(a.Body, b.Body) {
			t.Errorf("event %s: %+v at the writer, %+v at the reader", a.ID, a, b)
		}
	}
}

// Whoever may only connect to the database can send notifications. Those with a forged signal or a forged end of the log
// change nothing, also if they have a part of a genuine one, and genuine ones arrive all the same.
func TestForgedNotifications(t *testing.T) {
	t.Parallel()
	_, url := pgtest.Shared(t).Database(t)
	nodes := openNodes(t, url, 2, 0)
	writer, reader := nodes[0], nodes[1]
	var ready atomic.Bool
	signals := make(chan string, 100)
	reader.OnSignal("ready", func(string) { ready.Store(true) })
	reader.OnSignal("cancelled", func(id string) { signals <- id })
	signal := func(topic, payload string) {
		t.Helper()
		if err := writer.Update(t.Context(), func(tx *store.Tx) error { tx.Signal(topic, payload); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the reader listens", func() bool { signal("ready", ""); return ready.Load() })

	plain := connect(t, url)
	var channel string
	if err := plain.QueryRow(t.Context(), `SELECT 'loquat_' || 'log'::regclass::oid`).Scan(&channel); err != nil {
		t.Fatal(err)
	}
	exec(t, plain, `LISTEN `+channel)
	mustCreate(t, writer, "s")
	genuine, err := plain.WaitForNotification(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	level(t, writer, reader)
	for _, forged := range []string{
		`{"n":"x","last":"9000000000000000","signals":[["cancelled","forged"]]}`,
		strings.TrimSuffix(genuine.Payload, "}") + `,"last":"9000000000000000","signals":[["cancelled","forged"]]}`,
		`{"n":"x","head":"AAAA","last":"9000000000000000","signals":[["cancelled","forged"]]}`,
	} {
		if _, err := plain.Exec(t.Context(), `SELECT pg_notify($1, $2)`, channel, forged); err != nil {
			t.Fatal(err)
		}
	}
	signal("cancelled", "genuine")
	if id := <-signals; id != "genuine" {
		t.Errorf("the first signal is of %s", id)
	}
	if lag := values(t, reader)["loquat_store_tail_lag_events"]; lag != 0 {
		t.Errorf("the reader knows of %v events that there are not", lag)
	}
	mustCreate(t, writer, "t")
	level(t, writer, reader)
	sameLog(t, writer, reader)
}

// The server does not keep notifications for a node that takes none, which would fill its queue. The
// node has missed nothing when it takes some again.
func TestNodeThatTakesNoNotifications(t *testing.T) {
	t.Cleanup(postgres.SetGiveUpAfter(time.Second)) // after the nodes have ended
	server := pgtest.Shared(t)
	name, url := server.Database(t)
	writer := openNodes(t, url, 1, 0)[0]
	proxy, err := faultproxy.Start(faultproxy.Options{Target: fmt.Sprintf("127.0.0.1:%d", server.Port)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Close() })
	past := fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable&application_name=past", proxy.Addr(), name)
	reader, _ := openStore(t, postgres.Options{URL: url, ListenURL: past, Node: "reader"})
	admin := connect(t, url)
	var listener int // the backend of the reader's connection
	eventually(t, "the reader listens", func() bool {
		err := admin.QueryRow(t.Context(), "SELECT pid FROM pg_stat_activity WHERE datname = $1 AND application_name = 'past' AND query LIKE 'LISTEN%'", name).Scan(&listener)
		return err == nil
	})
	mustCreate(t, writer, "before")
	level(t, writer, reader)
	proxy.Block()
	exec(t, admin, `SELECT count(pg_notify('loquat_' || 'log'::regclass::oid, '{"x":"' || lpad(i::text, 7000, 'x') || '"}')) FROM generate_series(1, 3000) i`)
	eventually(t, "the server gives up the reader's connection", func() bool {
		var there bool
		if err := admin.QueryRow(t.Context(), "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE pid = $1)", listener).Scan(&there); err != nil {
			t.Fatal(err)
		}
		return !there
	})
	mustCreate(t, writer, "meanwhile")
	proxy.Unblock()
	level(t, writer, reader)
	sameLog(t, writer, reader)
}
