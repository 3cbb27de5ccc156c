import { useEffect } from "preact/hooks";
import { numbers, t } from "../../i18n/index.ts";
import type { App } from "../../model/app.ts";
import type { Message } from "../../model/types.ts";
import { usageOf } from "../../model/usage.ts";

/** fillOf returns how much of the model's context the conversation up to a reply fills, or null if that is not known. */
export function fillOf(app: App, message: Message): { used: number; length: number } | null {
  const used = usageOf(message)?.total ?? 0;
  const model = message.metadata?.model;
  const length = typeof model === "string" ? (app.conversation.contexts.value.get(model) ?? 0) : 0;
  return used && length ? { used, length } : null;
}

export const percent = (part: number): string => new Intl.NumberFormat(numbers().resolvedOptions().locale, { style: "percent", maximumFractionDigits: 0 }).format(part);

/** Gauge shows how full the context of the model is. */
export function Gauge({ app, message }: { readonly app: App; readonly message: Message }) {
  const reported = Boolean(usageOf(message)?.total);
  useEffect(() => {
    if (reported) app.conversation.learnModels();
  }, [reported]);
  const fill = fillOf(app, message);
  if (!fill) return null;
  const part = Math.min(1, fill.used / fill.length);
  const label = `${t("details.context")}: ${t("details.context_of", { used: fill.used, length: fill.length, percent: percent(part) })}`;
  return (
    <span class={`gauge ${part > 0.8 ? "full" : ""}`} role="img" aria-label={label} data-tip={label} data-test="gauge">
      <svg width="16" height="16" viewBox="0 0 16 16" aria-hidden="true">
        <circle cx="8" cy="8" r="6" />
        <circle cx="8" cy="8" r="6" pathLength="100" stroke-dasharray={`${Math.max(2, part * 100)} 100`} />
      </svg>
    </span>
  );
}
