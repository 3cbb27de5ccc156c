import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { t } from "../../i18n/index.ts";
import { sessionOf } from "../../model/route.ts";
import { atEnd, earlierSpan, laterSpan, limitsOf, page, rowAt, spanAround, type Span } from "../../model/span.ts";
import type { Row, Transcript as Model } from "../../model/transcript.ts";
import type { App } from "../../model/app.ts";
import { useApp } from "../context.ts";
import { Icon } from "../parts/Icon.tsx";
import { Spinner } from "../parts/Spinner.tsx";
import { Announcer } from "./Announcer.tsx";
import { LinkDialog } from "./LinkDialog.tsx";
import { MessageRow } from "./MessageRow.tsx";
import { Pending } from "./Pending.tsx";
import { ReplyRow } from "./ReplyRow.tsx";
import { Scroller } from "./scroll.ts";
import { Status } from "./Status.tsx";

/** Transcript shows the last rows of a session, and others when the user scrolls there. */
export function Transcript({ transcript }: { readonly transcript: Model }) {
  const app = useApp();
  const box = useRef<HTMLDivElement>(null);
  const inner = useRef<HTMLDivElement>(null);
  const [scroller] = useState(() => new Scroller(sessionOf(app.route.peek()) ?? ""));
  const removed = app.conversation.removed.value;
  const rows = removed.size ? transcript.rows.value.filter((row) => !removed.has(idOf(row))) : transcript.rows.value;
  const [span, setSpan] = useState<Span>(scroller.span);
  const { from, to } = limitsOf(rows, span);
  const show = (next: Span): void => setSpan((scroller.span = next));
  const earlier = (): void => {
    if (from === 0) return;
    scroller.hold();
    show(earlierSpan(rows, { from, to }));
  };
  const latest = (): void => {
    setSpan(atEnd);
    scroller.toEnd(true);
  };
  const away = scroller.away.value;
  const fresh = away ? rows.length - 1 - rows.findIndex((row) => row.key === scroller.seen) : 0;
  if (!away) scroller.seen = rows.at(-1)?.key ?? "";
  useEffect(() => {
    // The rows that the user reads stay, and those far above are dropped when the user is back at the end.
    const first = away ? (span.first ?? rows[from]?.key ?? null) : rows.length - from > 2 * page ? null : span.first;
    if (first !== span.first) show({ ...span, first });
  }, [away, from]);
  useEffect(() => (box.current && inner.current ? scroller.attach(box.current, inner.current) : undefined), []);
  useTarget(app, transcript, rows, scroller, setSpan);
  useLayoutEffect(() => {
    scroller.restore();
    scroller.arrive();
  }, [from, to, span]);
  useEffect(() => {
    if (scroller.nearTop.value) earlier();
  }, [scroller.nearTop.value, from]);
  useEffect(() => {
    if (!scroller.nearEnd.value || to >= rows.length) return;
    scroller.hold();
    show(laterSpan(rows, { from, to }));
  }, [scroller.nearEnd.value, to]);
  const sends = app.pending.value.length;
  const before = useRef(sends);
  useEffect(() => {
    if (sends > before.current) {
      setSpan(atEnd);
      scroller.toEnd(); // the user sent something
    }
    before.current = sends;
  }, [sends]);
  useEffect(() => {
    if (app.focus.value.part === "transcript") box.current?.focus();
  }, [app.focus.value]);
  return (
    <div class="transcript-frame">
      <div ref={box} class="transcript" data-test="transcript" tabIndex={0} role="log" aria-live="off" aria-label={t("transcript.name")}>
        <div ref={inner} class="transcript-inner">
          {!transcript.loaded.value && !sends && <div class="transcript-loading"><Spinner label={t("loading")} /></div>}
          {from > 0 && <button type="button" class="chip earlier" onClick={earlier}>{t("transcript.earlier")}</button>}
          {rows.slice(from, to).map((row) => (row.kind === "message" ? <MessageRow key={row.key} row={row} app={app} /> : <ReplyRow key={row.key} row={row} app={app} latest={row === rows.at(-1)} />))}
          {to === rows.length && <Status transcript={transcript} />}
          {to === rows.length && <Pending />}
        </div>
      </div>
      {away && (
        <button type="button" class={`to-latest ${fresh > 0 ? "fresh" : ""}`} aria-label={fresh > 0 ? `${t("transcript.latest")}: ${t("transcript.new_messages", { n: fresh })}` : t("transcript.latest")} data-test="to-latest" onClick={latest}>
          <Icon name="arrow-down" size={18} />
          {fresh > 0 && <span data-test="new-messages">{t("transcript.new_messages", { n: fresh })}</span>}
        </button>
      )}
      <Announcer transcript={transcript} />
      <LinkDialog />
    </div>
  );
}

/** useTarget shows the message that the page was asked for, and marks it for a moment. */
function useTarget(app: App, transcript: Model, rows: readonly Row[], scroller: Scroller, setSpan: (span: Span) => void): void {
  const target = app.target.value;
  useEffect(() => {
    if (!target || target.session !== sessionOf(app.route.peek()) || !transcript.loaded.value) return;
    const at = rowAt(rows, target.index);
    app.target.value = null;
    const row = rows[at];
    if (!row) return;
    const span = spanAround(rows, at);
    scroller.goTo(row.key, span);
    setSpan(span);
  }, [target, transcript.loaded.value]);
}

const idOf = (row: Row): string => (row.kind === "message" ? row.message.id : (row.message?.id ?? ""));
