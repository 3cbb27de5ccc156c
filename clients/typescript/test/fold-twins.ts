// Compares the fold with the server's: TestFoldTwins sends logs with the states that the server computes.

import assert from "node:assert/strict"
import { readFileSync } from "node:fs"
import { type LogEvent, type SessionState, type Snapshot, fold, fromSnapshot } from "../src/index.ts"

interface Twin {
  snapshot: Snapshot
  windows: { plain: LogEvent[]; compacted: LogEvent[]; state: Record<string, unknown> }[]
}

function view({ messages, draft, session, deleted, cursor }: SessionState): unknown {
  return {
    messages, deleted, cursor, agent_id: session.agent_id, metadata: session.metadata,
    draft: draft ? { requestId: draft.requestId, content: draft.content, metadata: draft.metadata } : null,
  }
}

const normalized = (value: unknown): unknown => JSON.parse(JSON.stringify(value, (key, v) => ((key === "metadata" || key === "messages") && v === null ? (key === "metadata" ? {} : []) : v)))

const twins = JSON.parse(readFileSync(0, "utf8")) as Twin[]
let windows = 0, drafts = 0
for (const { snapshot, windows: given } of twins) {
  let plain = fromSnapshot(snapshot), compacted = plain
  for (const w of given) {
    plain = w.plain.reduce(fold, plain)
    compacted = w.compacted.reduce(fold, compacted)
    assert.deepEqual(normalized(view(plain)), normalized(w.state))
    assert.deepEqual(JSON.parse(JSON.stringify(compacted)), JSON.parse(JSON.stringify(plain)), "the state depends on the windows")
    assert.equal(w.plain.reduce(fold, plain), plain, "events that were applied have an effect")
    windows++
    if (plain.draft) drafts++
  }
}
assert.ok(windows > twins.length && drafts > twins.length / 20, "there are too few cases") // of 20 logs under the race detector, else 100
console.log(`${twins.length} logs in ${windows} windows, ${drafts} of which end in a draft`)
