import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { ConnectionError, ProblemError, type FollowedList, type OutboxEntry } from "@loquat/client";
import { App } from "../../src/model/app.ts";
import { commandOf, commandsOf, matches } from "../../src/model/commands.ts";
import { undoMs } from "../../src/model/library.ts";
import { formatRoute, parseRoute, sessionOf } from "../../src/model/route.ts";
import { memory } from "../../src/model/storage.ts";
import { FakeWire } from "./fake.ts";
import { page, state, tick } from "./page.ts";

test("two Enters make one session with one message, and what is typed meanwhile comes along into it", async () => {
  const { app, wire, stored } = await page();
  app.composer.peek().write("Hello");
  const first = app.send();
  const second = app.send();
  app.composer.peek().write("typed on");
  await Promise.all([first, second]);
  assert.equal(wire.added.length, 1);
  assert.deepEqual(wire.added[0]!.create, {});
  const route = app.route.value;
  assert.equal(route.at === "session" && route.id, wire.added[0]!.sessionId);
  assert.equal(app.composer.peek().text.value, "typed on");
  const again = (await page(undefined, stored)).app;
  assert.equal(again.composer.peek().text.value, "");
  again.go(route);
  assert.equal(again.composer.peek().text.value, "typed on");
});

test("who begins to write in a new chat is about to create a session", async () => {
  const { app, wire } = await page();
  assert.equal(wire.expected, 0);
  app.composer.peek().write("H");
  app.composer.peek().write("He");
  assert.equal(wire.expected, 1);
  app.composer.peek().write("");
  await app.suggest("Tell me a story");
  assert.equal(wire.expected, 2);
  app.composer.peek().write("in the session");
  await app.send();
  assert.equal(wire.expected, 2, "the session exists");
});

test("a suggestion is sent alone, and the draft with its images comes along into the new chat", async () => {
  const { app, wire, stored } = await page();
  const composer = app.composer.peek();
  composer.choose({ agent: "coder" });
  composer.write("half a thought");
  composer.refer("cat", { type: "image", url: "https://example.com/cat.png" });
  const sent = app.suggest("Tell me a story");
  assert.equal((stored.get("draft.new") as { text?: string }).text, "half a thought", "a reload at any time keeps it");
  await sent;
  assert.deepEqual(wire.added.map(({ send, create, files }) => ({ send, create, files })), [{ send: { content: "Tell me a story", stream_tools: true }, create: { agent_id: "coder" }, files: undefined }]);
  assert.equal(sessionOf(app.route.peek()), wire.added[0]!.sessionId);
  assert.deepEqual([app.composer.peek().text.value, app.composer.peek().pieces.value.map(({ name }) => name)], ["half a thought", ["cat"]]);
  assert.deepEqual([composer.text.value, composer.pieces.value], ["", []]);
});

test("a suggestion that the browser cannot store goes into the box, in front of the draft", async () => {
  const { app, wire } = await page();
  app.composer.peek().write("half a thought");
  wire.full = new Error("full");
  await app.suggest("Tell me a story");
  assert.deepEqual([app.route.value.at, app.composer.peek().text.value], ["new", "Tell me a story\n\nhalf a thought"]);
});

test("a draft survives a reload, and each session has its own", async () => {
  const { app, stored } = await page();
  app.composer.peek().write("for a new one");
  app.go({ at: "session", id: "one" });
  app.composer.peek().write("for one");
  const again = (await page(undefined, stored)).app;
  assert.equal(again.composer.peek().text.value, "for a new one");
  again.go({ at: "session", id: "one" });
  assert.equal(again.composer.peek().text.value, "for one");
});

test("a session that is not created yet is followed once it is", async () => {
  const { app, wire } = await page();
  wire.entries.set([{ id: "r", sessionId: "new1", order: "r", send: {}, create: {}, status: "sending" } as OutboxEntry]);
  app.go({ at: "session", id: "new1" });
  assert.equal(wire.sessionsOf.has("new1"), false);
  assert.equal(app.pending.value.length, 1);
  wire.entries.set([{ id: "r", sessionId: "new1", order: "r", send: {}, status: "sending" } as OutboxEntry]);
  assert.equal(wire.sessionsOf.has("new1"), true);
});

