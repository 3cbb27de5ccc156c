// What the user does with messages, while something else happens.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ConnectionError, ProblemError, type OutboxEntry } from "@loquat/client";
import { commandsOf } from "../../src/model/commands.ts";
import { page, state, tick } from "./page.ts";

const messages = ["user", "assistant", "user", "assistant"].map((role, i) => ({ id: `m${i}`, role, content: `text ${i}`, created_at: "" }));

/** chat is a page with an open session of four messages, of which the first two wait to be deleted. */
async function chat() {
  const made = await page();
  const { app, wire } = made;
  Object.assign(wire.answers, { "GET /sessions/one/alternatives": { alternatives: [] }, "DELETE /sessions/one/messages": { indices: [0, 1] } });
  app.go({ at: "session", id: "one" });
  wire.sessionsOf.get("one")!.set({ status: "ready", state: state("one", { messages }), error: undefined });
  await tick();
  app.conversation.remove(app.transcript.peek()!.messages.slice(0, 2));
  const changes = () => wire.calls.filter(({ method }) => method !== "GET").map(({ method, path, body }) => `${method} ${path} ${JSON.stringify(body)}`);
  return { ...made, changes };
}

const deleted = 'DELETE /sessions/one/messages {"indices":[0,1]}';

test("what the user does with a message is done with it, although messages before it are deleted first", async () => {
  const { app, wire, changes } = await chat();
  wire.answers["PATCH /sessions/one/messages/1"] = {};
  assert.equal(await app.conversation.save(app.transcript.peek()!.messages[3]!, "new"), true);
  assert.deepEqual(changes(), [deleted, 'PATCH /sessions/one/messages/1 {"content":"new"}']);
});

test("a message to another chat does not wait for a deletion that hangs", async () => {
  const { app, wire } = await chat();
  wire.answers["DELETE /sessions/one/messages"] = () => new Promise(() => {});
  app.go({ at: "session", id: "two" });
  app.composer.peek().write("Hello");
  await app.send();
  assert.deepEqual(wire.added.map(({ sessionId }) => sessionId), ["two"]);
});

test("a message is asked again at the place that it has after a deletion", async () => {
  const { app, wire, changes } = await chat();
  await app.conversation.askAgain(app.transcript.peek()!.messages[2]!, "again");
  assert.deepEqual(changes(), [deleted]);
  assert.deepEqual(wire.added.map(({ sessionId, send }) => ({ sessionId, send })), [{ sessionId: "one", send: { content: "again", delete_from: 0, keep: true, stream_tools: true } }]);
});

test("a reply is written again at the place that it has after a deletion", async () => {
  const { app, wire } = await chat();
  app.regenerate(app.transcript.peek()!.messages[3]);
  await tick(5);
  assert.deepEqual(wire.added.map(({ send }) => send), [{ delete_from: 1, keep: true, stream_tools: true }]);
});

test("a copy and an action of a plugin get the index that a message has after a deletion", async () => {
  const { app, wire, changes } = await chat();
  wire.answers["POST /sessions/one/fork"] = { session_id: "copy" };
  wire.answers["POST /sessions/one/actions/count"] = { result: "2" };
  const element = { ui_type: "message_action", id: "e", plugin: "p", label: "Count", action_id: "count", param_map: { at: "$message.index" } };
  const message = app.transcript.peek()!.messages[3]!;
  assert.equal(await app.settings.run({ element: element as never, message: { message, index: 3 } }, {}), null);
  await app.library.fork("one", "m2");
  assert.equal(changes()[0], deleted);
  assert.match(changes()[1]!, /"params":\{"at":1\}/);
  assert.equal(changes()[2], 'POST /sessions/one/fork {"up_to_index":0}');
  assert.deepEqual(app.route.value, { at: "session", id: "copy" });
});

