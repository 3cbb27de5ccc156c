import { useComputed } from "@preact/signals";
import { clockTime, fullTime, t } from "../../i18n/index.ts";
import type { App } from "../../model/app.ts";
import type { MessageRow as Row } from "../../model/transcript.ts";
import type { Message } from "../../model/types.ts";
import { memo } from "../parts/memo.ts";
import { Actions } from "./Actions.tsx";
import { EditBox } from "./EditBox.tsx";
import { Images } from "./Images.tsx";
import { Text } from "./Text.tsx";

const names = { user: "transcript.you", system: "transcript.system", tool: "transcript.tool", assistant: "transcript.model" } as const;

/** MessageRow is a message of the user, of the system, or of a tool whose call is not there. */
export const MessageRow = memo(function MessageRow({ row, app }: { readonly row: Row; readonly app: App }) {
  const { message, index } = row;
  const editing = useEditing(app, message);
  const { conversation } = app;
  return (
    <article class={`message ${message.role}`} data-row data-key={row.key} data-test="message" data-role={message.role} data-index={index}>
      <Heading role={message.role} time={message.created_at} />
      {editing ? (
        <EditBox text={message.content} save={(text) => conversation.save(message, text)} ask={(text) => conversation.askAgain(message, text)} close={() => (conversation.editing.value = "")}>
          <Images message={message} />
        </EditBox>
      ) : (
        <div class="bubble">
          <Images message={message} />
          {message.content && <Text text={message.content} typed />}
        </div>
      )}
      {!editing && <Actions app={app} message={message} index={index} from={index} text={message.content} />}
    </article>
  );
});

/** useEditing reports whether the user changes a message in its place. */
export const useEditing = (app: App, message: Message | undefined): boolean => useComputed(() => message !== undefined && app.conversation.editing.value === message.id).value;

export function Heading({ role, time }: { readonly role: string; readonly time?: string | undefined }) {
  const name = t(names[role as keyof typeof names] ?? "transcript.tool");
  const date = time ? new Date(time) : null;
  return <h2 class="sr-only">{date ? t("transcript.said", { name, time: clockTime().format(date) }) : name}</h2>;
}

export function Time({ time }: { readonly time?: string | undefined }) {
  if (!time) return null;
  const date = new Date(time);
  return <time class="time" dateTime={time} data-tip={fullTime().format(date)}>{clockTime().format(date)}</time>;
}
