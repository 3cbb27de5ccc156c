package sqlite

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"loquat/internal/store"
)

// PlanUpgrade returns what a start on a directory would change in its database. It changes nothing,
// and a server may use the directory. It fails if this program cannot open the database.
func PlanUpgrade(ctx context.Context, dir string, log *slog.Logger) (u store.Upgrade, err error) {
	in, version, err := inspect(ctx, dir, log)
	if err != nil {
		return store.Upgrade{}, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	all, err := store.Steps(steps)
	if err != nil {
		return store.Upgrade{}, err
	}
	u = store.Upgrade{From: version, To: len(all), Least: len(all), InUse: in.InUse, Tables: store.WholeTables(all[:version], all[version:])}
	for _, suffix := range []string{"", "-wal"} {
		if info, err := os.Stat(in.path + suffix); err == nil {
			u.Size += info.Size()
		}
	}
	return u, in.requireInPlace(ctx)
}

// requireInPlace returns an error if the store is a side of a move. Stores of versions that knew no
// moves are none.
func (in *Inspection) requireInPlace(ctx context.Context) error {
	return in.Read(ctx, func(q store.SQL) error {
		columns, err := Columns(q, "log")
		if err != nil {
			return err
		}
		for _, c := range columns {
			if c.Name == "moving" {
				return store.RequireInPlace(q)
			}
		}
		return nil
	})
}