test("an edit and a deletion go to the message that is meant, although another client has deleted one before it", async () => {
  const { app, wire } = await page();
  wire.answers["GET /sessions/one/alternatives"] = { alternatives: [] };
  const show = (checkpoint: string, shown: object[]) => wire.sessionsOf.get("one")!.set({ status: "ready", state: state("one", { messages: shown, checkpoint }), error: undefined });
  const changes = () => wire.calls.filter(({ method }) => method === "PATCH" || method === "DELETE").map(({ method, path, body, match }) => `${method} ${path.split("/").at(-1)} ${JSON.stringify(body)} ${match}`);
  app.go({ at: "session", id: "one" });
  show("5", messages);
  await tick();
  const meanwhile = (checkpoint: string, left: object[]) => () => {
    setTimeout(() => show(checkpoint, left), 10);
    return new ProblemError({ code: "precondition_failed" }, { status: 412 });
  };
  wire.answers["PATCH /sessions/one/messages/3"] = meanwhile("6", messages.slice(1));
  wire.answers["PATCH /sessions/one/messages/2"] = {};
  assert.equal(await app.conversation.save(app.transcript.peek()!.messages[3]!, "new"), true);
  let tries = 0;
  wire.answers["DELETE /sessions/one/messages"] = () => (tries++ ? { indices: [] } : meanwhile("7", messages.slice(2))());
  app.conversation.remove([app.transcript.peek()!.messages[1]!, app.transcript.peek()!.messages[2]!]);
  await app.conversation.settle();
  assert.deepEqual(changes(), ['PATCH 3 {"content":"new"} "5"', 'PATCH 2 {"content":"new"} "6"', 'DELETE messages {"indices":[1,2]} "6"', 'DELETE messages {"indices":[0,1]} "7"']);
  assert.equal(app.notices.shown.value.filter(({ kind }) => kind === "error").length, 0);
});

test("a copy and an action go to the message that is meant, although another client has deleted one before it", async () => {
  const { app, wire } = await page();
  wire.answers["GET /sessions/one/alternatives"] = { alternatives: [] };
  const show = (checkpoint: string, shown: object[]) => wire.sessionsOf.get("one")!.set({ status: "ready", state: state("one", { messages: shown, checkpoint }), error: undefined });
  const meanwhile = (checkpoint: string, left: object[], answer: object) => {
    let tries = 0;
    return () => {
      if (tries++) return answer;
      setTimeout(() => show(checkpoint, left), 10);
      return new ProblemError({ code: "precondition_failed" }, { status: 412 });
    };
  };
  const errors = () => app.notices.shown.value.filter(({ kind }) => kind === "error").length;
  app.go({ at: "session", id: "one" });
  show("5", messages);
  await tick();
  const element = { ui_type: "message_action", id: "e", plugin: "p", label: "Count", action_id: "count", param_map: { at: "$message.index" } };
  wire.answers["POST /sessions/one/actions/count"] = meanwhile("6", messages.slice(1), { result: "2" });
  assert.equal(await app.settings.run({ element: element as never, message: { message: app.transcript.peek()!.messages[3]!, index: 3 } }, {}), null);
  wire.answers["POST /sessions/one/fork"] = meanwhile("7", messages.slice(2), { session_id: "copy" });
  await app.library.fork("one", "m3");
  const calls = wire.calls.filter(({ method }) => method === "POST").map(({ path, body, match }) => [path.split("/").at(-1), (body as { up_to_index?: number }).up_to_index ?? (body as { params: { at: number } }).params.at, match]);
  assert.deepEqual(calls, [["count", 3, '"5"'], ["count", 2, '"6"'], ["fork", 2, '"6"'], ["fork", 1, '"7"']]);
  assert.equal(errors(), 0);
  assert.deepEqual(app.route.value, { at: "session", id: "copy" });

  app.go({ at: "session", id: "one" });
  show("8", messages);
  await tick();
  wire.answers["POST /sessions/one/fork"] = meanwhile("9", messages.slice(0, 3), { session_id: "other" });
  await app.library.fork("one", "m3");
  assert.deepEqual([errors(), app.route.value], [1, { at: "session", id: "one" }], "the message is gone");
});

