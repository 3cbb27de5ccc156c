package datadir_test

import (
	"os"
	"path/filepath"
	"testing"

	"loquat/internal/store/datadir"
)

// A node keeps its id over restarts. A copy of its directory is another node.
func TestNodeID(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	id := func(dir string) string {
		t.Helper()
		id, err := datadir.NodeID(dir)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	first := id(dir)
	if again := id(dir); again != first {
		t.Errorf("the id changes from %s to %s", first, again)
	}
	stored, err := os.ReadFile(filepath.Join(dir, datadir.NodeName))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, datadir.NodeName), stored, 0o600); err != nil {
		t.Fatal(err)
	}
	if id(other) == first {
		t.Error("a copy of the directory has the same id")
	}
}
