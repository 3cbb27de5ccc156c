package sqlite_test

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"loquat"
	"loquat/internal/store"
)

// The runs of messages that changes write are those that the migration computes from the
// messages alone, and both find every message.
func TestRunsOfMessages(t *testing.T) {
	dir := t.TempDir()
	db := open(t, dir)
	s, err := store.Open(t.Context(), db, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 40 {
		err := s.Update(t.Context(), func(tx *store.Tx) error { return changeAtRandom(tx, fmt.Sprint("session ", i), random) })
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 {
		to := fmt.Sprint("copy of ", i)
		err := s.Update(t.Context(), func(tx *store.Tx) error {
			source, err := tx.Head(fmt.Sprint("session ", i))
			if err != nil {
				return err
			}
			upTo := random.IntN(source.Count)
			h, err := tx.FinishCopy(source, store.Draft{}, to, "default", nil, &upTo)
			if err != nil {
				return err
			}
			_, err = tx.AppendMessage(&h, loquat.Message{ID: "last", Role: loquat.RoleUser})
			if err == nil {
				err = tx.Checkpoint(&h, nil, false)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	written := runsOf(t, dir)
	if len(written) < 40 {
		t.Fatalf("there are only %d runs", len(written))
	}
	step, err := filepath.Glob("schema/*_message_runs.sql")
	if err != nil || len(step) != 1 {
		t.Fatal(step, err)
	}
	migration, err := os.ReadFile(step[0])
	if err != nil {
		t.Fatal(err)
	}
	raw, err := sql.Open("sqlite", filepath.Join(dir, "loquat.db"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := raw.Exec(`DROP TABLE message_runs; ` + string(migration)); err != nil {
		t.Fatal(err)
	}
	if err := raw.Close(); err != nil {
		t.Fatal(err)
	}
	if migrated := runsOf(t, dir); !slices.Equal(migrated, written) {
		t.Errorf("the migration makes the runs\n%v\nthe changes wrote\n%v", migrated, written)
	}
}

// changeAtRandom creates a session and changes it 30 times.
func changeAtRandom(tx *store.Tx, id string, random *rand.Rand) error {
	h, err := tx.CreateSession(id, "default", nil)
	if err != nil {
		return err
	}
	for step := range 30 {
		switch kind := random.IntN(8); {
		case kind < 5 || h.Count < 2:
			for range 1 + random.IntN(5) {
				if _, err = tx.AppendMessage(&h, loquat.Message{ID: fmt.Sprint(step), Role: loquat.RoleUser}); err != nil {
					return err
				}
			}
		case kind == 5:
			_, err = tx.DeleteFrom(&h, random.IntN(h.Count))
		case kind == 6:
			_, err = tx.ModifyMessage(&h, random.IntN(h.Count), "", "new")
		default:
			indices := random.Perm(h.Count)[:1+random.IntN(h.Count/2)]
			slices.Sort(indices)
			err = tx.DeleteMessages(&h, indices)
		}
		if err != nil {
			return err
		}
	}
	if _, err := tx.AppendMessage(&h, loquat.Message{ID: "last", Role: loquat.RoleUser}); err != nil {
		return err
	}
	return tx.Checkpoint(&h, nil, false)
}

// runsOf opens and verifies a store, and returns its runs.
func runsOf(t *testing.T, dir string) (runs []string) {
	t.Helper()
	db := open(t, dir)
	defer db.Close()
	err := db.Read(t.Context(), func(q store.SQL) error {
		store.Verify(q, true, func(problem string) { t.Error(problem) })
		rows, err := q.Query(`SELECT sid, first_index, first_seq FROM message_runs ORDER BY sid, first_index`)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var sid, index, seq int64
			if err := rows.Scan(&sid, &index, &seq); err != nil {
				return err
			}
			runs = append(runs, fmt.Sprint(sid, " ", index, " ", seq))
		}
		return rows.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	return runs
}