test("a send that the session already shows is not shown a second time until it is answered", async () => {
  const { app, wire } = await page();
  const entry = (id: string, more: object = {}) => ({ id, sessionId: "one", order: id, send: { content: id }, status: "sending", ...more }) as OutboxEntry;
  app.go({ at: "session", id: "one" });
  const queue = [{ request_id: "waits", on_busy: "queue", message: { id: "w", role: "user", content: "waits" } }];
  wire.entries.set([entry("runs"), entry("waits"), entry("next")]);
  wire.sessionsOf.get("one")!.set({ status: "ready", state: state("one", { active_request_id: "runs", queue }), error: undefined });
  assert.deepEqual(app.pending.value.map(({ id }) => id), ["next"]);
  wire.entries.set([entry("runs", { status: "failed" })]);
  assert.deepEqual(app.pending.value.map(({ id }) => id), ["runs"], "one that blocks those after it is shown");
});

test("the first message of a new session goes before the elements of plugins, unless images are uploaded first", async () => {
  for (const files of [undefined, [{ image: new Blob() }]]) {
    const { app, wire } = await page();
    const asked = (): string[] => wire.calls.map(({ path }) => path).filter((path) => path.startsWith("/sessions/one/"));
    const entry = (status: string) => ({ id: "r", sessionId: "one", order: "r", send: { content: "Hi" }, status, files }) as OutboxEntry;
    wire.entries.set([entry("sending")]);
    app.go({ at: "session", id: "one" });
    wire.sessionsOf.get("one")!.set({ status: "ready", state: state("one"), error: undefined });
    assert.equal(asked().length, files ? 3 : 0);
    wire.entries.set([entry("sent")]);
    assert.deepEqual(asked(), ["/sessions/one/ui-schema", "/sessions/one/application/ui-schema", "/sessions/one/config"]);
    await tick();
    wire.entries.set([{ ...entry("sending"), id: "later" }]);
    wire.entries.set([]);
    assert.equal(asked().length, 3, "they are loaded again after a later message");
  }
});

test("the notice of a deletion names the chat, also after a reload", async () => {
  const { app, wire, stored } = await page();
  const list = (session_id: string) => ({ status: "ready", list: { sessions: [{ session_id, agent_id: "a", created_at: "", updated_at: "", metadata: { title: "Weekend" }, cursor_event_id: "1" }] }, more: false, error: undefined }) as unknown as FollowedList;
  wire.lists[0]!.set(list("one"));
  app.library.remove("one");
  assert.deepEqual(app.notices.shown.value.map(({ text }) => text), ["“Weekend” was deleted."]);
  const again = (await page(undefined, stored)).app;
  assert.deepEqual(again.notices.shown.value.map(({ text }) => text), ["“Weekend” was deleted."]);
});

test("a session that is deleted elsewhere is left with a notice", async () => {
  const { app, wire } = await page();
  app.go({ at: "session", id: "one" });
  wire.sessionsOf.get("one")!.set({ status: "ready", state: state("one"), error: undefined });
  assert.equal(app.transcript.value?.loaded.value, true);
  wire.sessionsOf.get("one")!.set({ status: "deleted", state: undefined, error: undefined });
  assert.equal(app.route.value.at, "new");
  assert.equal(app.notices.shown.value.length, 1);
  assert.deepEqual(wire.closed, ["one"]);
});

test("signed out: the dialog opens, can be closed, and comes back", async () => {
  const { app, wire } = await page();
  const stopped = { ...wire.connection.get(), status: "stopped" as const, error: new ProblemError({ code: "unauthorized" }, { status: 401 }) };
  wire.connection.set(stopped);
  assert.deepEqual([app.state.value, app.signIn.value], ["signed-out", true]);
  app.signIn.value = false;
  wire.connection.set({ ...stopped, since: 1 });
  assert.equal(app.signIn.value, false, "the dialog does not come back by itself");
  await app.signedIn();
  assert.ok(wire.calls.some((call) => call.method === "RETRY"));
});

