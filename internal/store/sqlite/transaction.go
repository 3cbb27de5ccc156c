package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
)

// writer is the transaction of Write.
type writer struct {
	ctx context.Context
	db  *DB
}

func (w writer) statement(query string) (*sql.Stmt, error) {
	if st, ok := w.db.statements[query]; ok {
		return st, nil
	}
	st, err := w.db.write.PrepareContext(w.ctx, query)
	if err != nil {
		return nil, err
	}
	w.db.statements[query] = st
	return st, nil
}

func (w writer) Exec(query string, args ...any) (int64, error) {
	st, err := w.statement(query)
	if err != nil {
		return 0, err
	}
	res, err := st.ExecContext(w.ctx, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (w writer) Query(query string, args ...any) (*sql.Rows, error) {
	st, err := w.statement(query)
	if err != nil {
		return nil, err
	}
	return st.QueryContext(w.ctx, args...)
}

// reclaimPages is the most free pages that one call of Reclaim returns.
const reclaimPages = 500

// Reclaim returns free pages at the end of the file to the file system. It reports whether
// there may be more.
func (w writer) Reclaim() (more bool, err error) {
	before, err := w.freePages()
	if err != nil || before == 0 {
		return false, err
	}
	if _, err := w.db.write.ExecContext(w.ctx, `PRAGMA incremental_vacuum(`+strconv.Itoa(reclaimPages)+`)`); err != nil {
		return false, err
	}
	after, err := w.freePages()
	return after > 0 && after < before, err
}

func (w writer) freePages() (n int64, err error) {
	err = w.db.write.QueryRowContext(w.ctx, `PRAGMA freelist_count`).Scan(&n)
	return n, err
}

// reader is the transaction of Read.
type reader struct {
	ctx context.Context
	db  *DB
	tx  *sql.Tx
}

func (r reader) Exec(string, ...any) (int64, error) {
	return 0, errors.New("a read transaction cannot write")
}

func (r reader) Query(query string, args ...any) (*sql.Rows, error) {
	st, err := r.db.readStatement(r.ctx, query)
	if err != nil {
		return nil, err
	}
	return r.tx.StmtContext(r.ctx, st).QueryContext(r.ctx, args...)
}

func (db *DB) readStatement(ctx context.Context, query string) (*sql.Stmt, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if st, ok := db.readStmts[query]; ok {
		return st, nil
	}
	st, err := db.read.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	db.readStmts[query] = st
	return st, nil
}