test("a chat that is opened while its first reply is written again shows that there are other versions", async () => {
  const { app, wire } = await page();
  const one = { alternative_id: "a", index: 1, in_place: false };
  wire.answers["GET /sessions/one/alternatives"] = { alternatives: [one] };
  const show = (shown: object[], more: object) => wire.sessionsOf.get("one")!.set({ status: "ready", state: state("one", { messages: shown, ...more }), error: undefined });
  app.go({ at: "session", id: "one" });
  show(messages.slice(0, 1), { active_request_id: "r" });
  await tick(700);
  assert.deepEqual(app.conversation.choiceAt(1), { at: 1, total: 2 });
  wire.answers["GET /sessions/one/alternatives"] = { alternatives: [one, { ...one, alternative_id: "b", in_place: true }] };
  show(messages.slice(0, 2), {});
  await tick(300);
  assert.deepEqual(app.conversation.choiceAt(1), { at: 1, total: 2 });
});

test("a message is asked again and a reply written again only if the chat is still as it is shown", async () => {
  const { app, wire } = await page();
  wire.answers["GET /sessions/one/alternatives"] = { alternatives: [] };
  const show = (checkpoint: string, shown: object[]) => wire.sessionsOf.get("one")!.set({ status: "ready", state: state("one", { messages: shown, checkpoint }), error: undefined });
  app.go({ at: "session", id: "one" });
  show("5", messages);
  await tick();
  await app.conversation.askAgain(app.transcript.peek()!.messages[2]!, "again");
  app.regenerate(app.transcript.peek()!.messages[3]);
  await tick(5);
  // A deletion of this page, of which it has not heard yet, is no change by others.
  wire.answers["DELETE /sessions/one/messages"] = { indices: [0, 1], cursor_event_id: "6" };
  app.conversation.remove(app.transcript.peek()!.messages.slice(0, 2));
  app.regenerate(app.transcript.peek()!.messages[3]);
  await tick(5);
  wire.answers["POST /sessions/one/fork"] = () => new ProblemError({ code: "unavailable" }, { status: 503 });
  await app.library.fork("one", "m3");
  assert.deepEqual(wire.calls.filter(({ path }) => path.endsWith("/fork")).map(({ body, match }) => [body, match]), [[{ up_to_index: 1 }, '"6"']]);
  show("7", messages.slice(2));
  app.regenerate(app.transcript.peek()!.messages[1]);
  await tick(5);
  app.resend();
  await tick(5);
  assert.deepEqual(wire.added.map(({ send, ifMatch }) => [(send as { delete_from?: number }).delete_from, ifMatch]), [[2, "5"], [3, "5"], [1, "6"], [1, "7"], [undefined, undefined]]);
});

test("messages that wait to be deleted are deleted when the user leaves the chat", async () => {
  const { app, changes } = await chat();
  app.go({ at: "new" });
  await tick();
  assert.deepEqual(changes(), [deleted]);
});

test("a copy does not take the user away from where they are by then", async () => {
  const { app, wire } = await chat();
  wire.answers["POST /sessions/one/fork"] = () => (app.go({ at: "new" }), { session_id: "copy" });
  await app.library.fork("one");
  assert.equal(app.route.value.at, "new");
});

test("a message that is gone is said to be gone", async () => {
  const { app, wire, changes } = await chat();
  assert.equal(await app.conversation.askAgain({ ...messages[0]!, id: "gone" } as never, "again"), false);
  assert.deepEqual([changes(), wire.added.length], [[deleted], 0]);
  assert.equal(app.notices.shown.value.at(-1)!.kind, "error");
});

test("an edit is not said to be saved if it is not", async () => {
  const { app, wire } = await chat();
  wire.answers["PATCH /sessions/one/messages/1"] = new ProblemError({ code: "internal", detail: "no" }, { status: 500 });
  assert.equal(await app.conversation.save(app.transcript.peek()!.messages[3]!, "new"), false);
  wire.full = new Error("full");
  assert.equal(await app.conversation.askAgain(app.transcript.peek()!.messages[2]!, "again"), false);
});