test("a sign-in in another tab closes the dialog of this one, and the page goes on", async () => {
  const { app, wire } = await page(new ProblemError({ code: "unauthorized" }, { status: 401 }));
  const live = wire.connection.get();
  wire.connection.set({ ...live, status: "stopped" as const, error: new ProblemError({ code: "unauthorized" }, { status: 401 }) });
  assert.deepEqual([app.signIn.value, wire.begun, wire.lists.length], [true, false, 0]);
  wire.answers["GET /auth/me"] = { requires_token: true, scope: "full", browser: true };
  wire.connection.set(live);
  await tick();
  assert.deepEqual([app.signIn.value, wire.begun, wire.lists.length > 0], [false, true, true]);
  assert.equal(wire.calls.filter(({ path }) => path === "/auth/me").length, 2);
});

test("tabs keep each other's preferences and drafts", async () => {
  const stored = new Map<string, unknown>();
  const a = (await page(undefined, stored)).app, b = (await page(undefined, stored)).app;
  a.preferences.set("theme", "dark");
  b.preferences.set("sidebar", false);
  const later = (await page(undefined, stored)).app;
  assert.deepEqual([later.preferences.get("theme"), later.preferences.get("sidebar")], ["dark", false]);
  a.composer.peek().write("a long text");
  b.composer.peek().write("a short one");
  await b.send();
  a.keepDraft();
  assert.equal((await page(undefined, stored)).app.composer.peek().text.value, "a long text");
});

test("what a user has not sent is never sent as the one who signs in next", async () => {
  const { app, wire } = await page({ requires_token: true, scope: "user", user: "ann", browser: true });
  const live = wire.connection.get();
  assert.equal(wire.begun, true);
  wire.connection.set({ ...live, status: "stopped" as const, error: new ProblemError({ code: "unauthorized" }, { status: 401 }) });
  assert.equal(wire.begun, false);
  let loaded = 0;
  app.reload = () => void loaded++;
  wire.answers["GET /auth/me"] = { requires_token: true, scope: "user", user: "bob", browser: true };
  await app.signedIn();
  assert.deepEqual([wire.begun, loaded], [false, 1]);
  wire.answers["GET /auth/me"] = { requires_token: true, scope: "user", user: "ann", browser: true };
});

test("a read-only token sends nothing and has no commands that change something", async () => {
  const { app, wire } = await page({ requires_token: true, scope: "read", browser: true });
  app.go({ at: "session", id: "one" });
  wire.sessionsOf.get("one")!.set({ status: "ready", state: state("one"), error: undefined });
  app.composer.peek().write("x");
  await app.send();
  app.regenerate({ id: "m", role: "assistant", content: "", created_at: "" } as never);
  assert.equal(wire.added.length, 0);
  const enabled = commandsOf(app).filter((command) => command.enabled()).map((command) => command.id);
  for (const id of ["new", "pin", "archive", "delete", "fork", "stop"]) assert.ok(!enabled.includes(id), id);
});

test("a token of one session sees only this session", async () => {
  const { app, wire } = await page({ requires_token: true, scope: "session", session_id: "mine", browser: true });
  assert.deepEqual(app.route.value, { at: "session", id: "mine" });
  assert.equal(wire.lists.length, 0);
});

test("a deletion can be undone, and a reload does not forget it", async () => {
  const { app, wire, stored } = await page();
  app.library.remove("gone");
  assert.ok(app.list.hidden.value.has("gone"));
  app.notices.shown.value.at(-1)!.action!.run();
  assert.equal(app.list.hidden.value.has("gone"), false);
  stored.set("deletions", [{ id: "late", at: Date.now() - 1 }]);
  const again = await page(undefined, stored);
  again.wire.answers["DELETE /sessions/late"] = {};
  await tick(20);
  assert.deepEqual(again.wire.calls.filter((c) => c.method === "DELETE").map((c) => c.path), ["/sessions/late"]);
  assert.equal(wire.calls.some((c) => c.method === "DELETE"), false);
});

test("a deletion of the open chat that is undone opens it again, unless another one was opened meanwhile", async () => {
  const { app } = await page();
  const removeAndUndo = (meanwhile: () => void) => {
    app.go({ at: "session", id: "one" });
    app.library.remove("one");
    assert.deepEqual(app.route.value, { at: "new" });
    meanwhile();
    app.notices.shown.value.at(-1)!.action!.run();
    return app.route.value;
  };
  assert.deepEqual(removeAndUndo(() => {}), { at: "session", id: "one" });
  assert.deepEqual(removeAndUndo(() => app.go({ at: "session", id: "other" })), { at: "session", id: "other" });
});

