import type { OutboxEntry } from "@loquat/client";
import { useMemo, useState } from "preact/hooks";
import { t } from "../../i18n/index.ts";
import { piecesOf } from "../../model/attachments.ts";
import { explain } from "../../model/problems.ts";
import type { Message, Queued } from "../../model/types.ts";
import { Previews } from "../composer/Previews.tsx";
import { useApp } from "../context.ts";
import { Button } from "../parts/Button.tsx";
import { EditBox } from "./EditBox.tsx";
import { Images } from "./Images.tsx";
import { Text } from "./Text.tsx";

/** Pending shows what was sent and is not a message yet: on its way, failed, or queued behind a reply. */
export function Pending() {
  const app = useApp();
  return (
    <>
      {app.queued.value.map((queued) => <Waiting key={queued.request_id} queued={queued} />)}
      {app.pending.value.map((entry) => <Outgoing key={entry.id} entry={entry} />)}
    </>
  );
}

function Waiting({ queued }: { readonly queued: Queued }) {
  const app = useApp();
  const [editing, setEditing] = useState(false);
  const steering = queued.on_busy === "steer";
  const text = queued.message.content;
  if (editing) {
    return (
      <article class="message user pending" data-test="queued">
        <EditBox text={text} close={() => setEditing(false)} save={async (content) => {
          const done = await app.conversation.change(queued, content);
          if (done) setEditing(false);
          return done;
        }} />
      </article>
    );
  }
  return (
    <article class="message user pending" data-test="queued" data-mode={queued.on_busy}>
      <div class="bubble">
        <Images message={queued.message as Message} />
        {text && <Text text={text} typed />}
      </div>
      <footer class="pending-state">
        <span>{t(steering ? "transcript.steering" : "transcript.queued")}</span>
        {!app.readOnly.value && (
          <>
            <Button kind="quiet" data-test="queued-edit" onClick={() => setEditing(true)}>{t("transcript.edit_text")}</Button>
            <Button kind="quiet" data-test="queued-steer" onClick={() => void app.conversation.steer(queued, !steering)}>{t(steering ? "transcript.steer_back" : "transcript.steer")}</Button>
            <Button kind="quiet" data-test="withdraw" onClick={() => void app.withdraw(queued)}>{t("transcript.withdraw")}</Button>
          </>
        )}
      </footer>
    </article>
  );
}

const states = { queued: "transcript.send_waiting", sending: "transcript.sending", failed: "transcript.send_failed", sent: "transcript.sending" } as const;

function Outgoing({ entry }: { readonly entry: OutboxEntry }) {
  const app = useApp();
  const late = entry.status === "queued" && entry.error !== undefined;
  const stuck = late || entry.status === "failed";
  const text = t(states[entry.status === "queued" && !late ? "sending" : entry.status]);
  const pieces = useMemo(() => piecesOf(entry), [entry]);
  const again = (): void => {
    if (entry.status === "failed") void app.wire.outbox.retry(entry.id);
    else app.wire.outbox.retryNow();
  };
  return (
    <article class={`message user pending ${entry.status}`} data-test="outgoing" data-state={entry.status}>
      {(entry.send.content || pieces.length > 0) && (
        <div class="bubble">
          <Previews pieces={pieces} />
          {entry.send.content && <Text text={entry.send.content} typed />}
        </div>
      )}
      <div class="pending-state" role={entry.status === "failed" ? "alert" : undefined}>
        <span>{text}{entry.error && entry.error.code !== "connection" && `: ${explain(entry.error)}`}</span>
        {stuck && entry.error?.code !== "precondition_failed" && <Button kind="quiet" data-test="send-again" onClick={again}>{t("retry")}</Button>}
        {stuck && <Button kind="quiet" data-test="withdraw" onClick={() => void app.takeBack(entry)}>{t("transcript.withdraw")}</Button>}
      </div>
    </article>
  );
}
