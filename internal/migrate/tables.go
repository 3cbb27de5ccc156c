package migrate

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"iter"
	"slices"
	"strings"
	"time"

	"loquat/internal/store"
)

// size is how much there is to copy.
type size struct{ rows, bytes int64 }

// count returns the size of all tables.
func (m *mover) count(q store.SQL) (all size, err error) {
	for _, t := range store.Tables {
		columns, err := m.From.columns(q, t.Name)
		if err != nil {
			return size{}, err
		}
		bytes := []string{fmt.Sprintf("%d * count(*)", 8*len(columns))}
		for _, c := range columns {
			if c.Type != store.Integer {
				bytes = append(bytes, "coalesce(sum(octet_length("+c.Name+") - 8), 0)")
			}
		}
		rows, err := q.Query(`SELECT count(*), CAST(` + strings.Join(bytes, " + ") + ` AS BIGINT) FROM ` + t.Name)
		if err != nil {
			return size{}, err
		}
		values, err := one(rows, 2)
		if err != nil {
			return size{}, err
		}
		all.rows += values[0].(int64)
		all.bytes += values[1].(int64)
	}
	return all, nil
}

// one returns the values of the only row.
func one(rows *sql.Rows, n int) ([]any, error) {
	defer rows.Close()
	if !rows.Next() {
		return nil, errors.Join(errors.New("there is no row"), rows.Err())
	}
	values, err := scan(rows, n)
	return values, errors.Join(err, rows.Close())
}

func scan(rows *sql.Rows, n int) ([]any, error) {
	values, dest := make([]any, n), make([]any, n)
	for i := range values {
		dest[i] = &values[i]
	}
	return values, rows.Scan(dest...)
}

// progress counts the rows of a step and reports them.
type progress struct {
	Progress
	report func(Progress)
	began  time.Time
}

func (m *mover) start(step string, all size) *progress {
	p := &progress{Progress: Progress{Step: step, AllRows: all.rows, AllSize: all.bytes, Left: -1}, report: m.Progress, began: time.Now()}
	p.report(p.Progress)
	return p
}

// rowCost is the time of a row without its bytes, compared with that of a byte. It only makes the
// estimate better.
const rowCost = 200

func (p *progress) add(rows, bytes int64) {
	p.Rows, p.Bytes = p.Rows+rows, p.Bytes+bytes
	done, all := rowCost*p.Rows+p.Bytes, rowCost*p.AllRows+p.AllSize
	if elapsed := time.Since(p.began); elapsed > time.Second && done > 0 {
		p.Left = time.Duration(float64(elapsed) * float64(max(0, all-done)) / float64(done))
	}
	p.report(p.Progress)
}

// tableDigest says whether two tables have the same rows.
type tableDigest struct {
	rows int64
	sum  [sha256.Size]byte
}

// rowHash hashes rows. Text and bytes have the same hash, because databases store texts as either.
type rowHash struct {
	hash.Hash
	rows int64
	buf  []byte
}

func (h *rowHash) add(row []any) {
	h.rows++
	for _, value := range row {
		switch v := value.(type) {
		case nil:
			h.buf = append(h.buf[:0], 'n')
		case int64:
			h.buf = binary.BigEndian.AppendUint64(append(h.buf[:0], 'i'), uint64(v))
		case string:
			h.buf = append(binary.BigEndian.AppendUint64(append(h.buf[:0], 'b'), uint64(len(v))), v...)
		case []byte:
			h.buf = binary.BigEndian.AppendUint64(append(h.buf[:0], 'b'), uint64(len(v)))
			h.Write(h.buf)
			h.buf = append(h.buf[:0], ';')
			h.Write(v)
		}
		h.Write(h.buf)
	}
}

func (h *rowHash) digest() (d tableDigest) {
	d.rows = h.rows
	h.Sum(d.sum[:0])
	return d
}

// columns returns the columns of a table, with their types in the target. Both sides must have the
// same columns.
func (m *mover) columns(q, copied store.SQL, table string) ([]store.Column, error) {
	from, err := m.From.columns(q, table)
	if err != nil {
		return nil, err
	}
	to, err := m.To.columns(copied, table)
	if err != nil {
		return nil, err
	}
	if a, b := names(from), names(to); !slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))) {
		return nil, fmt.Errorf("the table %s has the columns %s in %s and %s in %s", table, strings.Join(a, ", "), m.From, strings.Join(b, ", "), m.To)
	}
	return to, nil
}

func names(columns []store.Column) (out []string) {
	for _, c := range columns {
		out = append(out, c.Name)
	}
	return out
}

// tableRows reads the rows of a table in the order of its key.
type tableRows struct {
	table   store.Table
	columns []store.Column
	reset   []bool // by column
	rows    *sql.Rows
	hash    rowHash
	p       *progress
}

