//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"

	"loquat/internal/store"
	"loquat/internal/store/postgres"
	"loquat/internal/store/postgres/pgtest"
)

// benchPostgres measures publishing to PostgreSQL. The baseline is one connection of pgx that
// inserts as many rows in as many transactions, each sent in one message.
func benchPostgres(w io.Writer) ([]verdict, error) {
	server, err := pgtest.Run()
	if err != nil {
		return nil, err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "publishers\tevents/s\tevents/commit\tpgx, same batches\tratio\t")
	for _, p := range publishing {
		type round struct{ store, raw, perCommit float64 }
		var rounds []round
		for range storeRounds {
			name, err := server.NewDatabase()
			if err != nil {
				return nil, err
			}
			perSecond, commits, err := publishToPostgres(server.URL(name), p.publishers, p.events)
			if err != nil {
				return nil, err
			}
			raw, err := insertRaw(server.URL(name), p.events, commits)
			if err != nil {
				return nil, err
			}
			rounds = append(rounds, round{perSecond, raw, float64(p.events) / float64(commits)})
		}
		slices.SortFunc(rounds, func(a, b round) int { return int(1000 * (a.store/a.raw - b.store/b.raw)) })
		m := rounds[len(rounds)/2]
		fmt.Fprintf(table, "%d\t%.0f\t%.1f\t%.0f\t%.2f\t\n", p.publishers, m.store, m.perCommit, m.raw, m.store/m.raw)
	}
	return nil, table.Flush()
}

// publishToPostgres returns the events per second of publishers that each publish one event
// after another, and the number of commits.
func publishToPostgres(url string, publishers, events int) (perSecond float64, commits int, err error) {
	ctx, quiet := context.Background(), slog.New(slog.DiscardHandler)
	db, err := postgres.Open(ctx, postgres.Options{URL: url, Node: "bench", Logger: quiet})
	if err != nil {
		return 0, 0, err
	}
	driver := &countingDriver{Driver: db}
	s, err := store.Open(ctx, driver, store.Options{Logger: quiet})
	if err != nil {
		return 0, 0, err
	}
	defer s.Close()
	h, err := benchSession(s, "bench")
	if err != nil {
		return 0, 0, err
	}
	driver.commits.Store(0)
	took, err := closedLoop(publishers, events, func() error {
		return s.Update(ctx, func(tx *store.Tx) error {
			_, err := tx.Publish(benchPartial(), &h, nil)
			return err
		})
	})
	if err != nil {
		return 0, 0, err
	}
	return float64(events) / took.Seconds(), int(driver.commits.Load()), nil
}

// insertRaw returns the events per second of one connection that inserts events in a number of
// transactions, into a table like that of the store.
func insertRaw(url string, events, commits int) (perSecond float64, err error) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, err
	}
	defer conn.Close(ctx)
	for _, statement := range []string{`CREATE TABLE raw (LIKE events INCLUDING ALL)`, `CREATE TABLE raw_log (last_event_id BIGINT) WITH (fillfactor = 10)`, `INSERT INTO raw_log VALUES (0)`} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return 0, err
		}
	}
	rec, err := benchPartial().Encode()
	if err != nil {
		return 0, err
	}
	start, written := time.Now(), 0
	for i := range commits {
		var b pgx.Batch
		b.Queue("BEGIN")
		b.Queue("SELECT last_event_id FROM raw_log FOR UPDATE")
		for until := events * (i + 1) / commits; written < until; {
			n := 1
			for n < 64 && written+2*n <= until {
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
				args = append(args, written, 1, nil, "partial", 0, 0, time.Now().UnixMicro(), rec.Body)
			}
			b.Queue("INSERT INTO raw (event_id, sid, rid, type, rev, omit_messages, at, body) VALUES "+values.String(), args...)
		}
		b.Queue("UPDATE raw_log SET last_event_id = $1", written)
		b.Queue("COMMIT")
		if err := conn.SendBatch(ctx, &b).Close(); err != nil {
			return 0, err
		}
	}
	return float64(events) / time.Since(start).Seconds(), nil
}
