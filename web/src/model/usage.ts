// What a reply cost: its tokens, its price, and how much of the model's context it filled.
import type { Message } from "./types.ts";

export interface Usage {
  readonly prompt?: number;
  readonly completion?: number;
  readonly reasoning?: number;
  readonly total?: number;
  /** In US dollars, if the backend says so. */
  readonly cost?: number;
}

const count = (value: unknown): number | undefined => (typeof value === "number" && Number.isFinite(value) && value >= 0 ? value : undefined);

/** usageOf returns what the backend reported with a message, or null if it reported nothing. */
export function usageOf(message: Message): Usage | null {
  const metadata: Record<string, unknown> = message.metadata ?? {};
  const own = metadata.usage;
  const usage = (typeof own === "object" && own !== null ? own : {}) as Record<string, unknown>;
  const found: { -readonly [key in keyof Usage]: number | undefined } = {
    prompt: count(metadata.usage_prompt_tokens) ?? count(usage.prompt_tokens),
    completion: count(metadata.usage_completion_tokens) ?? count(usage.completion_tokens),
    reasoning: count(metadata.usage_reasoning_tokens),
    total: count(metadata.usage_total_tokens) ?? count(usage.total_tokens),
    cost: count(metadata.cost) ?? count(usage.cost) ?? count(usage.total_cost),
  };
  const known = Object.entries(found).filter(([, value]) => value !== undefined);
  return known.length ? (Object.fromEntries(known) as Usage) : null;
}

/** The names under which servers say how long the context of a model may be. */
const lengths = ["context_length", "context_window", "max_model_len", "max_context_length"] as const;

/** contextOf returns how many tokens the context of a model may have, or 0 if its description does not say. */
export function contextOf(model: Readonly<Record<string, unknown>>): number {
  for (const name of lengths) {
    const length = count(model[name]);
    if (length) return length;
  }
  return 0;
}
