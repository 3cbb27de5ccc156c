import { useEffect, useState } from "preact/hooks";
import { t } from "../../i18n/index.ts";
import type { Transcript } from "../../model/transcript.ts";
import type { Message } from "../../model/types.ts";
import { useApp } from "../context.ts";
import { Button } from "../parts/Button.tsx";
import { Icon } from "../parts/Icon.tsx";
import { Dots } from "../parts/Spinner.tsx";
import { useSecondsTo } from "../shell/Banner.tsx";
import { useSecondsSince } from "./clock.ts";

/** After this many seconds without a word, the user learns that the page waits and has not stopped. */
const patience = 5;

/** A word that comes within these milliseconds needs no sign that the page waits for it. */
const shownMs = 150;

/** Status says what the running request does, or how the last one failed. */
export function Status({ transcript }: { readonly transcript: Transcript }) {
  const phase = transcript.phase.value;
  const retry = transcript.retry.value;
  if (phase === "waiting") return <Waiting since={transcript.phaseSince.value} />;
  if (phase === "tools") return <p class="status" data-test="waiting"><Dots /><span>{t("transcript.tools_running")}</span></p>;
  if (phase === "retrying" && retry) return <Retrying at={retry.at} cause={retry.cause} />;
  return phase === "idle" ? <Failure transcript={transcript} /> : null;
}

function Waiting({ since }: { readonly since: number }) {
  const seconds = useSecondsSince(since);
  const long = seconds >= patience;
  if (!useRest(String(since), shownMs)) return null;
  return (
    <p class="status" data-test="waiting">
      <Dots />
      <span class={long ? "" : "sr-only"}>{long ? t("transcript.waiting_long", { n: seconds }) : t("transcript.waiting")}</span>
    </p>
  );
}

function Retrying({ at, cause }: { readonly at: number; readonly cause: string }) {
  const seconds = useSecondsTo(at);
  return (
    <div class="status" data-test="retry">
      <Dots />
      <div>
        <p>{t("transcript.retrying", { n: seconds })}</p>
        {cause && <p class="status-cause" dir="auto">{cause}</p>}
      </div>
    </div>
  );
}

/** Failure stays until another request runs, also after a reload. A reply that has only lost its end says so itself. */
function Failure({ transcript }: { readonly transcript: Transcript }) {
  const app = useApp();
  const last = transcript.last.value;
  void transcript.rows.value; // which change with the messages
  const ends = transcript.messages.at(-1);
  const stopped = last?.status === "cancelled" && ends?.role !== "assistant";
  if (!stopped && last?.status !== "failed") return <Unanswered ends={ends} />;
  if (ends?.role === "assistant" && ends.metadata?.incomplete === "interrupted") return null;
  const again = (): void => {
    if (ends?.role === "assistant") app.regenerate(ends);
    else app.resend();
  };
  return (
    <div class={stopped ? "failure quiet" : "failure"} role={stopped ? "status" : "alert"} data-test="failure">
      <Icon name={stopped ? "info" : "warning"} size={18} />
      <div>
        <strong>{t(stopped ? "transcript.cancelled" : "transcript.failed")}</strong>
        {!stopped && <p dir="auto">{last?.error}</p>}
      </div>
      {!app.readOnly.value && <Button data-test="failure-retry" onClick={again}>{t("retry")}</Button>}
    </div>
  );
}

/** Unanswered asks for a reply to the last message, for example in a chat that was copied up to a message of the user. */
function Unanswered({ ends }: { readonly ends: Message | undefined }) {
  const app = useApp();
  const waits = app.pending.value.length > 0 || app.queued.value.length > 0;
  const rests = useRest(waits ? "" : (ends?.id ?? ""), restMs);
  if (ends?.role !== "user" || !rests || app.readOnly.value || app.conversation.removed.value.has(ends.id)) return null;
  return (
    <div class="unanswered" data-test="unanswered">
      <Button icon="refresh" data-test="ask-reply" onClick={() => app.resend()}>{t("transcript.ask_reply")}</Button>
    </div>
  );
}

/** A request begins some time after its message is there. After this time without one, none will. */
const restMs = 3000;

/** useRest reports whether a key has been the same for some milliseconds. An empty key never rests. */
function useRest(key: string, ms: number): boolean {
  const [rested, setRested] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => setRested(key), ms);
    return () => clearTimeout(timer);
  }, [key]);
  return key !== "" && rested === key;
}