test("a deletion that is undone in one tab is undone in the other", (t) => {
  const stored = new Map<string, unknown>();
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const [one, other] = [new App(new FakeWire().wire, memory(stored)), new App(new FakeWire().wire, memory(stored))];
  one.library.remove("kept");
  other.start();
  assert.ok(other.list.hidden.value.has("kept"));
  one.notices.shown.value.at(-1)!.action!.run();
  t.mock.timers.tick(undoMs);
  assert.deepEqual([one, other].map((app) => app.list.hidden.value.has("kept")), [false, false]);
});

test("a deletion that waits is made soon, also if the clock was set back meanwhile", async () => {
  const stored = new Map<string, unknown>([["deletions", [{ id: "late", title: "Late", at: Date.now() + 86_400_000 }]]]);
  mock.timers.enable({ apis: ["setTimeout"] });
  try {
    const wire = new FakeWire();
    wire.answers = { "DELETE /sessions/late": {} };
    new App(wire.wire, memory(stored)).start();
    mock.timers.tick(undoMs);
    assert.deepEqual(wire.calls.filter((c) => c.method === "DELETE").map((c) => c.path), ["/sessions/late"]);
  } finally {
    mock.timers.reset();
  }
});

test("a double click asks for one reply", async () => {
  const { app, wire } = await page();
  app.go({ at: "session", id: "one" });
  const messages = ["user", "assistant"].map((role) => ({ id: role, role, content: role, created_at: "" }));
  wire.sessionsOf.get("one")!.set({ status: "ready", state: state("one", { messages }), error: undefined });
  const reply = app.transcript.peek()!.messages[1];
  app.regenerate(reply);
  app.regenerate(reply);
  app.resend();
  await tick();
  assert.equal(wire.added.length, 1);
  wire.entries.set([{ id: "r", sessionId: "one", order: "r", send: {}, status: "sending" } as OutboxEntry]);
  app.resend();
  app.continueReply();
  await tick();
  assert.equal(wire.added.length, 1, "the first one is on its way");
  wire.entries.set([]);
  app.resend();
  await tick();
  assert.equal(wire.added.length, 2);
});

test("steps through alternatives that follow each other quickly all count, and the last one is shown", async () => {
  const { app, wire } = await page();
  const switched: string[] = [];
  let inPlace = 2;
  const answers: (() => void)[] = [];
  const alternatives = {
    list: async () => ({ alternatives: ["a", "b", "c"].map((alternative_id, i) => ({ alternative_id, index: 1, in_place: i === inPlace })) }),
    switch: (_: string, id: string) => new Promise<void>((resolve) => {
      switched.push(id);
      answers.push(() => {
        inPlace = "abc".indexOf(id);
        resolve();
      });
    }),
  };
  Object.assign(wire, { sdk: { alternatives } });
  app.go({ at: "session", id: "one" });
  const messages = [{ id: "q", role: "user", content: "q", created_at: "" }, { id: "r", role: "assistant", content: "r", created_at: "" }];
  wire.sessionsOf.get("one")!.set({ status: "ready", state: state("one", { messages }), error: undefined });
  await tick(20);
  const { conversation } = app;
  const shown = (): number | undefined => conversation.choiceAt(1)?.at;
  assert.equal(shown(), 2);
  const steps = [conversation.step(1, -1), conversation.step(1, -1), conversation.step(1, 1)];
  assert.equal(shown(), 1, "at once");
  for (const _ of steps) {
    await tick();
    assert.equal(answers.length, 1, "one after the other");
    answers.pop()!();
    assert.equal(shown(), 1, "no earlier state is shown again");
  }
  await Promise.all(steps);
  assert.deepEqual(switched, ["b", "a", "b"]);
  assert.equal(shown(), 1);
  alternatives.switch = () => Promise.reject(new ProblemError({ code: "conflict", detail: "it is busy" }, { status: 409 }));
  const refused = conversation.step(1, 1);
  assert.equal(shown(), 2);
  await refused;
  assert.equal(shown(), 1, "a step that the server refuses is taken back");
});

