// What a message says besides its text.

import { listOf } from "./dom.js";

const isText = (value) => typeof value === "string" && value !== "";

// reasoningOf is the reasoning text of a message. Some backends give two texts, others one
// text twice.
export function reasoningOf(meta) {
  return [...new Set([meta?.reasoning_content, meta?.reasoning].filter(isText))].join("\n\n");
}

const endings = {
  length: "The reply was cut at the token limit (finish_reason length).",
  content_filter: "A content filter of the backend cut the reply (finish_reason content_filter).",
};

// remarksOf are the sentences that say how a reply ended where its text does not. A draft,
// which has no id, has not ended.
export function remarksOf({ id, role, content, metadata }) {
  const meta = metadata || {};
  const remarks = [];
  if (isText(meta.refusal)) remarks.push(`The model refused: ${meta.refusal}`);
  if (isText(meta.finish_reason)) remarks.push(endings[meta.finish_reason] || `The reply ended with finish_reason ${meta.finish_reason}.`);
  if (meta.incomplete) remarks.push(`Ends early: ${meta.incomplete}`);
  const silent = role === "assistant" && id && !content?.trim() && listOf(meta.tool_calls).length === 0;
  if (silent && !meta.incomplete && !isText(meta.refusal)) remarks.push("The reply has no text.");
  return remarks;
}
