package sqlite

import (
	"context"
	"database/sql"
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

// control runs BEGIN or COMMIT. They are prepared once, like other statements: parsing them took
// about a tenth of the time that a small commit needs without its sync.
func (w writer) control(query string) error {
	st, err := w.statement(query)
	if err == nil {
		_, err = st.ExecContext(w.ctx)
	}
	return err
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
