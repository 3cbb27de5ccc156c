// The parts of a message next to its text: reasoning and remarks.

import { listOf } from "./dom.js";

const isText = (value) => typeof value === "string" && value !== "";

// reasoningOf returns the reasoning text of a message. Some backends send two texts, others
// send one text in both fields.
export function reasoningOf(meta) {
  return [...new Set([meta?.reasoning_content, meta?.reasoning].filter(isText))].join("\n\n");
}

const endings = {
  length: "The reply was cut at the token limit (finish_reason length).",
  content_filter: "A content filter of the backend cut the reply (finish_reason content_filter).",
};

// remarksOf returns sentences that say how a reply ended, if its text does not show that.
// A draft has no id and has not ended.
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
