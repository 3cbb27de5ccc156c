import { fullTime, numbers, t, type Key } from "../../i18n/index.ts";
import type { App } from "../../model/app.ts";
import type { Message } from "../../model/types.ts";
import { usageOf } from "../../model/usage.ts";
import { Dialog } from "../parts/Dialog.tsx";
import { fillOf, percent } from "./Gauge.tsx";

/** Details shows what is known about a message. */
export function Details({ app, message, close }: { readonly app: App; readonly message: Message; readonly close: () => void }) {
  const { model, provider, finish_reason: finish } = (message.metadata ?? {}) as Record<string, unknown>;
  const usage = usageOf(message);
  const fill = fillOf(app, message);
  const rows: [Key, unknown][] = [
    ["details.time", fullTime().format(new Date(message.created_at))],
    ["details.model", model],
    ["details.provider", provider],
    ["details.prompt", usage?.prompt],
    ["details.completion", usage?.completion],
    ["details.reasoning", usage?.reasoning || undefined],
    ["details.total", usage?.total],
    ["details.cost", usage?.cost === undefined ? undefined : money(usage.cost)],
    ["details.context", fill && t("details.context_of", { ...fill, percent: percent(fill.used / fill.length) })],
    ["details.finish", finish],
  ];
  return (
    <Dialog title={t("transcript.details")} class="small" test="details-dialog" onClose={close}>
      <dl class="details">
        {rows.map(([key, value]) =>
          typeof value === "string" || typeof value === "number" ? (
            <div key={key}>
              <dt>{t(key)}</dt>
              <dd dir="auto">{typeof value === "number" ? numbers().format(value) : value}</dd>
            </div>
          ) : null,
        )}
      </dl>
    </Dialog>
  );
}

const money = (dollars: number): string => new Intl.NumberFormat(numbers().resolvedOptions().locale, { style: "currency", currency: "USD", maximumSignificantDigits: 4 }).format(dollars);
