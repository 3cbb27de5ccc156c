import { useState } from "preact/hooks";
import { t } from "../../i18n/index.ts";
import type { ReasoningPart } from "../../model/transcript.ts";
import { Icon } from "../parts/Icon.tsx";
import { useSecondsSince } from "./clock.ts";
import { Text } from "./Text.tsx";

/** Reasoning is folded, can be opened while it is written, and then stays open. */
export function Reasoning({ part }: { readonly part: ReasoningPart }) {
  const [open, setOpen] = useState(false);
  return (
    <details class={`reasoning ${part.live ? "live" : ""}`} data-test="reasoning" onToggle={(e) => setOpen(e.currentTarget.open)}>
      <summary>
        <Icon name="thought" size={17} />
        <Label part={part} />
        <Icon name="chevron-down" size={16} />
      </summary>
      {open && <Text text={part.text} live={part.live} />}
    </details>
  );
}

function Label({ part }: { readonly part: ReasoningPart }) {
  const elapsed = useSecondsSince(part.live ? (part.began ?? 0) : 0);
  if (part.live) return <span>{elapsed ? t("transcript.thinking_for", { n: elapsed }) : t("transcript.thinking")}</span>;
  const seconds = part.began && part.ended ? Math.max(1, Math.round((part.ended - part.began) / 1000)) : 0;
  return <span>{seconds ? t("transcript.reasoned", { n: seconds }) : t("transcript.reasoning")}</span>;
}
