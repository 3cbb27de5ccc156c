package sqlite_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"loquat/internal/store"
	"loquat/internal/store/sqlite"
)

// mirror applies what a Tracker reports to a copy of the file.
type mirror struct {
	t       *testing.T
	tracker *sqlite.Tracker
	pages   map[uint32][]byte
}

func newMirror(t *testing.T, dir string) *mirror {
	t.Helper()
	tracker, err := sqlite.Track(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tracker.Close() })
	m := &mirror{t, tracker, map[uint32][]byte{}}
	commit, _ := tracker.Size()
	tracker.Take()
	for page := range commit {
		m.read(page + 1)
	}
	return m
}

func (m *mirror) read(page uint32) {
	m.t.Helper()
	b, err := m.tracker.Page(m.t.Context(), page)
	if err != nil {
		m.t.Fatal(err)
	}
	m.pages[page] = b
}

func (m *mirror) update() {
	m.t.Helper()
	if err := m.tracker.Advance(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
	commit, _ := m.tracker.Size()
	for _, page := range m.tracker.Take() {
		if page <= commit {
			m.read(page)
		}
	}
}

// file writes the copy into a directory, in which a database can be opened.
func (m *mirror) file() string {
	m.t.Helper()
	commit, _ := m.tracker.Size()
	var b bytes.Buffer
	for page := range commit {
		b.Write(m.pages[page+1])
	}
	dir := m.t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "loquat.db"), b.Bytes(), 0o600); err != nil {
		m.t.Fatal(err)
	}
	return dir
}

// The pages that a Tracker reports make a copy that SQLite finds sound, and equal to the original,
// however often the write-ahead log starts again meanwhile.
func TestTracker(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := open(t, dir)
	defer db.Close()
	write := func(query string, args ...any) {
		t.Helper()
		if err := db.Write(context.Background(), func(q store.SQL) error {
			_, err := q.Exec(query, args...)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	write(`CREATE TABLE filling (n INTEGER PRIMARY KEY, body BLOB)`)
	m := newMirror(t, dir)
	random := rand.New(rand.NewPCG(1, 2))
	starts, last := 0, m.tracker.Position()
	for n := range 600 {
		switch random.IntN(8) {
		case 0:
			write(`DELETE FROM filling WHERE n % 3 = ?`, random.IntN(3))
			if err := db.Write(context.Background(), func(q store.SQL) error {
				_, err := q.(interface{ Reclaim() (bool, error) }).Reclaim() // makes the file smaller
				return err
			}); err != nil {
				t.Fatal(err)
			}
		case 1:
			write(`UPDATE filling SET body = randomblob(20) WHERE n % 50 = ?`, random.IntN(50))
		default:
			write(`INSERT INTO filling VALUES (?, randomblob(?))`, n, random.IntN(200_000))
		}
		if random.IntN(3) > 0 {
			continue
		}
		m.update()
		if err := m.tracker.Turn(t.Context()); err != nil {
			t.Fatal(err)
		}
		if p := m.tracker.Position(); p.Salts != last.Salts {
			starts++
			last = p
		}
		if n%60 < 3 {
			compareTables(t, db, m)
		}
	}
	m.update()
	compareTables(t, db, m)
	if starts < 2 {
		t.Errorf("the write-ahead log started again %d times", starts)
	}
}

func compareTables(t *testing.T, db *sqlite.DB, m *mirror) {
	t.Helper()
	m.update()
	copied := open(t, m.file())
	defer copied.Close()
	for _, query := range []string{`SELECT count(*) FROM filling`, `SELECT coalesce(sum(length(body) * n), 0) FROM filling`} {
		if got, want := number(t, copied, query), number(t, db, query); got != want {
			t.Errorf("%s is %d and in the copy %d", query, want, got)
		}
	}
	if wrong := number(t, copied, `SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'`); wrong != 0 {
		t.Errorf("SQLite finds %d faults in the copy", wrong)
	}
}

// A later Tracker resumes at the position of an earlier one, unless the log started again.
func TestTrackerResumes(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir)
	defer db.Close()
	fill(t, db, 1)
	m := newMirror(t, dir)
	position := m.tracker.Position()
	commit, _ := m.tracker.Size()
	if err := m.tracker.Close(); err != nil {
		t.Fatal(err)
	}
	fill(t, db, 1)
	later, err := sqlite.Track(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	known, err := later.Resume(t.Context(), position, commit)
	if err != nil || !known {
		t.Fatalf("%t %v", known, err)
	}
	m.tracker = later
	for _, page := range later.Take() {
		m.read(page)
	}
	want := number(t, db, `SELECT count(*) FROM answers`)
	copied := open(t, m.file())
	defer copied.Close()
	if got := number(t, copied, `SELECT count(*) FROM answers`); got != want {
		t.Errorf("%d rows, want %d", got, want)
	}
	position = later.Position()
	if err := later.Close(); err != nil {
		t.Fatal(err)
	}
	fill(t, db, 6)
	awaitSmallLog(t, dir)
	latest, err := sqlite.Track(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer latest.Close()
	if known, err := latest.Resume(t.Context(), position, commit); known || err != nil {
		t.Errorf("resumed in a log that started again: %v", err)
	}

	// The log may be truncated while the tracker reads it.
	fill(t, db, 1)
	last, err := sqlite.Track(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer last.Close()
	position = last.Position()
	if err := os.Truncate(filepath.Join(dir, "loquat.db-wal"), 0); err != nil {
		t.Fatal(err)
	}
	if known, err := last.Resume(t.Context(), position, commit); known || err != nil {
		t.Errorf("resumed in a log that was truncated: %v", err)
	}
}

// A position in a log without frames says nothing: SQLite removes the log at the end and makes it again.
func TestTrackerDoesNotResumeInAnEmptyLog(t *testing.T) {
	dir := t.TempDir()
	server := func() {
		t.Helper()
		db := open(t, dir)
		fill(t, db, 1)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	server()
	first, err := sqlite.Track(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	position := first.Position()
	commit, _ := first.Size()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	server()
	later, err := sqlite.Track(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer later.Close()
	if known, err := later.Resume(t.Context(), position, commit); known || err != nil {
		t.Errorf("resumed after changes that the log does not have: %v", err)
	}
}

// A Tracker may begin before the server: the log is empty then, and its index does not say how large a page is.
func TestTrackerBeforeTheWriter(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := open(t, dir)
	write(t, db, `CREATE TABLE filling (n INTEGER PRIMARY KEY, body BLOB)`)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	m := newMirror(t, dir)
	if _, size := m.tracker.Size(); size != 4096 {
		t.Errorf("a page has %d bytes", size)
	}
	m.update()
	db = open(t, dir)
	defer db.Close()
	for range 3 {
		write(t, db, `INSERT INTO filling (body) VALUES (randomblob(10000))`)
		compareTables(t, db, m)
	}
}

// A backup has no log until a server has opened it, and the error says that.
func TestTrackerOfBackup(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	if err := open(t, from).Close(); err != nil {
		t.Fatal(err)
	}
	if err := sqlite.Copy(t.Context(), from, to, func(store.SQL) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Track(t.Context(), to); err == nil || !strings.Contains(err.Error(), "start the server first") {
		t.Errorf("Track of a backup: %v", err)
	}
	if err := open(t, to).Close(); err != nil {
		t.Fatal(err)
	}
	newMirror(t, to)
}
