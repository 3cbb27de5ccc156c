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

// runModules runs a script under Node.js, in a directory with the client's modules. The
// script reads input from standard input. It fails with a non-zero exit status.
func runModules(t *testing.T, script string, input []byte) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("Node.js is not installed: the page's scripts are not tested")
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

// The page and the server evaluate conditions alike: both are tested with the same tables.
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

// The page renders the texts of elements as the server does.
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

// The rules of elements, tested without the page.
func TestElements(t *testing.T) {
	runModules(t, `
import { acceptOf, configOf, optionsOf, paramsOf, runnable, shown, textOf } from "./elements.js";
import assert from "node:assert/strict";

const context = { session: { session_id: "s", agent_id: "a", metadata: { title: "Trip", n: null } }, message: { role: "user", index: 3 }, config: { on: true } };
const elements = [
  { ui_type: "session_action", id: "last", order: 2 },
  { ui_type: "session_action", id: "first", order: -1 },
  { ui_type: "session_action", id: "zero" },
  { ui_type: "session_action", id: "hidden", condition: { path: "agent_id", eq: "b" } },
  { ui_type: "session_action", id: "malformed", condition: { like: 1 } },
  { ui_type: "message_action", id: "other" },
];
assert.deepEqual(shown(elements, "session_action", context).map((e) => e.id), ["first", "zero", "last"]);
assert.deepEqual(shown(elements, "message_action", {}).map((e) => e.id), ["other"]);

const field = (data, template) => ({ ui_type: "session_list_field", data, template });
assert.equal(textOf(field("title", "<b>{{data}}</b>"), context), "<b>Trip</b>");
assert.equal(textOf(field("nothing", "{{data}}"), context), null);
assert.equal(textOf(field("n"), context), null);
assert.equal(textOf(field(undefined, "always"), context), null);
assert.equal(textOf({ ui_type: "message_footer", data: "role" }, context), "user");

assert.deepEqual(paramsOf({
  param_map: { session: "$session.session_id", agent: "$session.agent_id", at: "$message.index", start: "$dialog.start", left: "$dialog.empty", odd: "$dialog.constructor", none: "$user.x", mode: "$dialog.start" },
  fixed_params: { mode: "safe", extra: [1] },
}, context, { start: 0 }), { session: "s", agent: "a", at: 3, start: 0, mode: "safe", extra: [1] });
assert.deepEqual(paramsOf({}, context), {});
assert.deepEqual(paramsOf({ param_map: { to: "$dialog.start", at: "$message.index" } }, context, { start: 0, at: 9, loose: "x" }), { at: 3, to: 0, loose: "x" });
assert.deepEqual([{}, { dialog: {} }, { dialog: { kind: "form" } }, { dialog: { kind: "wizard" } }].map(runnable), [true, true, true, false]);

const config = configOf(
  [{ ui_type: "config", key: "mode", config_path: "recovery.mode" }, { ui_type: "config", key: "evil", config_path: "__proto__.polluted" }, { ui_type: "config", key: "max", config_path: "recovery.max" }],
  { mode: { value: "early", source: "override" }, evil: { value: 1, source: "config" }, max: { value: 3, source: "ui_default" }, off: { value: false, source: "config" } });
assert.equal(JSON.stringify([config.mode, config.recovery, config.off, config.max]), '["early",{"mode":"early"},false,null]');
assert.equal({}.polluted, undefined);

assert.deepEqual(optionsOf({ options: ["a", { value: 1, label: "one" }, { value: "b" }] }), [{ value: "a", label: "a" }, { value: 1, label: "one" }, { value: "b", label: "b" }]);
assert.deepEqual(optionsOf({ options: "a" }), []);
assert.equal(acceptOf({ supported_file_types: ["image/png", ".gif", "jpg"] }), "image/png,.gif,.jpg");`, nil)
}

