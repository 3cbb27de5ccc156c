import { t } from "../../i18n/index.ts";
import type { Transcript } from "../../model/transcript.ts";
import { useApp } from "../context.ts";
import { Button } from "../parts/Button.tsx";
import { Icon } from "../parts/Icon.tsx";
import { Dots } from "../parts/Spinner.tsx";
import { useSecondsTo } from "../shell/Banner.tsx";
import { useSecondsSince } from "./clock.ts";

/** After this many seconds without a word, the user learns that the page waits and has not stopped. */
const patience = 5;

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

/** Failure stays until another request runs, also after a reload. */
function Failure({ transcript }: { readonly transcript: Transcript }) {
  const app = useApp();
  const last = transcript.last.value;
  const ends = transcript.messages.at(-1);
  const stopped = last?.status === "cancelled" && ends?.role !== "assistant";
  if (!stopped && last?.status !== "failed") return null;
  const again = (): void => {
    if (ends?.role === "assistant") app.regenerate(transcript.messages.length - 1);
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
