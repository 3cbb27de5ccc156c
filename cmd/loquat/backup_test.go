package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"loquat/internal/backup"
	"loquat/internal/e2e/binary"
)

// What others have written to a place of copies, such as a shared bucket, cannot control the terminal.
func TestForeignNamesOfCopiesAreSafeToPrint(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "assets", "\x1b[2J")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	binary.WriteFiles(t, folder, map[string]string{strings.Repeat("ab", 32): "not these bytes"})
	var out bytes.Buffer
	err := run(t.Context(), []string{"backup", "--verify", dir}, strings.NewReader(""), &out, &out)
	if err == nil || !strings.Contains(out.String(), "is damaged") {
		t.Fatalf("%v: %q", err, out.String())
	}
	showListing(&out, backup.Listing{Writer: "process 1 on \x1b]0;host\a", Failing: "because\x1b[1m\r\nof this", Newest: time.Now()}, time.Minute)
	if !strings.Contains(out.String(), "of this") || strings.ContainsAny(out.String(), "\x1b\a\r") {
		t.Errorf("the output is %q", out.String())
	}
}