// The page folds events by the same rules as the root package.
func TestFold(t *testing.T) {
	runModules(t, `
import { Fold } from "./fold.js";
import assert from "node:assert/strict";
const fold = new Fold({ session_id: "s", agent_id: "a", metadata: {}, messages: [{ id: "1", role: "user", content: "x" }], cursor_event_id: "05" });
let id = 5;
const apply = (type, more = {}) => fold.apply({ event_id: String(++id).padStart(2, "0"), session_id: "s", type, ...more });
const contents = () => fold.messages.map((m) => m.content).join();
const partial = (content, metadata) => apply("partial", { request_id: "r", message: { role: "assistant", content, metadata } });
assert.equal(fold.apply({ event_id: "05", session_id: "s", type: "session_deleted" }), false);
assert.equal(fold.apply({ event_id: "99", session_id: "other", type: "session_deleted" }), false);
apply("request_started", { request_id: "r" });
assert.equal(fold.active, "r");
apply("request_started", { request_id: "s", steered_into: "r" });
apply("request_completed", { request_id: "s" });
assert.equal(fold.active, "r");
partial("a", { reasoning: "t" });
partial("b");
assert.deepEqual(fold.draft, { request: "r", content: "ab", metadata: { reasoning: "t" } });
partial("c", { stream_restarted: true });
assert.equal(fold.draft.content, "c");
apply("final", { request_id: "r", messages: [{ id: "2", role: "assistant", content: "c" }] });
assert.equal(fold.draft, null);
assert.equal(fold.reply.id, "2");
apply("request_completed", { request_id: "r" });
assert.equal(fold.active, "");
apply("message_appended", { message: { id: "1", role: "user", content: "again" } });
apply("message_appended", { message: { id: "3", role: "user", content: "z" } });
apply("message_modified", { index: 2, content: "y" });
assert.equal(contents(), "again,c,y");
apply("message_modified", { index: 0, content: "sum", message: { id: "1", role: "system", content: "sum" } });
assert.equal(fold.messages[0].role, "system");
apply("messages_deleted", { indices: [0, 2] });
assert.equal(contents(), "c");
apply("checkpoint", { timestamp: "t1" });
assert.equal(fold.session.agent_id, "a");
apply("checkpoint", { timestamp: "t2", agent_id: "b", metadata: { title: "T" } });
assert.equal(fold.title + fold.session.agent_id, "Tb");`, nil)
}

// Calls that need a token share one dialog and are made again after the user signs in. A
// link with a pairing code needs the user's consent instead of a token.
func TestSignIn(t *testing.T) {
	runModules(t, `
import { call } from "./api.js";
import { pairBy, signedIn, signOut, unlimited } from "./auth.js";
import assert from "node:assert/strict";

const made = [];
globalThis.document = { createElement: (name) => {
  const e = { made: name, append() {}, setAttribute() {}, showModal() {}, close() { e.onclose?.(); }, remove() {}, focus() {} };
  made.push(e);
  return e;
}, body: { append() {} } };
globalThis.location = { pathname: "/", host: "loquat.example" };
const notes = new Map();
globalThis.localStorage = { getItem: (k) => notes.get(k) ?? null, setItem: (k, v) => notes.set(k, v), removeItem: (k) => notes.delete(k) };
Object.defineProperty(globalThis, "navigator", { value: { platform: "Test" }, configurable: true });
globalThis.history = { replaceState(...args) { shown = args[2]; } };
let cookie = false, shown = "";
const calls = [];
globalThis.fetch = async (path, { method, body } = {}) => {
  calls.push(method + " " + path + " " + (body || ""));
  const json = (status, value) => ({ ok: status < 300, status, statusText: "", json: async () => value });
  if (path === "/auth/session" && method === "DELETE") {
    cookie = false;
    return json(204, null);
  }
  if (path === "/auth/session") {
    cookie = JSON.parse(body).token === "good";
    return cookie ? json(200, { scope: shown ? "full" : "read" }) : json(401, { detail: "the token is not known" });
  }
  if (path === "/pairing/claim") return json(200, { token: "good" });
  return cookie ? json(200, { fine: path }) : json(401, { detail: "this needs a token" });
};

const both = Promise.all([call("GET", "/sessions"), call("GET", "/agents")]);
await new Promise((r) => setTimeout(r));
const of = (name) => made.filter((e) => e.made === name);
assert.equal(of("dialog").length, 1);
const [form] = of("form"), [input] = of("input"), fault = of("p")[0];
input.value = " wrong ";
await form.onsubmit({ preventDefault() {} });
assert.equal(fault.textContent, "the token is not known");
input.value = " good ";
await form.onsubmit({ preventDefault() {} });
assert.deepEqual(await both, [{ fine: "/sessions" }, { fine: "/agents" }]);

assert.deepEqual([signedIn(), unlimited()], [true, false]);
await signOut();
assert.deepEqual([signedIn(), unlimited()], [false, true]);
assert.equal(cookie, false);

calls.length = 0;
assert.equal(await pairBy("#01990000-0000-7000-8000-000000000000"), false);
const refused = pairBy("#pair=7K3M-9QRT4XWZ0A");
of("dialog").at(-1).close();
assert.equal(await refused, false);
assert.equal(calls.length, 0);
const paired = pairBy("#pair=7K3M-9QRT4XWZ0A");
await of("form").at(-1).onsubmit({ preventDefault() {} });
assert.equal(await paired, true);
assert.equal(shown, "/");
assert.equal(unlimited(), true);
assert.equal(calls.length, 2);
assert.match(calls[0], /^POST \/pairing\/claim .*"code":"7K3M-9QRT4XWZ0A"/);
assert.deepEqual(await call("GET", "/sessions"), { fine: "/sessions" });
assert.equal(of("dialog").length, 3);`, nil)
}

