import assert from "node:assert/strict";
import { test } from "node:test";
import { fold, fromSnapshot, type LogEvent, type Message, type SessionState, type Snapshot } from "@loquat/client";
import { type ReplyRow, Transcript } from "../../src/model/transcript.ts";

const message = (id: string, role: string, content: string, metadata?: object): Message => ({ id, role, content, created_at: "2026-01-01T00:00:00Z", ...(metadata && { metadata }) }) as Message;

const snapshot = (messages: Message[], more: object = {}): SessionState =>
  fromSnapshot({ session_id: "s", agent_id: "a", created_at: "", updated_at: "", metadata: {}, messages, cursor_event_id: "0000000000000000", ...more } as unknown as Snapshot);

/** Player applies events to a session and its transcript. */
class Player {
  readonly transcript = new Transcript(() => this.time);
  time = 1000;
  private id = 0;
  constructor(private state: SessionState) {
    this.transcript.update(state);
  }
  event(type: string, more: object = {}): void {
    this.state = fold(this.state, { event_id: String(++this.id).padStart(16, "0"), session_id: "s", request_id: "r", type, ...more } as unknown as LogEvent);
    this.transcript.update(this.state);
  }
  partial(content: string, metadata?: object): void {
    this.event("partial", { message: { role: "assistant", content, ...(metadata && { metadata }) } });
  }
  get reply(): ReplyRow {
    return this.transcript.rows.value.at(-1) as ReplyRow;
  }
}

test("a text that is written changes no row but its own signal", () => {
  const p = new Player(snapshot([message("1", "user", "Hi"), message("2", "assistant", "Hello"), message("3", "user", "More")]));
  p.event("request_started", { stream: true });
  assert.equal(p.transcript.phase.value, "waiting");
  p.partial("a");
  const rows = p.transcript.rows.value;
  const part = p.reply.parts[0]!;
  assert.equal(part.kind === "text" && part.live?.value, "a");
  p.partial("b");
  assert.equal(p.transcript.rows.value, rows, "the rows are the same list");
  assert.equal(part.kind === "text" && part.live?.value, "ab");
  assert.equal(p.transcript.phase.value, "writing");
});

test("a finished text keeps its key, so that the view keeps its nodes", () => {
  const p = new Player(snapshot([message("1", "user", "Hi")]));
  p.event("request_started");
  p.partial("ab", { reasoning_content: "hm" });
  const keys = p.reply.parts.map((part) => part.key);
  const row = p.reply.key;
  p.event("final", { messages: [message("2", "assistant", "ab", { reasoning_content: "hm" })] });
  p.event("request_completed");
  assert.deepEqual(p.reply.parts.map((part) => part.key), keys);
  assert.equal(p.reply.key, row);
  assert.equal(p.reply.parts.every((part) => part.kind === "tools" || part.live === undefined), true);
  assert.equal(p.transcript.phase.value, "idle");
});

test("two phases with tools are one reply", () => {
  const p = new Player(snapshot([message("1", "user", "Weather?")]));
  const call = { id: "c1", type: "function", function: { name: "weather", arguments: '{"city":"Rome"}' } };
  p.event("request_started");
  p.partial("Let me look.");
  p.event("final", { messages: [message("2", "assistant", "Let me look.", { tool_calls: [call] })] });
  p.event("tool_calls", { tool_calls: [call] });
  assert.equal(p.transcript.phase.value, "tools");
  p.event("tool_partial", { tool_call_id: "c1", phase: "start", payload: { part: "" } });
  p.event("tool_partial", { tool_call_id: "c1", phase: "stream", payload: { part: "asking" } });
  const tools = p.reply.parts.find((part) => part.kind === "tools")!;
  assert.equal(tools.kind === "tools" && tools.calls[0]!.live?.value?.output, "asking");
  p.event("tool_results", { messages: [message("3", "tool", "Sunny", { tool_call_id: "c1", tool_name: "weather" })] });
  assert.equal(p.transcript.phase.value, "waiting");
  p.partial("It is sunny.");
  p.event("final", { messages: [message("4", "assistant", "It is sunny.")] });
  p.event("request_completed");
  assert.equal(p.transcript.rows.value.length, 2);
  assert.deepEqual(p.reply.parts.map((part) => part.kind), ["text", "tools", "text"]);
  assert.equal(p.reply.from, 1);
  assert.equal(p.reply.to, 3);
  const done = p.reply.parts[1]!;
  assert.equal(done.kind === "tools" && done.calls[0]!.result?.content, "Sunny");
});

test("rows that did not change are the same objects", () => {
  const p = new Player(snapshot([message("1", "user", "a"), message("2", "assistant", "b"), message("3", "user", "c"), message("4", "assistant", "d")]));
  const before = p.transcript.rows.value;
  p.event("message_appended", { request_id: undefined, message: message("5", "user", "e") });
  const after = p.transcript.rows.value;
  assert.equal(after.length, 5);
  before.forEach((row, i) => assert.equal(after[i], row));
  p.event("message_modified", { index: 1, content: "B" });
  assert.equal(p.transcript.rows.value[0], before[0]);
  assert.notEqual(p.transcript.rows.value[1], before[1]);
});

test("the retry notice goes when the reply goes on, and the error stays after a reload", () => {
  const p = new Player(snapshot([message("1", "user", "Hi")]));
  p.event("request_started");
  p.event("retry_scheduled", { attempt: 1, cause: "status", status: 500, delay_seconds: 3, resume_at: "" });
  assert.deepEqual(p.transcript.retry.value, { at: 4000, attempt: 1, cause: "status" });
  assert.equal(p.transcript.phase.value, "retrying");
  p.partial("a");
  assert.equal(p.transcript.retry.value, null);
  p.event("error", { detail: "it broke" });
  p.event("request_completed");
  assert.equal(p.transcript.last.value?.error, "it broke");
  const loaded = new Player(snapshot([message("1", "user", "Hi")], { last_request: { request_id: "r", status: "failed", error: "it broke" } }));
  assert.equal(loaded.transcript.last.value?.error, "it broke");
});

test("a tool message without a call is a row of its own", () => {
  const p = new Player(snapshot([message("1", "user", "Hi"), message("2", "tool", "orphan", { tool_call_id: "constructor" }), message("3", "assistant", "x", { tool_calls: "junk" })]));
  assert.deepEqual(p.transcript.rows.value.map((row) => row.kind), ["message", "message", "reply"]);
});
