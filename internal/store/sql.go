package store

import (
	"database/sql"
	"errors"
)

// SQL is a transaction of a driver.
type SQL interface {
	// Exec returns the number of changed rows.
	Exec(query string, args ...any) (int64, error)
	Query(query string, args ...any) (*sql.Rows, error)
}

// databaseError is a failure of the database itself, not of the operation.
type databaseError struct{ err error }

func (e *databaseError) Error() string { return e.err.Error() }
func (e *databaseError) Unwrap() error { return e.err }

func isDatabaseError(err error) bool {
	_, ok := errors.AsType[*databaseError](err)
	return ok
}

func asDatabaseError(err error) error {
	if err == nil {
		return nil
	}
	return &databaseError{err}
}

// taggedSQL returns errors of statements as databaseErrors.
type taggedSQL struct {
	SQL
	failed error    // of the first statement that failed
	silent *silence // nil unless the statements write
}

func (t *taggedSQL) tag(err error) error {
	err = asDatabaseError(err)
	if t.failed == nil {
		t.failed = err
	}
	return err
}

func (t *taggedSQL) Exec(query string, args ...any) (int64, error) {
	n, err := t.SQL.Exec(query, args...)
	t.silent.asked()
	return n, t.tag(err)
}

func (t *taggedSQL) Query(query string, args ...any) (*sql.Rows, error) {
	rows, err := t.SQL.Query(query, args...)
	t.silent.asked()
	return rows, t.tag(err)
}

// Reclaim calls the driver's Reclaim, if it has one.
func (t *taggedSQL) Reclaim() (more bool, err error) {
	r, ok := t.SQL.(reclaimer)
	if !ok {
		return false, nil
	}
	more, err = r.Reclaim()
	return more, t.tag(err)
}

// finisher is implemented by drivers that can run the last statements of a transaction together
// with its commit. The commit fails if one of them does.
type finisher interface {
	Finally(query string, args ...any) error
}

// lastSQL runs the last statements of a transaction.
type lastSQL struct{ *taggedSQL }

func (l lastSQL) Exec(query string, args ...any) (int64, error) {
	f, ok := l.SQL.(finisher)
	if !ok {
		return l.taggedSQL.Exec(query, args...)
	}
	return 0, l.tag(f.Finally(query, args...))
}

// reclaimer is implemented by drivers whose files do not shrink on their own.
type reclaimer interface{ Reclaim() (more bool, err error) }

// one scans the first row of a query. It returns sql.ErrNoRows if there is none.
func one(q SQL, query string, args []any, dest ...any) error {
	rows, err := q.Query(query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			return asDatabaseError(err)
		}
		return sql.ErrNoRows
	}
	if err := rows.Scan(dest...); err != nil {
		return err
	}
	return asDatabaseError(rows.Close())
}

// eachRow calls fn with each row of a query. fn must not run a query.
func eachRow(q SQL, query string, args []any, fn func(*sql.Rows) error) error {
	rows, err := q.Query(query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := fn(rows); err != nil {
			return asDamage(err)
		}
	}
	return closeRows(rows)
}

// closeRows closes rows that were read, before the next query. It returns the error of reading
// them, if there was one.
func closeRows(rows *sql.Rows) error {
	if err := rows.Err(); err != nil {
		return asDatabaseError(err)
	}
	return asDatabaseError(rows.Close())
}
