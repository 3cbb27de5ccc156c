import assert from "node:assert/strict";
import { mock, test } from "node:test";
import type { SearchHit, SearchResult } from "@loquat/client";
import { atEnd, earlierSpan, laterSpan, limitsOf, most, page, rowAt, spanAround } from "../../src/model/span.ts";
import { debounceMs, queryOf, Search } from "../../src/model/search.ts";
import type { Row } from "../../src/model/transcript.ts";
import type { Wire } from "../../src/model/wire.ts";

const tick = async (): Promise<void> => {
  for (let i = 0; i < 5; i++) await Promise.resolve();
};

/** fake returns a wire whose searches the test answers. */
function fake() {
  const asked: { query: Record<string, unknown>; signal: AbortSignal; answer(result: Partial<SearchResult>): void; fail(thrown: Error): void }[] = [];
  const search = (query: Record<string, unknown>, { signal }: { signal: AbortSignal }) =>
    new Promise((resolve, reject) => asked.push({ query, signal, answer: (result) => resolve({ hits: [], ...result }), fail: reject }));
  return { asked, wire: { sdk: { search } } as unknown as Wire };
}

const hit = (id: string, index?: number) => ({ session_id: "s", message_id: id, ...(index !== undefined && { index }), snippet: { parts: [] } }) as unknown as SearchHit;

test("a search waits for a pause, and a new query cancels the one before", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  try {
    const { asked, wire } = fake();
    const search = new Search(wire, () => "");
    search.find("ba");
    search.find("bana");
    assert.equal(search.found.value.status, "searching");
    mock.timers.tick(debounceMs - 1);
    assert.equal(asked.length, 0);
    mock.timers.tick(1);
    assert.deepEqual(asked.map(({ query }) => query), [{ q: "bana*", limit: 20, archived: "any" }]);
    search.find("banana ");
    assert.equal(asked[0]!.signal.aborted, true);
    mock.timers.tick(debounceMs);
    asked[0]!.answer({ hits: [hit("old", 0)] });
    asked[1]!.answer({ hits: [hit("new", 3), hit("title")], incomplete: true, next_page_token: "t" });
    await tick();
    assert.deepEqual(search.found.value, { status: "done", hits: [hit("new", 3)], incomplete: true, more: true });
    search.find("  ");
    assert.equal(search.found.value.status, "idle");
    assert.equal(search.found.value.hits.length, 0);
  } finally {
    mock.timers.reset();
  }
});

test("a search that failed can be repeated, and a token of one session searches only there", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  try {
    const { asked, wire } = fake();
    const search = new Search(wire, () => "only");
    search.find("one two");
    mock.timers.tick(debounceMs);
    assert.equal(asked[0]!.query["session_id"], "only");
    assert.equal("archived" in asked[0]!.query, false);
    asked[0]!.fail(new Error("broken"));
    await tick();
    assert.equal(search.found.value.status, "failed");
    assert.match(search.found.value.error!.message, /broken/);
    search.again();
    mock.timers.tick(debounceMs);
    assert.equal(asked[1]!.query["q"], "one two*");
    search.close();
    asked[1]!.answer({ hits: [hit("late", 1)] });
    await tick();
    assert.equal(search.found.value.hits.length, 0);
  } finally {
    mock.timers.reset();
  }
});

test("the last word of a query may grow, unless it is quoted, ended or of a script without spaces", () => {
  assert.equal(queryOf("loqu"), "loqu*");
  assert.equal(queryOf(" naïv"), "naïv*");
  for (const whole of ['"cool pla', "保存", "loqu*", "why?", '"cool place"']) assert.equal(queryOf(whole), whole);
  assert.equal(queryOf("loqu "), "loqu");
  assert.equal(queryOf("x".repeat(5000)).length, 1000);
});

const rows = (n: number): Row[] => Array.from({ length: n }, (_, i) => (i % 2 ? { kind: "reply", key: `k${i}`, from: i, to: i, parts: [], running: false } : { kind: "message", key: `k${i}`, index: i, message: {} }) as unknown as Row);

test("at most a number of rows is rendered, at the end at first, and around a message after a jump", () => {
  const all = rows(1000);
  assert.deepEqual(limitsOf(all, atEnd), { from: 1000 - page, to: 1000 });
  assert.deepEqual(limitsOf(rows(3), atEnd), { from: 0, to: 3 });
  let span = atEnd;
  for (let i = 0; i < 60; i++) {
    span = earlierSpan(all, limitsOf(all, span));
    const { from, to } = limitsOf(all, span);
    assert.ok(to - from <= most, `${from} to ${to}`);
  }
  assert.equal(limitsOf(all, span).from, 0);
  for (let i = 0; i < 60; i++) span = laterSpan(all, limitsOf(all, span));
  assert.deepEqual(limitsOf(all, span), { from: 1000 - most, to: 1000 });
  assert.equal(span.last, null, "at the end, new rows are rendered too");
  const around = limitsOf(all, spanAround(all, rowAt(all, 500)));
  assert.ok(around.from < 500 && around.to > 500 && around.to - around.from <= page + 5);
  assert.equal(rowAt(all, 1000), -1);
  assert.deepEqual(limitsOf(all, { first: "gone", last: "gone" }), { from: 1000 - page, to: 1000 });
});
