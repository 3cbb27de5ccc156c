package postgres

import (
	"context"
	"fmt"
)

// place is an SQL expression of the name of this database: the number of the cluster and that of
// the database in it. A standby has the name of its primary. A dump that was restored has another
// name than the original, and so has a copy by CREATE DATABASE … TEMPLATE.
const place = `(SELECT CASE WHEN has_function_privilege('pg_control_system()', 'EXECUTE') THEN (SELECT system_identifier::text FROM pg_control_system()) ELSE '' END
	|| '/' || (SELECT oid::text FROM pg_database WHERE datname = current_database()))`

// noticeCopy marks a database as a copy if its log was made in another database. The store then
// gives it a log of its own, because the original may have published further events.
func (db *DB) noticeCopy(ctx context.Context) error {
	conn, raw, err := db.connect(ctx)
	if err != nil {
		return err
	}
	usable := false
	defer func() { release(conn, usable) }()
	defer db.watch(raw)()
	_, err = raw.Exec(ctx, `UPDATE log SET copied = CASE place WHEN '' THEN copied ELSE 1 END, place = p.name FROM (SELECT `+place+` AS name) p WHERE place <> p.name`)
	if err != nil {
		return fmt.Errorf("compare the database with the one that its log was made in: %w", err)
	}
	usable = true
	return nil
}
