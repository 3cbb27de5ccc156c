package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"loquat/internal/store"
)

// PlanUpgrade returns what a start would change in the schema of a database. It changes nothing, and
// servers may use the database. It fails if this program cannot use the database, also because
// servers that use it would not know the schema.
func PlanUpgrade(ctx context.Context, opts Options) (store.Upgrade, error) {
	config, err := parse("store.url", opts.URL)
	if err != nil {
		return store.Upgrade{}, err
	}
	db := &DB{opts: opts, config: config}
	u, err := db.planUpgrade(ctx)
	if err != nil {
		return store.Upgrade{}, db.startError(err)
	}
	return u, nil
}

func (db *DB) planUpgrade(ctx context.Context) (u store.Upgrade, err error) {
	if err := db.inspect(ctx); err != nil {
		return u, err
	}
	conn, err := pgx.ConnectConfig(ctx, db.config)
	if err != nil {
		return u, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	tx, err := conn.Begin(ctx)
	if err != nil {
		return u, err
	}
	defer func() { err = errors.Join(err, tx.Rollback(context.WithoutCancel(ctx))) }() // removes what version creates
	if err := tx.QueryRow(ctx, `SELECT pg_database_size(current_database())`).Scan(&u.Size); err != nil {
		return u, err
	}
	version, least, err := db.version(ctx, tx)
	if err != nil {
		return u, err
	}
	all, err := store.Steps(steps)
	if err != nil {
		return u, err
	}
	db.schema = len(all)
	u.From, u.To, u.Least = version, len(all), least
	if least > len(all) {
		return u, db.tooNew(version, least)
	}
	if version == 0 {
		return u, nil
	}
	known := min(version, len(all))
	u.Tables = store.WholeTables(all[:known], all[known:])
	for i, step := range all[known:] {
		u.Least = max(u.Least, leastFor(step, known+i+1))
	}
	if err := db.requireKnown(ctx, tx, version, u.Least); err != nil {
		return u, err
	}
	err = tx.QueryRow(ctx, `SELECT to_regclass('nodes') IS NOT NULL`).Scan(&u.InUse)
	if err == nil && u.InUse {
		err = tx.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM nodes WHERE ended_at IS NULL AND lease_until > clock_timestamp())`).Scan(&u.InUse)
	}
	return u, err
}
