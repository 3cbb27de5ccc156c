import { useComputed } from "@preact/signals";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { numbers, t } from "../../i18n/index.ts";
import type { App } from "../../model/app.ts";
import { sessionOf } from "../../model/route.ts";
import type { Message } from "../../model/types.ts";
import { IconButton } from "../parts/Button.tsx";
import { openMenu, type MenuItems } from "../parts/Menu.tsx";
import { actionItem } from "../list/menu.ts";
import { Time } from "./MessageRow.tsx";
import { copy } from "./copy.ts";
import { Details } from "./Details.tsx";
import { Gauge } from "./Gauge.tsx";
import { MessageExtras } from "./MessageExtras.tsx";
import { canRead, read, reading } from "./speech.ts";

interface Props {
  readonly app: App;
  /** The message, or the last message of a reply. */
  readonly message: Message;
  readonly index: number;
  /** The text of the message, or of all messages of the reply. */
  readonly text: string;
  /** The index of the first message: from there, alternatives begin. */
  readonly from: number;
}

/** Actions has the actions on a message: the frequent ones as buttons, and all others in a menu. */
export function Actions({ app, message, index, text, from }: Props) {
  const [details, setDetails] = useState(false);
  const id = sessionOf(app.route.value) ?? "";
  const reply = message.role === "assistant";
  const writable = !app.readOnly.value;
  const edit = writable && (reply || message.role === "user");
  const { busy, conversation } = app; // busy changes with every send, and only attributes follow it
  const incomplete = reply && typeof message.metadata?.incomplete === "string" && index === (app.transcript.peek()?.messages.length ?? 0) - 1;
  const shown = app.transcript.peek()?.messages.slice(from, index + 1) ?? []; // a menu that is open may see them move
  const again = (): void => app.regenerate(shown[0]);
  const more = (button: HTMLElement): void => {
    const article = button.closest("article");
    const plain = (): string => [...(article?.querySelectorAll<HTMLElement>(":scope > .text, .bubble > .text") ?? [])].map((part) => part.innerText).join("\n\n");
    const selected = (): string => {
      const selection = getSelection();
      return selection && !selection.isCollapsed && article?.contains(selection.anchorNode) ? selection.toString() : "";
    };
    const quotation = selected() || text;
    openMenu(button, t("transcript.actions"), () => items(plain, quotation));
  };
  const items = (plain: () => string, quotation: string): MenuItems => {
    const at = { message, index };
    const free = writable && !busy.value;
    const plugins = app.settings.messageActions(at).map((element) => actionItem(app, element, at));
    return [
      { label: t("transcript.copy"), icon: "copy", test: "menu-copy", run: () => void copy(app, text) },
      { label: t("transcript.copy_plain"), icon: "copy", test: "copy-plain", run: () => void copy(app, plain()) },
      writable && { label: t("transcript.quote"), icon: "quote", test: "quote", run: () => conversation.quote(quotation) },
      canRead() && { label: t(reading.peek() === message.id ? "transcript.read_stop" : "transcript.read"), icon: "speaker", test: "read", run: () => read(message.id, text) },
      null,
      edit && free && { label: t("transcript.edit_text"), icon: "edit", test: "menu-edit", run: () => void (conversation.editing.value = message.id) },
      free && reply && { label: t("transcript.regenerate"), icon: "refresh", test: "menu-regenerate", run: again },
      free && incomplete && { label: t("transcript.continue"), icon: "arrow-down", test: "menu-continue", run: () => app.continueReply() },
      writable && !app.onlySession.value && { label: t("transcript.fork"), icon: "fork", test: "fork-here", run: () => void app.library.fork(id, message.id) },
      { label: t("transcript.details"), icon: "info", test: "details", run: () => setDetails(true) },
      plugins.length > 0 && null,
      ...plugins,
      free && null,
      free && { label: t("transcript.delete"), icon: "trash", kind: "danger", test: "delete-message", run: () => conversation.remove(shown) },
    ];
  };
  return (
    <footer class="actions">
      <Choice app={app} index={from} />
      <Toolbar>
        <IconButton icon="copy" size={17} label={t("transcript.copy")} data-test="copy" onClick={() => void copy(app, text)} />
        {edit && !reply && <IconButton icon="edit" size={17} label={t("transcript.edit_text")} data-test="edit" disabled={busy} onClick={() => (conversation.editing.value = message.id)} />}
        {writable && reply && <IconButton icon="refresh" size={17} label={t("transcript.regenerate")} data-test="regenerate" disabled={busy} onClick={again} />}
        {reading.value === message.id && <IconButton icon="stop" size={17} label={t("transcript.read_stop")} data-test="read-stop" onClick={() => read(message.id, text)} />}
        <IconButton icon="more" size={20} class="message-more" label={t("transcript.more")} aria-haspopup="menu" data-test="message-menu" onClick={(e) => more(e.currentTarget)} />
      </Toolbar>
      <MessageExtras app={app} message={message} index={index} />
      <Time time={message.created_at} />
      {reply && typeof message.metadata?.model === "string" && <span class="model-name" dir="auto">{message.metadata.model}</span>}
      {reply && <Gauge app={app} message={message} />}
      {details && <Details app={app} message={message} close={() => setDetails(false)} />}
    </footer>
  );
}