const queued = { request_id: "q", on_busy: "queue", message: { id: "w", role: "user", content: "waits" } } as never;

test("a message that is taken back comes once, into its own chat, and not if its reply had begun", async () => {
  const { app, wire } = await chat();
  wire.answers["POST /requests/q/cancel"] = () => (app.go({ at: "new" }), { request_id: "q", status: "cancelled" });
  await Promise.all([app.withdraw(queued), app.withdraw(queued)]);
  assert.deepEqual([app.composer.peek().text.value, app.composerOf("one").text.value], ["", "waits"]);
  wire.answers["POST /requests/q2/cancel"] = { request_id: "q2", status: "running" };
  await app.withdraw({ ...(queued as object), request_id: "q2" } as never);
  assert.equal(app.composer.peek().text.value, "");
});

test("a message that is taken back without an answer is asked for again", async (t) => {
  const { app, wire } = await chat();
  t.mock.timers.enable({ apis: ["setTimeout"] });
  wire.answers["POST /requests/q/cancel"] = new ConnectionError("lost");
  await app.withdraw(queued);
  assert.equal(app.composer.peek().text.value, "");
  wire.answers["POST /requests/q/cancel"] = { request_id: "q", status: "cancelled" };
  t.mock.timers.tick(2000);
  for (let i = 0; i < 100 && !app.composer.peek().text.value; i++) await new Promise((resolve) => setImmediate(resolve));
  assert.equal(app.composer.peek().text.value, "waits");
});

test("a send that is taken back goes into the box of its chat", async () => {
  const { app, wire } = await chat();
  Object.assign(wire.outbox, { of: () => [1, 2], withdraw: async () => (app.go({ at: "new" }), true) });
  const entry: OutboxEntry = { id: "r", sessionId: "one", order: "r", send: { content: "lost" }, status: "failed" };
  await Promise.all([app.takeBack(entry), app.takeBack(entry)]);
  assert.deepEqual([app.composer.peek().text.value, app.composerOf("one").text.value], ["", "lost"]);
});

test("the draft of a chat that is deleted elsewhere is the draft of the next one", async () => {
  const { app, wire } = await chat();
  app.composer.peek().write("a draft");
  wire.sessionsOf.get("one")!.set({ status: "deleted", state: undefined, error: undefined });
  assert.deepEqual([app.route.value.at, app.composer.peek().text.value, app.composerOf("one").text.value], ["new", "a draft", ""]);
  app.composerOf("one").putBack({ text: "an edit", pieces: [] }); // as a box does that is closed by that
  assert.deepEqual([app.composer.peek().text.value, app.composerOf("one").text.value], ["an edit\n\na draft", ""]);
});

test("what was not sent to a chat that is deleted elsewhere is in the box of the next one", async () => {
  const entry = (id: string, content: string) => ({ id, sessionId: "one", order: id, send: { content }, status: "failed" }) as OutboxEntry;
  for (const [open, status] of [[chat, "deleted"], [page, "missing"]] as const) {
    const { app, wire } = await open();
    if (status === "missing") app.go({ at: "session", id: "one" });
    wire.entries.set([entry("r1", "first"), entry("r2", "second")]);
    wire.sessionsOf.get("one")!.set({ status, state: undefined, error: new ProblemError({ code: "not_found" }, { status: 404 }) });
    await tick();
    assert.deepEqual([app.route.value.at, app.composer.peek().text.value], ["new", "first\n\nsecond"], status);
  }
});

