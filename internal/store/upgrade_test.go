package store_test

import (
	"slices"
	"testing"
	"testing/fstest"

	"loquat/internal/store"
)

// A table counts if a step goes through all its rows, and if older programs have filled it.
func TestWholeTables(t *testing.T) {
	done := [][]byte{[]byte("CREATE TABLE sessions (sid INTEGER);\nCREATE UNLOGGED TABLE messages (id INTEGER);\nCREATE TABLE log (x TEXT);")}
	for step, want := range map[string][]string{
		"ALTER TABLE sessions ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;":                 nil,
		"CREATE INDEX by_sid ON messages (sid);":                                             {"messages"},
		"CREATE UNIQUE INDEX by_sid ON messages (sid) WHERE sid > 0;":                        {"messages"},
		"UPDATE sessions SET pinned = 1;\nCREATE INDEX x ON messages (id);":                  {"messages", "sessions"},
		"CREATE TABLE tags (tag TEXT);\nINSERT INTO tags (tag)\n  SELECT 'a' FROM sessions;": {"sessions"},
		"CREATE TABLE tags (tag TEXT);\nCREATE INDEX y ON tags (tag);":                       nil,
		"UPDATE log SET x = '';\nINSERT INTO log SELECT * FROM json_each('[]');":             nil,
	} {
		if got := store.WholeTables(done, [][]byte{[]byte(step)}); !slices.Equal(got, want) {
			t.Errorf("%s\ngoes through %q, want %q", step, got, want)
		}
	}
}

// The way back is closed if older programs cannot use what the upgrade makes.
func TestUpgradeClosed(t *testing.T) {
	for u, want := range map[[3]int]bool{{0, 9, 9}: false, {9, 9, 9}: false, {7, 9, 9}: true, {8, 9, 7}: false, {10, 9, 8}: false} {
		if got := (store.Upgrade{From: u[0], To: u[1], Least: u[2]}).Closed(); got != want {
			t.Errorf("from %d to %d for programs that know %d: closed %v", u[0], u[1], u[2], got)
		}
	}
}

func TestStepsAreInOrder(t *testing.T) {
	got, err := store.Steps(fstest.MapFS{"schema/02_b.sql": {Data: []byte("b")}, "schema/01_a.sql": {Data: []byte("a")}, "schema/README": {}})
	if err != nil || len(got) != 2 || string(got[0])+string(got[1]) != "ab" {
		t.Errorf("the steps are %q, %v", got, err)
	}
}
