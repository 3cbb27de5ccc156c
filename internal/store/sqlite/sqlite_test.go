package sqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"loquat/internal/store"
	"loquat/internal/store/datadir"
	"loquat/internal/store/sqlite"
	"loquat/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, dir string) *sqlite.DB {
	t.Helper()
	db, err := sqlite.Open(t.Context(), dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func TestContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Open {
		dir := filepath.Join(t.TempDir(), "with a space & 50%?")
		return func(t *testing.T) store.Driver { return open(t, dir) }
	})
}

func TestOneProcessADirectory(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir)
	_, err := sqlite.Open(t.Context(), dir, slog.Default())
	if err == nil || !strings.Contains(err.Error(), "process "+strconv.Itoa(os.Getpid())) || !strings.Contains(err.Error(), "--data") {
		t.Errorf("a second opening: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := open(t, dir).Close(); err != nil {
		t.Errorf("opening after closing: %v", err)
	}
}

// The error for a file that is not a database says what to do.
func TestDamagedFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "loquat.db")
	if err := os.WriteFile(path, bytes.Repeat([]byte("no database "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := sqlite.Open(t.Context(), dir, slog.Default())
	if err == nil || !strings.Contains(err.Error(), path+": file is not a database (26); put a backup in its place") {
		t.Errorf("Open = %v, %v", db, err)
	}
}

// A server that is killed while it makes the file leaves a rollback journal, because the file is not in
// write-ahead mode yet. The next start makes the file again.
func TestKilledWhileTheFileIsMade(t *testing.T) {
	dir := cutOff(t)
	if in, err := sqlite.Inspect(t.Context(), dir, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "start the server once") {
		t.Errorf("inspected: %v", err)
		if err == nil {
			in.Close()
		}
	}
	db := open(t, dir)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	in, err := sqlite.Inspect(t.Context(), dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if wrong, err := in.Integrity(t.Context(), true); err != nil || len(wrong) > 0 {
		t.Errorf("wrong: %q, %v", wrong, err)
	}
}

// cutOff returns a directory with the files of a new database in the middle of its first transaction.
func cutOff(t *testing.T) string {
	at, dir := t.TempDir(), t.TempDir()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(at, "loquat.db")+"?_pragma=cache_size(1)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.Exec(`CREATE TABLE a (b); INSERT INTO a VALUES (zeroblob(100000)); INSERT INTO a VALUES (zeroblob(100000))`); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"loquat.db", "loquat.db-journal"} {
		bytes, err := os.ReadFile(filepath.Join(at, name))
		if err != nil || len(bytes) == 0 {
			t.Fatalf("%s has %d bytes, %v", name, len(bytes), err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), bytes, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestNewerFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir)
	if err := db.Write(t.Context(), func(q store.SQL) error {
		_, err := q.Exec(`PRAGMA user_version = 999`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Open(t.Context(), dir, slog.Default()); err == nil || !strings.Contains(err.Error(), "schema 999") {
		t.Errorf("opening a newer file: %v", err)
	}
	// The failed opening has unlocked the directory.
	if _, err := sqlite.Open(t.Context(), dir, slog.Default()); err == nil || strings.Contains(err.Error(), "in use") {
		t.Errorf("opening it again: %v", err)
	}
}

// A file of each older version is migrated to the schema of a new one and keeps its store_id.
// The steps are numbered without gaps: databases beyond a gap would never run a step that
// fills it later.
func TestOlderFilesAreMigrated(t *testing.T) {
	steps, err := os.ReadDir("schema")
	if err != nil {
		t.Fatal(err)
	}
	fresh := tables(t, t.TempDir())
	for version := range steps {
		if prefix := fmt.Sprintf("%02d_", version+1); !strings.HasPrefix(steps[version].Name(), prefix) {
			t.Errorf("step %s does not begin with %s", steps[version].Name(), prefix)
		}
		if version == 0 {
			continue
		}
		statements := []string{`INSERT INTO log (store_id) VALUES ('old')`, fmt.Sprintf(`PRAGMA user_version = %d`, version)}
		for _, step := range slices.Backward(steps[:version]) {
			text, err := os.ReadFile(filepath.Join("schema", step.Name()))
			if err != nil {
				t.Fatal(err)
			}
			statements = slices.Insert(statements, 0, string(text))
		}
		dir := t.TempDir()
		old, err := sql.Open("sqlite", filepath.Join(dir, "loquat.db"))
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range statements {
			if _, err := old.Exec(statement); err != nil {
				t.Fatalf("version %d: %v", version, err)
			}
		}
		if err := old.Close(); err != nil {
			t.Fatal(err)
		}
		if got := tables(t, dir); got != strings.Replace(fresh, "new", "old", 1) {
			t.Errorf("version %d becomes\n%s\na new file is\n%s", version, got, fresh)
		}
	}
}

// tables opens the store of a directory and returns whether it is new and the statements that
// create its tables.
func tables(t *testing.T, dir string) string {
	t.Helper()
	db := open(t, dir)
	defer db.Close()
	var out []string
	err := db.Read(t.Context(), func(q store.SQL) error {
		rows, err := q.Query(`SELECT CASE store_id WHEN 'old' THEN 'old' ELSE 'new' END FROM log
			UNION ALL SELECT sql FROM (SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name)`)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var text string
			if err := rows.Scan(&text); err != nil {
				return err
			}
			out = append(out, text)
		}
		return rows.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, "\n")
}

// fill writes MiB after MiB, each replacing the one before.
func fill(t *testing.T, db *sqlite.DB, mib int) {
	t.Helper()
	for range mib {
		if err := db.Write(t.Context(), func(q store.SQL) error {
			_, err := q.Exec(`REPLACE INTO answers (idempotency_key, method, path, at, body_hash, result) VALUES ('k', 'm', 'p', 0, x'00', zeroblob(1048576))`)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// walSize returns the size of the write-ahead log in MiB, rounded up.
func walSize(t *testing.T, dir string) int {
	t.Helper()
	info, err := os.Stat(filepath.Join(dir, "loquat.db-wal"))
	if err != nil {
		t.Fatal(err)
	}
	return int((info.Size() + 1<<20 - 1) >> 20)
}

// Reclaim shrinks the file after its rows are removed, and comes to an end.
func TestRoomIsGivenBack(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir)
	write := func(fn func(store.SQL) error) {
		t.Helper()
		if err := db.Write(t.Context(), fn); err != nil {
			t.Fatal(err)
		}
	}
	write(func(q store.SQL) error {
		_, err := q.Exec(`INSERT INTO answers (idempotency_key, method, path, at, body_hash, result)
			WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) SELECT i, 'm', 'p', 0, x'00', zeroblob(5000) FROM n`)
		return err
	})
	write(func(q store.SQL) error {
		_, err := q.Exec(`DELETE FROM answers`)
		return err
	})
	steps := 0
	for more := true; more; steps++ {
		if steps > 100 {
			t.Fatal("giving room back does not end")
		}
		write(func(q store.SQL) (err error) {
			more, err = q.(interface{ Reclaim() (bool, error) }).Reclaim()
			return err
		})
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "loquat.db"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > 1<<20 {
		t.Errorf("the file has %d bytes and nothing in it, after %d steps", info.Size(), steps)
	}
}

// A large write-ahead log is truncated once the database is idle.
func TestWriteAheadLogAtRest(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir)
	defer db.Close()
	fill(t, db, 6)
	awaitSmallLog(t, dir)
}

func awaitSmallLog(t *testing.T, dir string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); walSize(t, dir) > 4; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the write-ahead log has still %d MiB", walSize(t, dir))
		}
	}
}

// So is that of a database which nobody has written to for so long that it looks after nothing.
func TestWriteAheadLogAfterARest(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for the rest to begin")
	}
	dir := t.TempDir()
	db, unused := open(t, dir), open(t, t.TempDir())
	fill(t, db, 1)
	time.Sleep(datadir.MarkSyncEvery + time.Second)
	if err := unused.Close(); err != nil {
		t.Error(err)
	}
	fill(t, db, 6)
	awaitSmallLog(t, dir)
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// A long read lets the write-ahead log grow, but only slightly beyond the hard limit. The
// writer is delayed, but does not fail.
func TestWriteAheadLogThatIsPinned(t *testing.T) {
	if testing.Short() {
		t.Skip("writes more than the hard limit")
	}
	dir := t.TempDir()
	db := open(t, dir)
	defer db.Close()
	fill(t, db, 1)
	reading, release, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		ended <- db.Read(context.Background(), func(q store.SQL) error {
			rows, err := q.Query(`SELECT count(*) FROM answers`)
			if err != nil {
				return err
			}
			defer rows.Close()
			rows.Next()
			close(reading)
			<-release
			return rows.Err()
		})
	}()
	<-reading
	time.AfterFunc(time.Second, func() { close(release) })
	// Another WAL checkpoint blocks the writer's own only briefly, so it must not make the
	// writer's waits rarer.
	ctx, stop := context.WithCancel(t.Context())
	others := make(chan error)
	for range 3 {
		go func() { others <- copyBackAllTheTime(ctx, filepath.Join(dir, "loquat.db")) }()
	}
	fill(t, db, 90)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	stop()
	for range 3 {
		if err := <-others; err != nil {
			t.Error(err)
		}
	}
	if size := walSize(t, dir); size > 64+8 {
		t.Errorf("the write-ahead log has %d MiB", size)
	}
}

func copyBackAllTheTime(ctx context.Context, file string) error {
	db, err := sql.Open("sqlite", file)
	if err != nil {
		return err
	}
	defer db.Close()
	for ctx.Err() == nil {
		if _, err := db.Exec(`PRAGMA wal_checkpoint(PASSIVE)`); err != nil {
			return err
		}
	}
	return nil
}

func TestDirectoryThatCannotBeMade(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Open(t.Context(), filepath.Join(file, "data"), slog.Default()); err == nil {
		t.Error("opened a directory below a file")
	}
}

// A panic within a transaction rolls it back.
func TestPanicRollsBack(t *testing.T) {
	db := open(t, t.TempDir())
	defer db.Close()
	func() {
		defer func() { _ = recover() }()
		_ = db.Write(t.Context(), func(q store.SQL) error {
			if _, err := q.Exec(`UPDATE log SET last_event_id = 7`); err != nil {
				t.Error(err)
			}
			panic("a programmer's mistake")
		})
	}()
	var last int
	if err := db.Write(t.Context(), func(q store.SQL) error {
		rows, err := q.Query(`SELECT last_event_id FROM log`)
		if err != nil {
			return err
		}
		defer rows.Close()
		rows.Next()
		return rows.Scan(&last)
	}); err != nil || last != 0 {
		t.Errorf("last_event_id is %d, %v", last, err)
	}
}

// While commits follow each other closely, the write-ahead log starts again long before its
// hard limit.
func TestLogStartsAgainWhileBusy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := open(t, dir)
	defer db.Close()
	if err := db.Write(t.Context(), func(q store.SQL) error {
		_, err := q.Exec(`CREATE TABLE filling (body BLOB)`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	largest := 0
	for range 3000 { // in all more than the hard limit, and little in the time of one WAL checkpoint
		time.Sleep(time.Millisecond)
		if err := db.Write(t.Context(), func(q store.SQL) error {
			_, err := q.Exec(`INSERT INTO filling VALUES (zeroblob(32768))`)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		largest = max(largest, walSize(t, dir))
	}
	if largest > 48 {
		t.Errorf("the write-ahead log had %d MiB", largest)
	}
}
