import assert from "node:assert/strict";
import test from "node:test";
import type { Message } from "../../src/model/types.ts";
import { contextOf, usageOf } from "../../src/model/usage.ts";

const message = (metadata: Record<string, unknown>) => ({ id: "m", role: "assistant", content: "", created_at: "", metadata }) as unknown as Message;

test("usage comes from the summary, or from the backend's own object", () => {
  assert.deepEqual(usageOf(message({ usage_prompt_tokens: 3, usage_completion_tokens: 4, usage_total_tokens: 7, usage_reasoning_tokens: 2, usage: { cost: 0.5 } })), { prompt: 3, completion: 4, reasoning: 2, total: 7, cost: 0.5 });
  assert.deepEqual(usageOf(message({ usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 } })), { prompt: 1, completion: 2, total: 3 });
  assert.equal(usageOf(message({})), null);
});

test("usage that is not a number is left out", () => {
  for (const usage of [null, "many", [], { prompt_tokens: "3", total_tokens: -1, cost: Number.NaN }]) assert.equal(usageOf(message({ usage })), null);
});

test("the context has several names", () => {
  assert.equal(contextOf({ id: "m", context_length: 4096 }), 4096);
  assert.equal(contextOf({ id: "m", max_model_len: 8192 }), 8192);
  assert.equal(contextOf({ id: "m", context_length: "4096" }), 0);
  assert.equal(contextOf({ id: "m" }), 0);
});
