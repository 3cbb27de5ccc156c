import assert from "node:assert/strict";
import test from "node:test";
import type { Message, SessionState } from "@loquat/client";
import { Transcript, type ReplyRow } from "../../src/model/transcript.ts";

let n = 0;
const message = (role: Message["role"], content: string, metadata: Record<string, unknown> = {}): Message => ({ id: `m${n++}`, role, content, metadata, created_at: "2026-01-01T00:00:00Z" }) as Message;
const state = (messages: readonly Message[], more: Partial<SessionState> = {}): SessionState =>
  ({ session: { session_id: "s", metadata: {} }, messages, draft: undefined, request: undefined, tools: {}, queue: [], queueOmitted: false, cursor: "1", deleted: false, ...more }) as SessionState;
const running = { requestId: "r", status: "running" } as const;
const draft = (content: string, reasoning = "") => ({ requestId: "r", content, reasoning, metadata: {} });
const call = (id: string) => ({ id, type: "function", function: { name: "search", arguments: "{}" } });
const reply = (transcript: Transcript): ReplyRow => {
  const row = transcript.rows.peek().at(-1);
  assert.equal(row?.kind, "reply");
  return row as ReplyRow;
};

test("a reply joins its phases, and the calls with their results", () => {
  const transcript = new Transcript();
  transcript.update(state([message("user", "q"), message("assistant", "a", { tool_calls: [call("c")] }), message("tool", "found", { tool_call_id: "c" }), message("assistant", "b"), message("user", "next")]));
  const rows = transcript.rows.peek();
  assert.deepEqual(rows.map((row) => row.kind), ["message", "reply", "message"]);
  const row = rows[1] as ReplyRow;
  assert.deepEqual([row.from, row.to], [1, 3]);
  assert.deepEqual(row.parts.map((part) => part.kind), ["text", "tools", "text"]);
  const tools = row.parts[1]!;
  assert.equal(tools.kind === "tools" && tools.calls[0]!.result?.content, "found");
});

test("a call whose id a call before it had has its own result", () => {
  const transcript = new Transcript();
  const round = (result: string) => [message("assistant", "", { tool_calls: [call("search:0")] }), ...(result ? [message("tool", result, { tool_call_id: "search:0" })] : [])];
  const first = [message("user", "Rome?"), ...round("sunny"), message("assistant", "Sunny."), message("user", "Oslo?")];
  const results = () => transcript.rows.peek().flatMap((row) => (row.kind === "reply" ? row.parts : [])).flatMap((part) => (part.kind === "tools" ? part.calls.map((call) => call.result?.content) : []));
  transcript.update(state([...first, ...round("")], { request: running }));
  assert.deepEqual(results(), ["sunny", undefined]);
  assert.equal(transcript.phase.peek(), "tools");
  transcript.update(state([...first, ...round("rain")]));
  assert.deepEqual(results(), ["sunny", "rain"]);
});

test("text that is written changes no row, and keeps its key when it is stored", () => {
  const transcript = new Transcript();
  const question = message("user", "q");
  const messages = [question];
  transcript.update(state(messages, { request: running, draft: draft("Hel") }));
  const rows = transcript.rows.peek();
  const part = reply(transcript).parts[0]!;
  assert.ok(part.kind === "text" && part.live);
  transcript.update(state(messages, { request: running, draft: draft("Hello") }));
  assert.equal(transcript.rows.peek(), rows);
  assert.equal(part.live.peek(), "Hello");
  transcript.update(state([question, message("assistant", "Hello")], { request: running }));
  assert.equal(reply(transcript).parts[0]!.key, part.key);
});

test("reasoning has the time from its first to its last word", () => {
  let now = 1000;
  const transcript = new Transcript(() => now);
  const question = message("user", "q");
  transcript.update(state([question], { request: running, draft: draft("", "hm") }));
  now = 5000;
  transcript.update(state([question], { request: running, draft: draft("a", "hm") }));
  const part = reply(transcript).parts[0]!;
  assert.ok(part.kind === "reasoning");
  assert.deepEqual([part.began, part.ended], [1000, 5000]);
  const { key } = part;
  transcript.update(state([question, message("assistant", "a", { reasoning_content: "hm" })]));
  const stored = reply(transcript).parts[0]!;
  assert.ok(stored.kind === "reasoning" && stored.key === key);
  assert.deepEqual([stored.began, stored.ended], [1000, 5000]);
});

test("rows that did not change stay the same objects", () => {
  const transcript = new Transcript();
  const messages = Array.from({ length: 40 }, (_, i) => message(i % 2 ? "assistant" : "user", `${i}`));
  transcript.update(state(messages));
  const before = transcript.rows.peek();
  transcript.update(state([...messages, message("user", "more")]));
  const after = transcript.rows.peek();
  assert.equal(after.length, before.length + 1);
  before.forEach((row, i) => assert.equal(after[i], row));
});

test("a call without a result runs while the request runs, and was not run after it", () => {
  const transcript = new Transcript();
  const messages = [message("user", "q"), message("assistant", "", { tool_calls: [call("c")] })];
  transcript.update(state(messages, { request: running }));
  const part = reply(transcript).parts[0]!;
  assert.ok(part.kind === "tools" && part.calls[0]!.live);
  assert.equal(transcript.phase.peek(), "tools");
  transcript.update(state(messages, { request: { requestId: "r", status: "failed", error: "no" } }));
  const ended = reply(transcript).parts[0]!;
  assert.ok(ended.kind === "tools" && !ended.calls[0]!.live);
  assert.equal(transcript.last.peek()?.error, "no");
});

test("the countdown to another attempt goes away when the backend answers", () => {
  const transcript = new Transcript(() => 1000);
  const question = message("user", "q");
  transcript.update(state([question], { request: { ...running, retry: { attempt: 1, cause: "status", delay_seconds: 3, resume_at: "" } } }));
  assert.equal(transcript.phase.peek(), "retrying");
  assert.equal(transcript.retry.peek()?.at, 4000);
  transcript.update(state([question], { request: running, draft: draft("a") }));
  assert.equal(transcript.retry.peek(), null);
  assert.equal(transcript.phase.peek(), "writing");
});

test("10,000 messages become rows in less than a second of the processor's time", () => {
  const transcript = new Transcript();
  const messages = Array.from({ length: 10_000 }, (_, i) => message(i % 2 ? "assistant" : "user", `message ${i}`));
  const began = process.cpuUsage();
  transcript.update(state(messages));
  const { user } = process.cpuUsage(began);
  assert.equal(transcript.rows.peek().length, 10_000);
  assert.ok(user < 1_000_000, `${user} µs`);
});
