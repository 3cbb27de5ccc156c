import assert from "node:assert/strict";
import { test } from "node:test";
import { fromPage, type SessionSummary } from "@loquat/client";
import { entryOf, groupsOf, SessionList } from "../../src/model/list.ts";
import { FakeWire } from "./fake.ts";

const now = new Date(2026, 4, 15, 12).getTime();
const hour = 3_600_000;

const summary = (id: string, age: number, metadata: object = {}, more: object = {}): SessionSummary =>
  ({ session_id: id, agent_id: "a", created_at: "", updated_at: new Date(now - age * hour).toISOString(), metadata, message_count: 1, cursor_event_id: "0000000000000001", ...more }) as SessionSummary;

function listed(sessions: SessionSummary[], opened = "", soon = (run: () => void): void => run()): { wire: FakeWire; list: SessionList; show: (sessions: SessionSummary[]) => void } {
  const wire = new FakeWire();
  const list = new SessionList(wire.wire, () => opened, () => now, soon);
  list.show(false, "");
  const show = (all: SessionSummary[]): void => wire.lists[0]!.set({ status: "ready", list: fromPage({ sessions: all } as never, {}, "0000000000000001"), more: false, error: undefined });
  show(sessions);
  return { wire, list, show };
}

test("sessions are grouped by the date of their last change", () => {
  const { list } = listed([summary("p", 900, { pinned: true }), summary("a", 1), summary("b", 20), summary("c", 100), summary("d", 24 * 40), summary("e", 24 * 41), summary("f", 24 * 80)]);
  assert.deepEqual(list.groups.value.map((g) => [g.name, g.entries.map((e) => e.id).join("")]), [["pinned", "p"], ["today", "a"], ["yesterday", "b"], ["week", "c"], ["month", "de"], ["month", "f"]]);
});

test("a clock that was wrong makes no group of its own", () => {
  const future = entryOf(summary("x", -48), false, false);
  const broken = entryOf({ ...summary("y", 0), updated_at: "junk" }, false, false);
  assert.deepEqual(groupsOf([future, broken], now).map((g) => g.name), ["today", "month"]);
});

test("a reply that ends elsewhere marks its session, and only that row is new", () => {
  const [a, b] = [summary("a", 1, {}, { active_request_id: "r" }), summary("b", 2)];
  const { list, show } = listed([a, b], "b");
  const before = list.sorted.value;
  assert.equal(before[0]!.running, true);
  const { active_request_id: _, ...ended } = a;
  show([ended as SessionSummary, b]);
  assert.deepEqual([list.entry("a")!.running, list.entry("a")!.unread], [false, true]);
  assert.equal(list.entry("b"), before[1]);
  list.read("a");
  assert.equal(list.entry("a")!.unread, false);
});

test("changes are shown together when the page is idle, and a reply that has begun and ended meanwhile marks its session", () => {
  const idle: (() => void)[] = [];
  const { list, show } = listed([summary("a", 2)], "", (run) => void idle.push(run));
  assert.equal(list.sorted.value.length, 1, "the first list is shown at once");
  show([summary("a", 2), summary("b", 1, {}, { active_request_id: "r" })]);
  show([summary("a", 2), summary("b", 1)]);
  assert.equal(list.sorted.value.length, 1);
  assert.equal(idle.length, 1);
  idle.shift()!();
  assert.deepEqual([list.sorted.value.length, list.entry("b")!.running, list.entry("b")!.unread], [2, false, true]);
  show([summary("a", 2)]);
  assert.equal(idle.length, 1, "the next change waits again");
});

test("a change shows at once, is taken back on failure, and ends with the event", () => {
  const { list, show } = listed([summary("a", 1, { title: "Old" }), summary("b", 2)]);
  const undo = list.patch("b", { pinned: true });
  assert.deepEqual(list.sorted.value.map((e) => e.id), ["b", "a"]);
  undo();
  assert.deepEqual(list.sorted.value.map((e) => e.id), ["a", "b"]);
  list.patch("a", { title: "New" });
  assert.equal(list.entry("a")!.title, "New");
  show([summary("a", 1, { title: "Theirs" }, { cursor_event_id: "0000000000000009" }), summary("b", 2)]);
  assert.equal(list.entry("a")!.title, "Theirs");
});

test("hostile metadata is no text of the list", () => {
  const entry = entryOf(summary("a", 1, { title: { toString: "x" }, pinned: "yes", tags: [1, "ok", null], archived: 1 }), false, false);
  assert.deepEqual([entry.title, entry.pinned, entry.archived, entry.tags], ["", false, false, ["ok"]]);
});

test("what is about to be deleted is not shown", () => {
  const { list } = listed([summary("a", 1), summary("b", 2)]);
  list.hidden.value = new Set(["a"]);
  assert.deepEqual(list.sorted.value.map((e) => e.id), ["b"]);
});

test("the rows of 5,000 sessions stay the same after a change of one", () => {
  const sessions = Array.from({ length: 5000 }, (_, i) => summary(`s${String(i).padStart(4, "0")}`, i));
  const { list, show } = listed(sessions);
  const before = new Map(list.sorted.value.map((e) => [e.id, e]));
  show([...sessions.slice(0, 4000), summary("s4000", 4000, { title: "x" }), ...sessions.slice(4001)]);
  assert.equal(list.sorted.value.filter((e) => before.get(e.id) !== e).length, 1);
});

test("plugins show texts of a session in the list, and only with data", async () => {
  const { wire, list } = listed([summary("a", 1, { project: "<b>Loquat</b>" }), summary("b", 2)]);
  wire.answers["GET /application/ui-schema"] = { elements: [{ ui_type: "session_list_field", key: "project", data: "project", template: "in {{data}}" }, { ui_type: "hologram" }] };
  await list.loadElements();
  assert.deepEqual([list.fields(list.entry("a")!), list.fields(list.entry("b")!)], [["in <b>Loquat</b>"], []]);
});
