package web

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// runModule runs a TypeScript module under Node.js, which finds the client of the SDK in this
// repository. The module reads input from standard input. It fails with a non-zero exit
// status.
func runModule(t *testing.T, script string, input []byte) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("Node.js is not installed: the client is not compared with the server")
	}
	if _, err := os.Stat(filepath.Join(root, "node_modules", "tsx")); err != nil {
		t.Skip("npm ci has not been run: the client is not compared with the server")
	}
	file := filepath.Join(t.TempDir(), "run.mts")
	if err := os.WriteFile(file, []byte(`import { lookup, render, visible, isValidCondition as valid } from "`+filepath.ToSlash(root)+`/clients/typescript/src/conditions.ts";`+"\n"+script), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, "--import", "tsx", file)
	cmd.Dir = root
	cmd.Stdin = bytes.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// The page has no code and no style of its own, which its policy forbids.
func TestFiles(t *testing.T) {
	page, err := fs.ReadFile(Files(), "index.html")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the client has not been built")
	}
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(page, []byte("<title>Loquat</title>")) {
		t.Errorf("the page is\n%s", page)
	}
	for _, bad := range []string{"<script>", "<style>", " style=", " onload="} {
		if bytes.Contains(page, []byte(bad)) {
			t.Errorf("the page has %s, which its policy forbids", bad)
		}
	}
}
