package migrate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"loquat/internal/check"
	"loquat/internal/store"
	"loquat/internal/store/postgres"
	"loquat/internal/store/sqlite"
)

// Place is where a store is. One of its fields is set.
type Place struct {
	Dir string // a data directory, as an absolute path
	URL string // of a PostgreSQL database
}

// ParsePlace returns the place of a text: the URL of a database or a data directory.
func ParsePlace(text string) (Place, error) {
	if strings.HasPrefix(text, "postgres://") || strings.HasPrefix(text, "postgresql://") {
		return Place{URL: text}, nil
	}
	if strings.Contains(text, "://") {
		return Place{}, fmt.Errorf("%q is neither a data directory nor a URL such as postgres://USER@HOST/DATABASE", postgres.Masked(text))
	}
	dir, err := filepath.Abs(text)
	return Place{Dir: dir}, err
}

// String returns the place without passwords.
func (p Place) String() string {
	if p.URL != "" {
		return postgres.Masked(p.URL)
	}
	return p.Dir
}

// Columns returns the columns of a table in a database of the place.
func (p Place) columns(q store.SQL, table string) ([]store.Column, error) {
	if p.URL != "" {
		return postgres.Columns(q, table)
	}
	return sqlite.Columns(q, table)
}

// options are those of a database. Each move is a node of its own.
func (p Place) options(log *slog.Logger) postgres.Options {
	return postgres.Options{URL: p.URL, Node: "migrate " + uuid.NewString(), Alone: true, Logger: log}
}

// peek returns what the place says about a move, and the id of the store that is there, or "".
func (p Place) peek(ctx context.Context, log *slog.Logger) (m store.Move, id string, err error) {
	if p.URL != "" {
		return postgres.Peek(ctx, p.options(log))
	}
	if !sqlite.Exists(p.Dir) {
		return store.Move{}, "", nil
	}
	in, err := sqlite.Inspect(ctx, p.Dir, log)
	if err != nil {
		return store.Move{}, "", err
	}
	err = in.Read(ctx, func(q store.SQL) error {
		m, id, err = store.ReadMove(q)
		return err
	})
	return m, id, errors.Join(err, in.Close())
}

// source is the store that is moved. Nobody else uses it.
type source interface {
	// Verify returns an error that lists what is damaged.
	Verify(ctx context.Context) error
	// Snapshot runs fn on one state.
	Snapshot(ctx context.Context, fn func(store.SQL) error) error
	// Mark writes what the store says about a move, if the store is in the state of the last
	// Snapshot.
	Mark(ctx context.Context, m store.Move) error
	Close() error
}

// target is the place that a store is moved to. postgres.Loader and sqlite.Loader describe its
// methods.
type target interface {
	Load(ctx context.Context, table string, columns []store.Column, next func() ([]any, error)) error
	Index(ctx context.Context) error
	Read(ctx context.Context, fn func(store.SQL) error) error
	Commit(ctx context.Context, fn func(store.SQL) error) error
	Close() error
}

func openSource(ctx context.Context, p Place, log *slog.Logger) (source, error) {
	if p.URL != "" {
		db, err := postgres.OpenExisting(ctx, p.options(log))
		if err != nil {
			return nil, err
		}
		return &database{DB: db, place: p}, nil
	}
	if err := sqlite.Require(p.Dir); err != nil {
		return nil, err
	}
	db, err := sqlite.Open(ctx, p.Dir, log)
	if err != nil {
		return nil, err
	}
	return &directory{DB: db, place: p, log: log}, nil
}

func openTarget(ctx context.Context, p Place, mark store.Move, log *slog.Logger) (target, error) {
	if p.URL != "" {
		return postgres.NewLoader(ctx, p.options(log), mark)
	}
	return sqlite.NewLoader(ctx, p.Dir, mark, log)
}

// directory is a source in a data directory.
type directory struct {
	*sqlite.DB
	place Place
	log   *slog.Logger
}

func (d *directory) Verify(ctx context.Context) error {
	r, err := check.Run(ctx, d.place.Dir, true, d.log)
	if err != nil {
		return fmt.Errorf("check %s: %w", d.place, err)
	}
	var wrong []string
	for _, p := range r.Problems {
		wrong = append(wrong, string(p.Kind)+": "+p.Text)
	}
	return damaged(d.place, wrong, r.Remedy())
}

func (d *directory) Snapshot(ctx context.Context, fn func(store.SQL) error) error {
	return d.Read(ctx, fn)
}

func (d *directory) Mark(ctx context.Context, m store.Move) error {
	return d.Write(ctx, func(q store.SQL) error { return store.SetMove(q, m) })
}

// database is a source in a database.
type database struct {
	*postgres.DB
	place Place
	epoch int64 // of the last Snapshot
}

func (d *database) Verify(ctx context.Context) error {
	var wrong []string
	err := d.Snapshot(ctx, func(q store.SQL) error {
		store.Verify(q, true, func(text string) { wrong = append(wrong, text) })
		return nil
	})
	if err != nil {
		return err
	}
	return damaged(d.place, wrong, "restore a backup; pg_amcheck finds out whether PostgreSQL itself is damaged")
}

func (d *database) Snapshot(ctx context.Context, fn func(store.SQL) error) error {
	return d.DB.Snapshot(ctx, func(q store.SQL) (err error) {
		if d.epoch, err = postgres.Epoch(q); err != nil {
			return err
		}
		return fn(q)
	})
}

// Mark refuses a database that another node has used since the last Snapshot: this process may
// have been paused for so long that its lease ran out.
func (d *database) Mark(ctx context.Context, m store.Move) error {
	return d.Write(ctx, func(q store.SQL) error {
		epoch, err := postgres.Epoch(q)
		if err != nil {
			return err
		}
		if epoch != d.epoch {
			return errors.New("a server used the database during the move; stop all servers and run the command again")
		}
		return store.SetMove(q, m)
	})
}

// damaged returns an error about what is wrong, or nil.
func damaged(p Place, wrong []string, remedy string) error {
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("%s is damaged, so it was not moved:\n%s\nwhat to do: %s", p, strings.Join(wrong, "\n"), remedy)
}

// Reopen makes a store usable that was moved away. It becomes a copy with a log of its own.
func Reopen(ctx context.Context, p Place, log *slog.Logger) (err error) {
	var db store.Driver
	if p.URL != "" {
		db, err = postgres.OpenExisting(ctx, p.options(log))
	} else if err = sqlite.Require(p.Dir); err == nil {
		db, err = sqlite.Open(ctx, p.Dir, log)
	}
	if err != nil {
		return err
	}
	return errors.Join(db.Write(ctx, store.Reopen), db.Close())
}