/** The last step through alternatives. The row of a message is replaced by that of the alternative, and its button should keep the focus. */
let stepped = { index: -1, by: 1, until: 0 };
const stepMs = 5000;

/** Choice steps through the alternatives of a message. */
function Choice({ app, index }: { readonly app: App; readonly index: number }) {
  const ref = useRef<HTMLDivElement>(null);
  const choice = useComputed(() => app.conversation.choiceAt(index)).value;
  useLayoutEffect(() => {
    if (stepped.index !== index || Date.now() > stepped.until || document.activeElement !== document.body) return;
    ref.current?.querySelectorAll("button")[stepped.by < 0 ? 0 : 1]?.focus({ preventScroll: true });
  }, [choice]);
  if (!choice) return null;
  const { at, total } = choice;
  const stuck = app.busy.value || app.readOnly.value;
  const go = (by: -1 | 1) => () => {
    if (stuck) return;
    stepped = { index, by, until: Date.now() + stepMs };
    void app.conversation.step(index, by);
  };
  return (
    <div ref={ref} class="choice" role="group" aria-label={t("transcript.choice", { at: at + 1, total })} data-test="alternatives">
      <IconButton icon="chevron-left" size={16} label={t("transcript.previous")} data-test="alternative-previous" aria-disabled={stuck || at === 0} onClick={go(-1)} />
      <span aria-hidden="true" data-test="alternative">{numbers().format(at + 1)}/{numbers().format(total)}</span>
      <IconButton icon="chevron-right" size={16} label={t("transcript.next")} data-test="alternative-next" aria-disabled={stuck || at === total - 1} onClick={go(1)} />
    </div>
  );
}

/** Toolbar is one stop of the Tab key; the arrow keys go from button to button. */
function Toolbar({ children }: { readonly children: ComponentChildren }) {
  const keys = (e: KeyboardEvent & { readonly currentTarget: HTMLElement }): void => {
    const buttons = [...e.currentTarget.querySelectorAll<HTMLButtonElement>("button:not(:disabled)")].filter((button) => button.offsetParent);
    const at = buttons.indexOf(document.activeElement as HTMLButtonElement);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: buttons.length - 1 }[e.key];
    if (at < 0 || to === undefined) return;
    e.preventDefault();
    buttons[(to + buttons.length) % buttons.length]?.focus();
  };
  return <div class="toolbar" role="toolbar" aria-label={t("transcript.actions")} onKeyDown={keys}>{children}</div>;
}
