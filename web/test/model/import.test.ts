import assert from "node:assert/strict";
import { test } from "node:test";
import { ProblemError, type ImportReport } from "@loquat/client";
import { Import, notable } from "../../src/model/import.ts";
import type { Wire } from "../../src/model/wire.ts";

const file = (name: string) => Object.assign(new Blob(["{}"]), { name });
const report = (more: Partial<ImportReport> = {}): ImportReport => ({ format: "loquat", imported: 1, skipped: 0, failed: 0, sessions: [], ...more });

interface Options {
  readonly signal: AbortSignal;
  onProgress(sent: number, total: number): void;
}

function importing(send: (name: string, query: object, options: Options) => Promise<ImportReport>) {
  return new Import({ sdk: { sessions: { import: (blob: { name: string }, query: object, options: Options) => send(blob.name, query, options) } } } as unknown as Wire);
}

test("files are imported one after the other, and one that fails does not stop the others", async () => {
  const seen: string[] = [];
  const work = importing(async (name, query, { onProgress }) => {
    onProgress(1, 4);
    seen.push(`${name} ${JSON.stringify(query)} ${JSON.stringify(work.progress.peek())}`);
    if (name === "b") throw new ProblemError({ code: "too_large", detail: "too large" }, { status: 413 });
    return report();
  });
  await work.run([file("a"), file("b"), file("c")], true);
  assert.deepEqual(seen, ["a", "b", "c"].map((name, i) => `${name} {"new_ids":true} ${JSON.stringify({ name, file: i + 1, files: 3, sent: 0.25 })}`));
  assert.deepEqual(work.results.value.map(({ name, report, error }) => [name, report?.imported, error?.code]), [["a", 1, undefined], ["b", undefined, "too_large"], ["c", 1, undefined]]);
  assert.equal(work.progress.value, null);
});

test("a stopped import sends no further file, and may run again", async () => {
  const sent: string[] = [];
  const work = importing((name, _, { signal }) => {
    sent.push(name);
    return name === "slow" ? new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))) : Promise.resolve(report());
  });
  const run = work.run([file("slow"), file("next")], false);
  await work.run([file("second")], false);
  work.stop();
  await run;
  assert.deepEqual(sent, ["slow"], "one import at a time");
  assert.deepEqual(work.results.value, []);
  await work.run([file("again")], false);
  assert.equal(work.results.value.length, 1);
});

test("sessions that failed or lost something are notable", () => {
  const sessions = [{ place: "1", status: "imported" }, { place: "2", status: "imported", notes: ["a rating"] }, { place: "3", status: "failed", error: "broken" }] as ImportReport["sessions"];
  assert.deepEqual(notable(report({ sessions })).map(({ place }) => place), ["2", "3"]);
});
