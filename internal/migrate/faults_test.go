//go:build unix

package migrate_test

import (
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/migrate"
	"loquat/internal/migrate/migratetest"
	"loquat/internal/store"
	"loquat/internal/store/postgres/pgtest"
	"loquat/internal/store/sqlite"
)

// small makes a store of two sessions in a directory.
func small(t *testing.T) migrate.Place {
	p := directory(t)
	with(t, p, func(s *store.Store) { migratetest.Fill(t, s, 2, 1) })
	return p
}

// alter runs a statement on the database file of a directory.
func alter(t *testing.T, p migrate.Place, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(p.Dir, "loquat.db"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.Exec(statement)
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// A move that is refused says why, and changes neither side.
func TestRefusals(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	exec := func(statements ...string) {
		t.Helper()
		for _, s := range statements {
			if err := server.Exec("postgres", s); err != nil {
				t.Fatal(err)
			}
		}
	}
	exec(`CREATE ROLE guest LOGIN`, `CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0`, `CREATE DATABASE owned`)
	if err := server.Exec("owned", `REVOKE CREATE ON SCHEMA public FROM PUBLIC`); err != nil {
		t.Fatal(err)
	}
	guest := strings.Replace(server.URL("owned"), "postgres@", "guest@", 1)
	used, usedDir := database(t), small(t)
	with(t, used, func(s *store.Store) { migratetest.Fill(t, s, 1, 1) })
	otherTarget := database(t)
	with(t, otherTarget, func(*store.Store) {})
	say(t, otherTarget, store.Move{Kind: store.Incoming, Store: "another-store", Place: "/elsewhere"})
	empty := filepath.Join(t.TempDir(), "nothing")
	for _, c := range []struct {
		name     string
		from, to migrate.Place
		want     []string
	}{
		{"no source", migrate.Place{Dir: empty}, database(t), []string{"--from:", "there is no data in " + empty}},
		{"a database without a store", database(t), directory(t), []string{"--from:", "has no sessions of Loquat"}},
		{"two directories", usedDir, directory(t), []string{"both places are data directories", "loquat backup"}},
		{"two databases", used, database(t), []string{"both places are databases", "pg_dump"}},
		{"a database that does not exist", usedDir, migrate.Place{URL: server.URL("missing")}, []string{"--to:", "does not exist", "CREATE DATABASE"}},
		{"another encoding", usedDir, migrate.Place{URL: server.URL("latin")}, []string{"--to:", "the encoding LATIN1"}},
		{"no rights", usedDir, migrate.Place{URL: guest}, []string{"--to:", "permission denied", "owner of the database"}},
		{"a database in use by others", usedDir, used, []string{"--to:", "is not empty", "name an empty database"}},
		{"a target of another move", usedDir, otherTarget, []string{"--to:", "a move from /elsewhere", "name an empty database"}},
		{"a directory with a store", used, usedDir, []string{"--to:", "loquat.db exists", "without a database"}},
		{"an unreachable server", usedDir, migrate.Place{URL: "postgres://u:secret@127.0.0.1:1/x"}, []string{"--to:", "127.0.0.1:1"}},
	} {
		text := fails(t, c.from, c.to)
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %s; it lacks %q", c.name, text, want)
			}
		}
		if strings.Contains(text, "secret") {
			t.Errorf("%s: the error shows the password: %s", c.name, text)
		}
	}
	if _, err := os.Stat(empty); err == nil {
		t.Error("a directory was created")
	}
	if err := server.Exec("postgres", "DROP DATABASE owned"); err != nil { // no connection is left
		t.Error(err)
	}
	for _, p := range []migrate.Place{used, usedDir} {
		with(t, p, func(s *store.Store) {
			if s.Last() == 0 {
				t.Errorf("%s is empty", p)
			}
		})
	}
}

// A damaged source is not moved.
func TestDamagedSource(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, statement, want string }{
		{"a missing message", `DELETE FROM messages WHERE id = 1`, "sessions have as many messages as they say"},
		{"JSON that is not valid", `UPDATE events SET body = '{' WHERE event_id = 1`, "event 0000000000000001"},
		{"a number that is a text", `UPDATE messages SET created_at = 'x' WHERE id = 1`, "created_at"},
		{"lost events", `UPDATE log SET last_event_id = 3; DELETE FROM events WHERE event_id > 3; UPDATE sessions SET deleted = 2, cursor_event_id = 3, checkpoint_event_id = 3; DELETE FROM increments`, "has lost the events from 0000000000000004"},
	} {
		t.Run(c.name, func(t *testing.T) {
			from, to := small(t), database(t)
			alter(t, from, c.statement)
			if text := fails(t, from, to); !strings.Contains(text, c.want) {
				t.Errorf("%s; it lacks %q", text, c.want)
			}
			with(t, to, func(s *store.Store) {
				if s.Last() != 0 {
					t.Error("the target has events")
				}
			})
		})
	}
}

// A damaged database is not moved either.
func TestDamagedDatabase(t *testing.T) {
	name, url := pgtest.Shared(t).Database(t)
	from, to := migrate.Place{URL: url}, directory(t)
	with(t, from, func(s *store.Store) { migratetest.Fill(t, s, 2, 1) })
	if err := pgtest.Shared(t).Exec(name, `DELETE FROM messages WHERE id = 1`); err != nil {
		t.Fatal(err)
	}
	if text := fails(t, from, to); !strings.Contains(text, "sessions have as many messages as they say") || !strings.Contains(text, "pg_amcheck") {
		t.Error(text)
	}
	if sqlite.Exists(to.Dir) {
		t.Error("the directory has a database")
	}
}

