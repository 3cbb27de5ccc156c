package web

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// runModules runs a script with the client's modules beside it, under Node.js; input
// comes on its standard input. A script fails by a non-zero exit, saying why.
func runModules(t *testing.T, script string, input []byte) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node on this machine: the scripts of the page are not run")
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, Files()); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"package.json": `{"type": "module"}`, "run.js": script} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, filepath.Join(dir, "run.js"))
	cmd.Stdin = bytes.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

const runTable = `
import { visible, valid } from "./conditions.js";
import { readFileSync } from "node:fs";
const { context, cases } = JSON.parse(readFileSync(0, "utf8"));
if (!cases.length) throw new Error("the table has no cases");
for (const { name, root, condition, expect } of cases) {
  const got = { visible: visible(condition, root, context), valid: valid(condition) };
  if (got.visible !== expect.visible || got.valid !== expect.valid) {
    console.log(name + ": " + JSON.stringify(got) + ", want " + JSON.stringify(expect));
    process.exitCode = 1;
  }
}`

// The page shows what the server's rules say: the same tables hold for both.
func TestConditions(t *testing.T) {
	shared := os.Getenv("LOQUAT_SHARED")
	if shared == "" {
		shared = filepath.Join("..", "..", "..", "shared")
	}
	for name, file := range map[string]string{
		"own":    filepath.Join("..", "ui", "testdata", "conditions.json"),
		"shared": filepath.Join(shared, "conformance", "conditions.json"),
	} {
		t.Run(name, func(t *testing.T) {
			table, err := os.ReadFile(file)
			if name == "shared" && os.IsNotExist(err) {
				t.Skipf("no table at %s (LOQUAT_SHARED names another place)", file)
			}
			if err != nil {
				t.Fatal(err)
			}
			runModules(t, runTable, table)
		})
	}
}

// The texts of elements are those that the server's rules make.
func TestRender(t *testing.T) {
	runModules(t, `
import { render, lookup, rootOf, dataRootOf, visible, valid } from "./conditions.js";
import assert from "node:assert/strict";
const context = { session: { metadata: { title: "Trip", f: 15.0, o: { a: "<b>" } } }, message: { n: 1.5 } };
const at = (path, root) => lookup(path, root, context).value;
assert.equal(render("{{data}} and {{data}}, {{ data }}", at("$.title", "session.metadata")), "Trip and Trip, {{ data }}");
assert.equal(render("{{data}}", "$& {{data}}"), "$& {{data}}");
assert.equal(render("", at("metadata.f", "session")), "15");
assert.equal(render(undefined, at("metadata.o", "session")), '{"a":"<b>"}');
assert.equal(render("<i>{{data}}</i>", at("n", "message")), "<i>1.5</i>");
assert.equal(render("{{data}}", null), "");
for (const path of ["title", "a..b", "$nothing.a", "$", ""]) assert.equal(lookup(path, "session", context).found, false, path);
assert.deepEqual(["", undefined, "config", "composer_attachment", "model_picker"].map(rootOf), Array(5).fill("config"));
assert.deepEqual(["message_footer", "message_action", "status_bar"].map(rootOf), Array(3).fill("message"));
assert.deepEqual(["session_action", "session_list_field", "hologram"].map(rootOf), Array(3).fill("session"));
assert.equal(dataRootOf("session_list_field"), "session.metadata");
let deep = {};
for (let i = 1; i < 32; i++) deep = { not: deep };
assert.equal(valid(deep), true);
assert.equal(valid({ not: deep }), false);
assert.equal(visible({ not: deep }, "session", context), false);`, nil)
}

// Whatever the page's parts are, they load nothing from elsewhere and make no markup
// of texts; httpapi's tests hold the page itself to its policy.
func TestFilesAreSafe(t *testing.T) {
	entries, err := fs.ReadDir(Files(), ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		content, err := fs.ReadFile(Files(), e.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "https://"} {
			if bytes.Contains(content, []byte(bad)) {
				t.Errorf("%s holds %s", e.Name(), bad)
			}
		}
	}
}
