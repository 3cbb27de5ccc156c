import { useEffect, useState } from "preact/hooks";
import { t } from "../../i18n/index.ts";
import { finishedUpTo, spoken } from "../../model/blocks.ts";
import type { Transcript } from "../../model/transcript.ts";

interface Said {
  readonly n: number;
  readonly text: string;
}

/** Announcer tells assistive technology each block of a reply when it is finished. The text that is being written would interrupt at each word. */
export function Announcer({ transcript }: { readonly transcript: Transcript }) {
  const [said, setSaid] = useState<readonly Said[]>([]);
  useEffect(() => {
    let n = 0;
    const say = (text: string): void => {
      const words = spoken(text).slice(0, 2000);
      if (words) setSaid((before) => [...before.slice(-4), { n: n++, text: words }]);
    };
    let text = "";
    let told = 0;
    let running = Boolean(transcript.active.peek());
    const look = (): void => {
      const row = transcript.rows.peek().at(-1);
      const parts = row?.kind === "reply" ? row.parts : [];
      const part = parts.findLast((p) => p.kind === "text");
      const now = part?.kind === "text" ? (part.live?.peek() ?? part.text) : "";
      const active = Boolean(transcript.active.peek());
      if (!active && !running) return;
      if (!now.startsWith(text)) told = 0;
      text = now;
      const end = active ? finishedUpTo(now, told) : now.length;
      if (end > told) say(now.slice(told, end));
      else if (!active) say(t("transcript.finished"));
      told = active ? end : 0;
      if (!active) text = "";
      running = active;
    };
    const timer = setInterval(look, 1000);
    return () => clearInterval(timer);
  }, [transcript]);
  return <div class="sr-only" aria-live="polite" data-test="announcer">{said.map(({ n, text }) => <p key={n}>{text}</p>)}</div>;
}