// No file of the page turns text into markup. The tests of httpapi check the page's content
// security policy.
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
		for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"} {
			if bytes.Contains(content, []byte(bad)) {
				t.Errorf("%s holds %s", e.Name(), bad)
			}
		}
	}
}

// The two reasoning texts of a draft grow independently. If both are equal, one is shown.
func TestReasoningOfDraft(t *testing.T) {
	runModules(t, `
import { Fold } from "./fold.js";
import { reasoningOf } from "./message.js";
import assert from "node:assert/strict";
const fold = new Fold({ session_id: "s", cursor_event_id: "0000000000000000", messages: [] });
let n = 0;
const partial = (metadata, content = "") => fold.apply({ event_id: String(++n).padStart(16, "0"), session_id: "s", request_id: "r", type: "partial", message: { content, metadata } });
partial({ reasoning: "void", reasoning_content: "void" });
partial({ reasoning: "pl", stream_restarted: true });
partial({ reasoning_content: "con", reasoning: "ain" });
partial({ reasoning_content: "tent", reasoning: 7 });
partial(undefined, "text");
assert.deepEqual(fold.draft, { request: "r", content: "text", metadata: { reasoning: "plain", reasoning_content: "content" } });
assert.equal(reasoningOf(fold.draft.metadata), "content\n\nplain");
assert.equal(reasoningOf({ reasoning: "same", reasoning_content: "same" }), "same");
assert.equal(reasoningOf({ reasoning: "plain" }), "plain");
assert.equal(reasoningOf({ reasoning: { a: 1 }, reasoning_content: "" }), "");
assert.equal(reasoningOf(undefined), "");`, nil)
}

// The page adds a remark to a reply without text, or with a finish_reason other than stop.
func TestRemarksOfReplies(t *testing.T) {
	runModules(t, `
import { remarksOf } from "./message.js";
import assert from "node:assert/strict";
const call = { id: "1", function: { name: "f", arguments: "{}" } };
const cut = "The reply was cut at the token limit (finish_reason length).";
for (const [content, metadata, want] of [
  ["text", undefined, []],
  ["text", { incomplete: "cancelled" }, ["Ends early: cancelled"]],
  ["text", { finish_reason: "length" }, [cut]],
  ["", { finish_reason: "length" }, [cut, "The reply has no text."]],
  ["text", { finish_reason: "content_filter" }, ["A content filter of the backend cut the reply (finish_reason content_filter)."]],
  ["text", { finish_reason: "eos" }, ["The reply ended with finish_reason eos."]],
  ["", { refusal: "No." }, ["The model refused: No."]],
  ["text", { refusal: "No.", finish_reason: "eos" }, ["The model refused: No.", "The reply ended with finish_reason eos."]],
  ["", undefined, ["The reply has no text."]],
  [" \n", {}, ["The reply has no text."]],
  ["", { tool_calls: [call] }, []],
  ["", { tool_calls: "junk" }, ["The reply has no text."]],
  ["", { incomplete: "error", reasoning: "Hm" }, ["Ends early: error"]],
  ["text", { refusal: "", finish_reason: null }, []],
  ["text", { refusal: { a: 1 }, finish_reason: ["x"] }, []],
]) {
  assert.deepEqual(remarksOf({ id: "m", role: "assistant", content, metadata }), want, JSON.stringify([content, metadata]));
}
assert.deepEqual(remarksOf({ role: "assistant", content: "", metadata: {} }), [], "a draft");
for (const role of ["user", "tool", "system"]) assert.deepEqual(remarksOf({ id: "m", role, content: "" }), [], role);`, nil)
}
