//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"loquat/internal/heap"
	"loquat/internal/store"
	"loquat/internal/store/postgres"
	"loquat/internal/store/postgres/pgtest"
)

// minOfRaw is the least of the events per second of plain pgx with the same batches.
const minOfRaw = 0.5

// postgresNodes are the numbers of nodes that publish to one database.
var postgresNodes = []int{1, 3}

// countingDB counts the commits of a node.
type countingDB struct {
	*postgres.DB
	commits *atomic.Int64
}

func (d countingDB) Write(ctx context.Context, fn func(store.SQL) error) error {
	d.commits.Add(1)
	return d.DB.Write(ctx, fn)
}

// benchPostgres measures publishing to PostgreSQL. The baseline are as many connections of pgx as
// there are nodes, which insert as many rows in as many transactions, each sent in one message. Both
// run with the garbage collector of the server.
func benchPostgres(w io.Writer) (verdicts []verdict, err error) {
	heap.Tune()
	server, err := pgtest.Run()
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "nodes\tpublishers\tevents/s\tevents/commit\tpgx, same batches\tratio\t")
	for i := range len(postgresNodes) * len(publishing) {
		nodes, p := postgresNodes[i/len(publishing)], publishing[i%len(publishing)]
		type round struct{ store, raw, perCommit float64 }
		var rounds []round
		for range storeRounds {
			name, err := server.NewDatabase()
			if err != nil {
				return nil, err
			}
			perSecond, commits, err := publishToPostgres(server.URL(name), nodes, p.publishers, p.events)
			if err != nil {
				return nil, err
			}
			raw, err := insertRaw(server.URL(name), nodes, p.publishers, p.events, commits)
			if err != nil {
				return nil, err
			}
			rounds = append(rounds, round{perSecond, raw, float64(p.events) / float64(commits)})
		}
		slices.SortFunc(rounds, func(a, b round) int { return int(1000 * (a.store/a.raw - b.store/b.raw)) })
		m := rounds[len(rounds)/2]
		verdicts = append(verdicts, verdict{fmt.Sprintf("%d publishers at %d nodes: at least %.1f of pgx", p.publishers, nodes, minOfRaw), m.store/m.raw >= minOfRaw, fmt.Sprintf("%.2f", m.store/m.raw)})
		fmt.Fprintf(table, "%d\t%d\t%.0f\t%.1f\t%.0f\t%.2f\t\n", nodes, p.publishers, m.store, m.perCommit, m.raw, m.store/m.raw)
	}
	return verdicts, table.Flush()
}

// publishToPostgres returns the events per second of publishers that each publish one event
// after another at one of the nodes in turn, and the number of commits.
func publishToPostgres(url string, nodes, publishers, events int) (perSecond float64, commits int, err error) {
	ctx, quiet := context.Background(), slog.New(slog.DiscardHandler)
	var stores []*store.Store
	var sessions []store.Head
	var count atomic.Int64
	for i := range nodes {
		db, err := postgres.Open(ctx, postgres.Options{URL: url, Node: fmt.Sprint("bench-", i), Logger: quiet})
		if err != nil {
			return 0, 0, err
		}
		s, err := store.Open(ctx, countingDB{db, &count}, store.Options{Logger: quiet})
		if err != nil {
			return 0, 0, errors.Join(err, db.Close())
		}
		defer s.Close()
		h, err := benchSession(s, fmt.Sprint("bench-", i))
		if err != nil {
			return 0, 0, err
		}
		stores, sessions = append(stores, s), append(sessions, h)
	}
	count.Store(0)
	var next atomic.Int64
	took, err := closedLoop(publishers, events, func() error {
		i := int(next.Add(1)) % nodes
		return stores[i].Update(ctx, func(tx *store.Tx) error {
			_, err := tx.Publish(benchPartial(), &sessions[i], nil)
			return err
		})
	})
	if err != nil {
		return 0, 0, err
	}
	return float64(events) / took.Seconds(), int(count.Load()), nil
}

// insertRaw returns the events per second of connections that insert events in a number of
// transactions, into a table like that of the store. There are as many connections as nodes. A single
// publisher uses them in turn; several publishers use all at the same time.
func insertRaw(url string, nodes, publishers, events, commits int) (perSecond float64, err error) {
	ctx := context.Background()
	var conns []*pgx.Conn
	for range nodes {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return 0, err
		}
		defer conn.Close(ctx)
		conns = append(conns, conn)
	}
	for _, statement := range []string{`CREATE TABLE raw (LIKE events INCLUDING ALL)`, `CREATE TABLE raw_log (last_event_id BIGINT) WITH (fillfactor = 10)`, `INSERT INTO raw_log VALUES (0)`} {
		if _, err := conns[0].Exec(ctx, statement); err != nil {
			return 0, err
		}
	}
	rec, err := benchPartial().Encode()
	if err != nil {
		return 0, err
	}
	start := time.Now()
	var begun atomic.Int64
	insertWith := func(conn func(commit int) *pgx.Conn) error {
		for {
			commit := int(begun.Add(1)) - 1
			if commit >= commits {
				return nil
			}
			if err := insertBatch(ctx, conn(commit), rec.Body, events*commit/commits, events*(commit+1)/commits); err != nil {
				return err
			}
		}
	}
	if publishers == 1 {
		err = insertWith(func(commit int) *pgx.Conn { return conns[commit%nodes] })
	} else {
		var all errgroup.Group
		for _, conn := range conns {
			all.Go(func() error { return insertWith(func(int) *pgx.Conn { return conn }) })
		}
		err = all.Wait()
	}
	return float64(events) / time.Since(start).Seconds(), err
}

// insertBatch inserts the events above an id and up to another one, in one transaction.
func insertBatch(ctx context.Context, conn *pgx.Conn, body []byte, above, upTo int) error {
	var b pgx.Batch
	b.Queue("BEGIN")
	b.Queue("SELECT last_event_id FROM raw_log FOR UPDATE")
	for written := above; written < upTo; {
		n := 1
		for n < 64 && written+2*n <= upTo {
			n *= 2
		}
		var values strings.Builder
		var args []any
		for j := range n {
			if j > 0 {
				values.WriteString(", ")
			}
			fmt.Fprintf(&values, "($%d, $%d, $%d, $%d, $%d, $%d, $%d, $%d)", 8*j+1, 8*j+2, 8*j+3, 8*j+4, 8*j+5, 8*j+6, 8*j+7, 8*j+8)
			written++
			args = append(args, written, 1, nil, "partial", 0, 0, time.Now().UnixMicro(), body)
		}
		b.Queue("INSERT INTO raw (event_id, sid, rid, type, rev, omit_messages, at, body) VALUES "+values.String(), args...)
	}
	b.Queue("UPDATE raw_log SET last_event_id = $1", upTo)
	b.Queue("COMMIT")
	return conn.SendBatch(ctx, &b).Close()
}