test("after a reload, a chat whose first message waits in the outbox is not said to be missing", async () => {
  const { app, wire } = await page();
  let read = () => {};
  Object.assign(wire.outbox, { ready: new Promise<void>((resolve) => (read = resolve)) });
  app.go({ at: "session", id: "new1" });
  wire.sessionsOf.get("new1")!.set({ status: "missing", state: undefined, error: new ProblemError({ code: "not_found" }, { status: 404 }) });
  wire.entries.set([{ id: "r", sessionId: "new1", order: "r", send: {}, create: {}, status: "queued" } as OutboxEntry]);
  read();
  await tick();
  assert.equal(app.problem.value, null);
  const before = wire.sessionsOf.get("new1");
  wire.entries.set([{ id: "r", sessionId: "new1", order: "r", send: {}, status: "sending" } as OutboxEntry]);
  assert.notEqual(wire.sessionsOf.get("new1"), before, "it is followed once it is created");
});

test("a lost answer about who uses the page is asked for again", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const lost = new ConnectionError("lost");
  const made = page(lost);
  t.mock.timers.tick(1);
  const { app, wire } = await made;
  assert.equal(app.readOnly.value, false);
  assert.equal(wire.lists.length, 1, "the page follows the list, so that it can say that the server is not reached");
  wire.answers["GET /auth/me"] = { requires_token: true, scope: "read", browser: true };
  t.mock.timers.tick(2000);
  for (let i = 0; i < 10; i++) await Promise.resolve();
  assert.equal(app.readOnly.value, true);
});

test("sign-out without a connection changes nothing, so that no message is lost", async () => {
  const { app, wire } = await page();
  let cleared = 0;
  Object.assign(wire.outbox, { clear: async () => void cleared++ });
  wire.answers["DELETE /auth/session"] = new ConnectionError("lost");
  await app.signOut();
  assert.deepEqual([cleared, app.notices.shown.value.length], [0, 1]);
  for (const answer of [{}, new ProblemError({ code: "unauthorized" }, { status: 401 })]) {
    wire.answers["DELETE /auth/session"] = answer;
    await app.signOut();
  }
  assert.equal(cleared, 2);
});

test("changes of a chat are made in their order, and the archive is not said to have a chat that it has not", async () => {
  const { app, wire } = await page();
  let answer = () => {};
  wire.answers["PATCH /sessions/one"] = () => new Promise((resolve) => (answer = () => resolve({})));
  const changes = [app.library.pin("one", true), app.library.pin("one", false)];
  await tick();
  const made = () => wire.calls.filter(({ method }) => method === "PATCH").map(({ body }) => JSON.stringify(body));
  assert.deepEqual(made(), ['{"metadata":{"pinned":true}}']);
  answer();
  await changes[0];
  await tick();
  assert.deepEqual(made().slice(1), ['{"metadata":{"pinned":false}}']);
  answer();
  await changes[1];
  wire.answers["PATCH /sessions/one"] = new ProblemError({ code: "internal", detail: "no" }, { status: 500 });
  await app.library.archive("one", true);
  assert.deepEqual(app.notices.shown.value.map(({ kind }) => kind), ["error"]);
});

test("the palette unpins and restores a chat that the list does not show", async () => {
  const { app, wire } = await page();
  wire.answers["PATCH /sessions/old"] = {};
  app.go({ at: "session", id: "old" });
  wire.sessionsOf.get("old")!.set({ status: "ready", state: state("old", { metadata: { pinned: true, archived: true } }), error: undefined });
  for (const id of ["pin", "archive"]) commandsOf(app).find((command) => command.id === id)!.run();
  await tick();
  assert.deepEqual(wire.calls.filter(({ method }) => method === "PATCH").map(({ body }) => body), [{ metadata: { pinned: false } }, { metadata: { archived: false } }]);
});

test("an agent that is chosen and taken back at once is the one before", async () => {
  const { app, wire } = await page();
  wire.answers["PATCH /sessions/one"] = {};
  app.go({ at: "session", id: "one" });
  wire.sessionsOf.get("one")!.set({ status: "ready", state: state("one"), error: undefined });
  await Promise.all([app.settings.chooseAgent("b"), app.settings.chooseAgent("a")]);
  assert.deepEqual(wire.calls.filter(({ method }) => method === "PATCH").map(({ body }) => body), [{ agent_id: "b" }, { agent_id: "a" }]);
});
