package sqlite_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"loquat/internal/store"
	"loquat/internal/store/sqlite"
)

// number returns the single number that a query reads from a file.
func number(t *testing.T, db *sqlite.DB, query string) (n int) {
	t.Helper()
	err := db.Read(t.Context(), func(q store.SQL) error {
		rows, err := q.Query(query)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := rows.Scan(&n); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A copy taken during writes is consistent and opens like the original.
func TestCopyWhileWriting(t *testing.T) {
	from := t.TempDir()
	db := open(t, from)
	defer db.Close()
	write := func(statements ...string) error {
		return db.Write(context.Background(), func(q store.SQL) error {
			for _, s := range statements {
				if _, err := q.Exec(s); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := write(`CREATE TABLE one (n INTEGER)`, `CREATE TABLE other (n INTEGER)`); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if err := write(`INSERT INTO one VALUES (1)`, `INSERT INTO other VALUES (1)`); err != nil {
				stopped <- err
				return
			}
		}
	}()
	before := 0
	for range 3 {
		to := t.TempDir()
		if err := sqlite.Copy(t.Context(), from, to, func(q store.SQL) error {
			_, err := q.Exec(`CREATE TABLE finished (n INTEGER)`)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if left, _ := filepath.Glob(filepath.Join(to, "*")); len(left) != 1 {
			t.Errorf("the copy is %v", left)
		}
		if info, err := os.Stat(filepath.Join(to, "loquat.db")); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v %v", info, err)
		}
		copied := open(t, to)
		one, other := number(t, copied, `SELECT count(*) FROM one`), number(t, copied, `SELECT count(*) FROM other`)
		if one != other || one < before || number(t, copied, `SELECT count(*) FROM finished`) != 0 {
			t.Errorf("the copy has %d and %d rows, the one before had %d", one, other, before)
		}
		if got := number(t, copied, `PRAGMA auto_vacuum`); got != 2 {
			t.Errorf("the copy gives pages back in mode %d", got)
		}
		before = number(t, db, `SELECT count(*) FROM one`)
		if err := copied.Close(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
}

// Copy returns an error that names the reason.
func TestCopyRefuses(t *testing.T) {
	copyOf := func(dir string, finish func(store.SQL) error) error {
		return sqlite.Copy(t.Context(), dir, t.TempDir(), finish)
	}
	fine := func(store.SQL) error { return nil }
	if err := copyOf(t.TempDir(), fine); err == nil || !strings.Contains(err.Error(), "there is no ") {
		t.Errorf("of nothing: %v", err)
	}
	dir := t.TempDir()
	db := open(t, dir)
	mistake := errors.New("a mistake")
	if err := copyOf(dir, func(store.SQL) error { return mistake }); !errors.Is(err, mistake) {
		t.Errorf("when finishing fails: %v", err)
	}
	if err := db.Write(t.Context(), func(q store.SQL) error {
		_, err := q.Exec(`PRAGMA user_version = 3`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := copyOf(dir, fine); err == nil || !strings.Contains(err.Error(), "it has schema 3") {
		t.Errorf("of another schema: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// A long read makes the writer wait once, not at each write.
func TestWritesDuringALongRead(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("writes more than the write-ahead log takes")
	}
	dir := t.TempDir()
	db := open(t, dir)
	write := func(n int) {
		t.Helper()
		err := db.Write(t.Context(), func(q store.SQL) error {
			_, err := q.Exec(`INSERT INTO plugin_states (plugin, state, updated_at) VALUES (?, zeroblob(4000000), 0)`, n)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reading, read := make(chan struct{}), make(chan error, 1)
	go func() {
		read <- db.Read(ctx, func(q store.SQL) error {
			rows, err := q.Query(`SELECT count(*) FROM plugin_states`)
			if err != nil {
				return err
			}
			rows.Next()
			close(reading)
			<-ctx.Done()
			return rows.Close()
		})
	}()
	<-reading
	// 120 MB: the writer waits once, at 64 MiB. The first writes show how long a write takes
	// without a wait, because this machine may be slow.
	var took []time.Duration
	for n := range 30 {
		before := time.Now()
		write(n)
		took = append(took, time.Since(before))
	}
	const wait = 4 * time.Second // a little less than the writer waits
	usual := slices.Max(took[:10])
	waits := 0
	for _, d := range took[10:] {
		if d > usual+wait {
			waits++
		}
	}
	if waits > 5 {
		t.Errorf("%d of 20 writes have waited: %v", waits, took)
	}
	if size := walSize(t, dir); size <= 64 {
		t.Errorf("the write-ahead log has %d MiB, for which no write waits", size)
	}
	cancel()
	<-read // cancelled above
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}