// The disk of the target is full in the middle. The same source can be moved elsewhere.
func TestFullDatabase(t *testing.T) {
	t.Parallel()
	server := pgtest.StartSmall(t, 24)
	from, to := directory(t), migrate.Place{URL: server.URL("small")}
	var before []string
	with(t, from, func(s *store.Store) {
		add(t, s, "one")
		random := make([]byte, 16<<20) // PostgreSQL compresses other texts
		rand.Read(random)
		err := s.Update(t.Context(), func(tx *store.Tx) error {
			h, err := tx.Head("one")
			if err != nil {
				return err
			}
			if _, err := tx.AppendMessage(&h, loquat.Message{ID: "large", Role: loquat.RoleUser, Content: hex.EncodeToString(random), CreatedAt: tx.Now}); err != nil {
				return err
			}
			return tx.Checkpoint(&h, nil, false)
		})
		if err != nil {
			t.Fatal(err)
		}
		before = content(t, s)
	})
	if text := fails(t, from, to); !strings.Contains(text, "No space left on device") {
		t.Error(text)
	}
	with(t, to, func(s *store.Store) {
		if s.Last() != 0 {
			t.Error("the target has events")
		}
	})
	elsewhere := database(t)
	run(t, from, elsewhere)
	with(t, elsewhere, func(s *store.Store) { same(t, "the other database", content(t, s), before) })
}

// The disk of the target directory is full in the middle.
func TestFullDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("a file system to fill cannot be mounted here: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	from, to := database(t), migrate.Place{Dir: filepath.Join(dir, "data")}
	var before []string
	with(t, from, func(s *store.Store) { migratetest.AddEverything(t, s); before = content(t, s) })
	if text := fails(t, from, to); !strings.Contains(text, "full") {
		t.Error(text)
	}
	if sqlite.Exists(to.Dir) {
		t.Error("the directory has a database")
	}
	with(t, from, func(s *store.Store) { same(t, "the source", content(t, s), before) })
	elsewhere := directory(t)
	run(t, from, elsewhere)
	with(t, elsewhere, func(s *store.Store) { same(t, "the directory", content(t, s), before) })
}

// A data directory of an older version is upgraded before it is moved.
func TestOldDirectory(t *testing.T) {
	archive, err := filepath.Glob("../e2e/upgrade/testdata/data-of-*.tar.gz")
	if err != nil || len(archive) == 0 {
		t.Fatalf("there is no old data directory: %v", err)
	}
	var places []migrate.Place
	for range 2 {
		p := migrate.Place{Dir: t.TempDir()}
		if out, err := exec.Command("tar", "-xzf", archive[0], "-C", p.Dir).CombinedOutput(); err != nil {
			t.Fatalf("tar: %v: %s", err, out)
		}
		places = append(places, p)
	}
	to := database(t)
	run(t, places[0], to)
	var want []string
	with(t, places[1], func(s *store.Store) { want = content(t, s) })
	with(t, to, func(s *store.Store) { same(t, "the database", content(t, s), want) })
	if len(want) < 100 {
		t.Errorf("the old directory has only %d lines", len(want))
	}
}

// Rows that only years of use make: numbers above 2^53, ids of other logs, removed events, and
// deleted sessions whose rows are gone.
func TestUnusualRows(t *testing.T) {
	from, to, back := small(t), database(t), directory(t)
	const high = int64(1)<<62 + 1
	alter(t, from, fmt.Sprintf(`UPDATE log SET last_event_id = %d, gone_event_id = 4, server_id = 'the first';
		INSERT INTO foreign_ids (above, below) VALUES (%d, %d);
		UPDATE sessions SET gone_event_id = 4; DELETE FROM events WHERE event_id <= 4;
		INSERT INTO sessions (sid, session_id, agent_id, metadata, created_at, updated_at, deleted) VALUES (%d, 'long gone', '', '{}', 1, 1, 2);
		INSERT INTO freed_files (sha256) VALUES ('00'); INSERT INTO unattached (sid, asset_id, created_at) VALUES (1, 'a', 1);
		INSERT INTO answers (idempotency_key, method, path, at, body_hash, result) VALUES ('', '', '', -1, x'', x'00ff')`, high, high-10, high-5, high))
	run(t, from, to)
	with(t, to, func(s *store.Store) {
		if s.Last() != loquat.EventID(high) || s.ServerID() != "the first" || !s.Foreign(loquat.EventID(high-7)) || s.Foreign(loquat.EventID(high-4)) {
			t.Errorf("last %d, server %s", s.Last(), s.ServerID())
		}
		err := s.View(t.Context(), func(r *store.Reader) error {
			taken, err := r.Taken("long gone")
			if !taken {
				t.Error("the id of a deleted session is free")
			}
			gone, goneErr := r.NewestRemoved(store.Filter{})
			if gone != 4 {
				t.Errorf("the newest removed event is %d", gone)
			}
			return errors.Join(err, goneErr)
		})
		if err != nil {
			t.Error(err)
		}
		add(t, s, "new")
	})
	run(t, to, back)
	with(t, back, func(s *store.Store) {
		if s.Last() != loquat.EventID(high+12) {
			t.Errorf("last %d", s.Last())
		}
	})
}
