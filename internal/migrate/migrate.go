// Package migrate moves a whole store from a data directory to PostgreSQL and back: sessions, the
// log with its ids, requests, answers to repeated calls, tokens, devices, states of plugins and
// images. The copy keeps the id of the log, so clients continue at their cursors.
//
// Nobody may use either side meanwhile. A move that was interrupted leaves a target that no server
// uses, and a source as it was. Repeating the move starts again. At the end the source refuses to
// be served, because two stores that continue one log would give its ids two meanings.
package migrate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"loquat/internal/asset"
	"loquat/internal/store"
)

// Options say what is moved.
type Options struct {
	From, To Place
	Objects  asset.Store    // has the images of the database; nil: they are in the database
	Progress func(Progress) // is called many times a second; may be nil
	Logger   *slog.Logger
}

// Progress says how far a move is.
type Progress struct {
	Step           string // what is done, such as "copying"
	Rows, AllRows  int64  // AllRows is 0 in a step that does not count
	Bytes, AllSize int64
	Left           time.Duration // estimated, of this step; negative if it is not known
}

// Report describes a move that is complete.
type Report struct {
	store.Totals
	Rows, Bytes int64
	Images      int
	Again       bool // an earlier move had completed it
}

// Run moves a store.
func Run(ctx context.Context, o Options) (r Report, err error) {
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	if (o.From.URL == "") == (o.To.URL == "") {
		return Report{}, sameKind(o.From)
	}
	from, err := openSource(ctx, o.From, o.Logger)
	if err != nil {
		return Report{}, fmt.Errorf("--from: %w", err)
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	m := &mover{Options: o, source: from}
	done, err := m.begin(ctx)
	if err != nil || done {
		return Report{Again: done}, err
	}
	if m.target, err = openTarget(ctx, o.To, m.incoming(), o.Logger); err != nil {
		return Report{}, fmt.Errorf("--to: %w", err)
	}
	defer func() { err = errors.Join(err, m.target.Close()) }()
	o.Progress(Progress{Step: "checking " + o.From.String(), Left: -1})
	if err := from.Verify(ctx); err != nil {
		return Report{}, err
	}
	if err := from.Snapshot(ctx, func(q store.SQL) error { return m.copy(ctx, q) }); err != nil {
		return Report{}, err
	}
	// From here on nobody uses the source. If this process ends before the target is complete, the
	// move can be repeated.
	moved := store.Move{Kind: store.Moved, Store: m.id, Place: o.To.String()}
	if err := from.Mark(ctx, moved); err != nil {
		return Report{}, fmt.Errorf("mark %s as moved: %w", o.From, err)
	}
	if err := m.target.Commit(ctx, m.log.Write); err != nil {
		return Report{}, fmt.Errorf("complete %s (run the same command again, which completes the move): %w", o.To, err)
	}
	return m.report, nil
}

func sameKind(p Place) error {
	if p.URL != "" {
		return errors.New("both places are databases; move a database with pg_dump and pg_restore")
	}
	return errors.New("both places are data directories; stop the server and move the directory, or copy it with loquat backup")
}

// mover is a move that runs.
type mover struct {
	Options
	source source
	target target
	id     string // of the store
	log    store.LogRow
	copied map[string]tableDigest
	report Report
}

// incoming returns what the target says until it is complete.
func (m *mover) incoming() store.Move {
	return store.Move{Kind: store.Incoming, Store: m.id, Place: m.From.String()}
}

// begin reads what the source says about a move. If an earlier move has marked the source as moved
// and completed the target, begin reports that the move is done.
func (m *mover) begin(ctx context.Context) (done bool, err error) {
	var said store.Move
	err = m.source.Snapshot(ctx, func(q store.SQL) error {
		said, m.id, err = store.ReadMove(q)
		return err
	})
	if err != nil || said.Kind == store.InUse {
		return false, err
	}
	if said.Kind == store.Moved {
		found, id, err := m.To.peek(ctx, m.Logger)
		switch {
		case err != nil:
			return false, fmt.Errorf("--to: %w", err)
		case found.Kind == store.InUse && id == m.id:
			return true, nil
		case found.Kind == store.Incoming && found.Store == m.id:
			return false, nil
		}
	}
	return false, fmt.Errorf("--from: %w", said.Usable())
}

// copy copies the tables of a snapshot and compares the copies with it.
func (m *mover) copy(ctx context.Context, q store.SQL) error {
	var err error
	if m.log, err = store.ReadLog(q); err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	all, err := m.count(q)
	if err != nil {
		return fmt.Errorf("count the rows: %w", err)
	}
	m.report.Totals, err = store.Count(q)
	if err != nil {
		return fmt.Errorf("count the sessions: %w", err)
	}
	p := m.start("copying", all)
	m.copied = map[string]tableDigest{}
	for _, t := range store.Tables {
		if m.copied[t.Name], err = m.copyTable(ctx, q, t, p); err != nil {
			return err
		}
	}
	m.report.Rows, m.report.Bytes = p.Rows, p.Bytes
	if err := m.copyImages(ctx, q); err != nil {
		return err
	}
	m.start("building the indexes of "+m.To.String(), size{})
	if err := m.target.Index(ctx); err != nil {
		return err
	}
	return m.target.Read(ctx, func(copied store.SQL) error { return m.compare(q, copied, all) })
}
