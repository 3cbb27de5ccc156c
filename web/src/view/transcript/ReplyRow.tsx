import { useComputed } from "@preact/signals";
import { t } from "../../i18n/index.ts";
import type { App } from "../../model/app.ts";
import type { Part, ReasoningPart, ReplyRow as Row, TextPart, ToolsPart } from "../../model/transcript.ts";
import type { Message } from "../../model/types.ts";
import { useApp } from "../context.ts";
import { Button } from "../parts/Button.tsx";
import { Icon } from "../parts/Icon.tsx";
import { memo } from "../parts/memo.ts";
import { Actions } from "./Actions.tsx";
import { EditBox } from "./EditBox.tsx";
import { Images } from "./Images.tsx";
import { Heading, useEditing } from "./MessageRow.tsx";
import { Reasoning } from "./Reasoning.tsx";
import { remarksOf } from "./remarks.ts";
import { Text } from "./Text.tsx";
import { Tools } from "./Tools.tsx";

/** ReplyRow is what the model wrote in answer to one message. */
export const ReplyRow = memo(function ReplyRow({ row, app, latest }: { readonly row: Row; readonly app: App; readonly latest: boolean }) {
  const { message } = row;
  const editing = useEditing(app, message);
  const text = row.parts.flatMap((part) => (part.kind === "text" ? [part.text] : [])).join("\n\n");
  const ended = message && !row.running;
  return (
    <article class={`message assistant ${latest ? "latest" : ""}`} data-row data-key={row.key} data-test="message" data-role="assistant" data-index={row.to} aria-busy={row.running}>
      <Heading role="assistant" time={message?.created_at} />
      {grouped(row.parts).map((part) => (part.kind === "group" ? <Tools key={part.key} parts={part.parts} /> : <PartView key={part.key} part={part} app={app} />))}
      {ended && <Remarks message={message} row={row.key} />}
      {ended && !editing && <Actions app={app} message={message} index={row.to} from={row.from} text={text} />}
    </article>
  );
});

interface Group {
  readonly kind: "group";
  readonly key: string;
  readonly parts: ToolsPart[];
}

/** grouped joins the tools of phases that follow each other without a text between them. */
function grouped(parts: readonly Part[]): (TextPart | ReasoningPart | Group)[] {
  const made: (TextPart | ReasoningPart | Group)[] = [];
  for (const part of parts) {
    const last = made.at(-1);
    if (part.kind !== "tools") made.push(part);
    else if (last?.kind === "group") last.parts.push(part);
    else made.push({ kind: "group", key: part.key, parts: [part] });
  }
  return made;
}

const PartView = memo(function PartView({ part, app }: { readonly part: TextPart | ReasoningPart; readonly app: App }) {
  const message = part.kind === "text" ? part.message : undefined;
  const editing = useEditing(app, message);
  if (part.kind === "reasoning") return <Reasoning part={part} />;
  if (editing && message) {
    return <EditBox text={part.text} save={(text) => app.conversation.save(message, text)} close={() => (app.conversation.editing.value = "")} />;
  }
  return (
    <>
      {part.message && <Images message={part.message} />}
      <Text text={part.text} live={part.live} />
    </>
  );
});

function Remarks({ message, row }: { readonly message: Message; readonly row: string }) {
  const app = useApp();
  const last = useComputed(() => app.transcript.value?.rows.value.at(-1)?.key === row); // not only of those shown: a removed message can be brought back
  const remarks = remarksOf(message);
  const short = typeof message.metadata?.incomplete === "string" || message.metadata?.finish_reason === "length";
  return (
    <>
      {remarks.map((text) => (
        <p key={text} class="remark" data-test="remark" dir="auto">
          <Icon name="info" size={16} />
          <span>{text}</span>
        </p>
      ))}
      {short && last.value && !app.readOnly.value && (
        <div class="remark-actions">
          <Button data-test="continue" disabled={app.busy.value} onClick={() => app.continueReply()}>{t("transcript.continue")}</Button>
        </div>
      )}
    </>
  );
}
