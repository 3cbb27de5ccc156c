package main

import (
	"os"
	"path/filepath"
	"testing"
)

// A server cannot choose where the sessions that it lists are written.
func TestExportedNamesStayInTheirDirectory(t *testing.T) {
	dir := t.TempDir()
	err := (&exporter{}).texts(t.Context(), []string{"x/../../evil"}, filepath.Join(dir, "out"), ".html")
	if err == nil {
		t.Error("the id of a session leads out of the directory")
	}
	if names, _ := filepath.Glob(filepath.Join(dir, "*")); len(names) != 1 {
		t.Errorf("%v were written", names)
	}
	if _, err := os.Stat(filepath.Join(dir, "evil.html")); err == nil {
		t.Error("evil.html was written")
	}
}
