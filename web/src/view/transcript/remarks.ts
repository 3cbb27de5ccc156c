import { has, t } from "../../i18n/index.ts";
import type { Message } from "../../model/types.ts";

/** remarksOf returns what the user should know about the end of a reply. */
export function remarksOf(message: Message): string[] {
  const { incomplete, finish_reason: reason, refusal, tool_calls: calls } = message.metadata ?? {};
  const remarks: string[] = [];
  const early = `transcript.incomplete_${String(incomplete)}`;
  if (typeof incomplete === "string") remarks.push(has(early) ? t(early) : incomplete);
  if (typeof refusal === "string" && refusal) remarks.push(t("transcript.refused", { text: refusal }));
  if (reason === "length") remarks.push(t("transcript.cut_length"));
  else if (reason === "content_filter") remarks.push(t("transcript.cut_filter"));
  else if (typeof reason === "string" && reason) remarks.push(t("transcript.cut_other", { reason }));
  const called = Array.isArray(calls) && calls.length > 0;
  if (!message.content.trim() && !called && !refusal && typeof incomplete !== "string") remarks.push(t("transcript.no_text"));
  return remarks;
}