test("routes", () => {
  for (const path of ["/", "/archived", "/s/abc_-9", "/s/abc#m12"]) {
    const [name, hash = ""] = path.split("#");
    assert.equal(formatRoute(parseRoute(name!, hash && `#${hash}`)), path);
  }
  for (const path of ["/s/", "/s/a/b", "/s/<script>", `/s/${"x".repeat(65)}`, "/unknown", "//evil"]) assert.deepEqual(parseRoute(path), { at: "new" }, path);
  assert.deepEqual(parseRoute("/", "#s=old1"), { at: "session", id: "old1" });
});

test("shortcuts", async () => {
  const press = (key: string, more: object = {}) => ({ key, ctrlKey: false, metaKey: false, altKey: false, shiftKey: false, ...more });
  assert.equal(matches("Mod+K", press("k", { ctrlKey: true }), false), true);
  assert.equal(matches("Mod+K", press("k", { ctrlKey: true }), true), false);
  assert.equal(matches("Mod+K", press("k", { metaKey: true }), true), true);
  assert.equal(matches("Mod+K", press("K", { ctrlKey: true, shiftKey: true }), false), false);
  assert.equal(matches("?", press("?", { shiftKey: true }), false), true);
  const { app } = await page();
  const commands = commandsOf(app);
  assert.equal(commandOf(commands, press("?", { shiftKey: true }), true, false), undefined, "a question mark that is typed is a text");
  assert.equal(commandOf(commands, press("?", { shiftKey: true }), false, false)?.id, "shortcuts");
  assert.equal(commandOf(commands, press("Escape"), true, false), undefined, "nothing runs");
  const keys = commands.map((command) => command.shortcut).filter(Boolean);
  assert.equal(new Set(keys).size, keys.length, "no shortcut has two commands");
});

test("drafts and unsent messages of a user are never another's, and are there when the user is back", async () => {
  const stored = new Map<string, unknown>();
  let removed = 0;
  stored.delete = (name) => (removed++, Map.prototype.delete.call(stored, name));
  const as = async (user: string) => {
    const made = await page({ requires_token: true, scope: "user", user, browser: true }, stored);
    return { ...made, suffix: made.app.users.suffix, sends: made.wire.begun };
  };
  const ann = await as("ann");
  assert.deepEqual([ann.suffix, ann.sends], ["", true], "the first user of the browser has what it kept before it knew users");
  ann.app.composer.peek().write("for ann alone");
  let others = 0;
  ann.app.reload = () => void others++;
  ann.wire.answers["GET /auth/me"] = { requires_token: true, scope: "user", user: "bob", browser: true };
  await ann.app.signedIn();
  assert.equal(others, 1);
  assert.ok(!ann.wire.calls.some((call) => call.method === "RETRY"), "her messages do not go out as bob's");
  const bob = await as("bob");
  assert.deepEqual([bob.suffix, bob.sends, bob.app.composer.peek().text.peek()], ["@bob", true, ""]);
  bob.app.composer.peek().write("for bob alone");
  const times = removed;
  assert.deepEqual([(await as("bob")).app.composer.peek().text.peek(), bob.app.users.changed], ["for bob alone", false]);
  assert.equal(removed, times, "what the browser knows is not written again: other tabs would see it change");
  const before = await as("ann");
  assert.deepEqual([before.suffix, before.sends, before.app.me.peek()], ["@bob", false, null], "what is bob's does not go out before the page is loaded again");
  assert.equal(bob.app.users.changed, true, "another tab notices it too");
  assert.equal((await as("ann")).app.composer.peek().text.peek(), "for ann alone");
});

test("nothing is sent before it is known who uses the page, and everything if a server does not say", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  for (const [answer, sends] of [
    [new ConnectionError("lost"), false], [new ProblemError({ code: "unavailable" }, { status: 503 }), false],
    [new ProblemError({ code: "unauthorized" }, { status: 401 }), false], [new ProblemError({ code: "not_found" }, { status: 404 }), true],
  ] as const) {
    const made = page(answer);
    t.mock.timers.tick(1);
    assert.equal((await made).wire.begun, sends, answer.code);
  }
});