func readTable(q store.SQL, t store.Table, columns []store.Column, p *progress) (*tableRows, error) {
	in := &tableRows{table: t, columns: columns, hash: rowHash{Hash: sha256.New()}, p: p}
	for _, c := range columns {
		in.reset = append(in.reset, slices.Contains(t.Reset, c.Name))
	}
	var err error
	in.rows, err = q.Query(`SELECT ` + strings.Join(names(columns), ", ") + ` FROM ` + t.Name + ` ORDER BY ` + t.Key)
	if err != nil {
		return nil, fmt.Errorf("read the table %s: %w", t.Name, err)
	}
	return in, nil
}

// next returns the next row, or nil at the end.
func (in *tableRows) next() ([]any, error) {
	if !in.rows.Next() {
		if err := errors.Join(in.rows.Err(), in.rows.Close()); err != nil {
			return nil, fmt.Errorf("read the table %s: %w", in.table.Name, err)
		}
		return nil, nil
	}
	row, err := scan(in.rows, len(in.columns))
	if err != nil {
		return nil, fmt.Errorf("read the table %s: %w", in.table.Name, err)
	}
	for i, c := range in.columns {
		if row[i], err = c.Type.Convert(row[i]); err != nil {
			return nil, fmt.Errorf("the column %s of the table %s: %w", c.Name, in.table.Name, err)
		}
		if in.reset[i] {
			row[i] = ""
		}
	}
	in.hash.add(row)
	in.p.add(1, int64(store.RowSize(row)))
	return row, nil
}

// copyTable copies a table and returns the digest of its rows.
func (m *mover) copyTable(ctx context.Context, q store.SQL, t store.Table, p *progress) (d tableDigest, err error) {
	var columns []store.Column
	err = m.target.Read(ctx, func(copied store.SQL) error {
		columns, err = m.columns(q, copied, t.Name)
		return err
	})
	if err != nil {
		return tableDigest{}, err
	}
	in, err := readTable(q, t, columns, p)
	if err != nil {
		return tableDigest{}, err
	}
	defer in.rows.Close()
	err = m.target.Load(ctx, t.Name, columns, func() ([]any, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return in.next()
	})
	return in.hash.digest(), err
}

// compare compares what both stores have: the rows of all tables, what snapshots of all sessions
// show, and the log.
func (m *mover) compare(q, copied store.SQL, all size) error {
	p := m.start("comparing the rows", all)
	for _, t := range store.Tables {
		columns, err := m.columns(q, copied, t.Name)
		if err != nil {
			return err
		}
		d, err := digestTable(copied, t, columns, p)
		if err != nil {
			return err
		}
		if want := m.copied[t.Name]; d != want {
			return fmt.Errorf("the copy of the table %s is not equal: %d rows were written and %d read back; nothing was moved", t.Name, want.rows, d.rows)
		}
	}
	if err := m.compareSessions(q, copied); err != nil {
		return err
	}
	return m.compareLogs(q, copied)
}

// digestTable returns the digest of a table's rows.
func digestTable(q store.SQL, t store.Table, columns []store.Column, p *progress) (tableDigest, error) {
	in, err := readTable(q, t, columns, p)
	if err != nil {
		return tableDigest{}, err
	}
	defer in.rows.Close()
	for {
		row, err := in.next()
		if err != nil || row == nil {
			return in.hash.digest(), err
		}
	}
}

// session is a session and the digest of what its snapshot shows.
type session struct {
	id     string
	digest store.Digest
}

// sessions yields the sessions of q, and at the end the error that ended the reading.
func sessions(q store.SQL) iter.Seq2[session, error] {
	return func(yield func(session, error) bool) {
		stopped := errors.New("stopped")
		err := store.DigestSessions(q, func(id string, d store.Digest) error {
			if !yield(session{id, d}, nil) {
				return stopped
			}
			return nil
		})
		if err != nil && err != stopped {
			yield(session{}, err)
		}
	}
}

// compareSessions compares the snapshots of all sessions, one at a time.
func (m *mover) compareSessions(q, copied store.SQL) error {
	p := m.start("comparing the sessions", size{rows: int64(m.report.Sessions)})
	nextCopy, stop := iter.Pull2(sessions(copied))
	defer stop()
	for s, err := range sessions(q) {
		if err != nil {
			return err
		}
		c, err, ok := nextCopy()
		if err != nil {
			return err
		}
		if !ok || c != s {
			return fmt.Errorf("the copy of session %s is not equal; nothing was moved", s.id)
		}
		p.add(1, 0)
	}
	if c, err, ok := nextCopy(); ok {
		return errors.Join(err, fmt.Errorf("the copy has a session %s, which the source does not have", c.id))
	}
	return nil
}

// compareLogs compares the events as readers of the log get them.
func (m *mover) compareLogs(q, copied store.SQL) error {
	var digests [2]store.Digest
	p := m.start("comparing the log", size{rows: 2 * int64(m.report.Events)})
	for i, side := range []store.SQL{q, copied} {
		var err error
		if digests[i], err = store.DigestLog(side, func(events int) { p.add(int64(events), 0) }); err != nil {
			return fmt.Errorf("read the log: %w", err)
		}
	}
	if digests[0] != digests[1] {
		return errors.New("the copy of the log is not equal; nothing was moved")
	}
	return nil
}
