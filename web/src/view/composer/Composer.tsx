import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { t } from "../../i18n/index.ts";
import type { App } from "../../model/app.ts";
import { accepted } from "../../model/attachments.ts";
import { usePage } from "../context.ts";
import { IconButton } from "../parts/Button.tsx";
import { Icon } from "../parts/Icon.tsx";
import { composing, showKeys } from "../parts/keys.ts";
import { Later } from "../parts/Later.tsx";
import { openMenu } from "../parts/Menu.tsx";
import { ModelPicker } from "../settings/ModelPicker.tsx";
import { canDictate, dictate, finish, heard, listening } from "./dictation.ts";
import { Previews } from "./Previews.tsx";
import { useDrop, usePaste } from "./transfer.ts";

const addressDialog = () => import("./AddressDialog.tsx");
const modes = ["queue", "steer", "interrupt"] as const;

/** Composer is where messages are written. */
export function Composer() {
  const { app, commands } = usePage();
  const ref = useRef<HTMLTextAreaElement>(null);
  const composer = app.composer.value;
  const text = composer.text.value;
  const busy = app.busy.value;
  const ready = composer.ready.value || heard.value !== "";
  const hovering = useDrop(app);
  usePaste(app, ref);
  useLayoutEffect(() => {
    if (ref.current) grow(ref.current);
  }, [text, composer]);
  useEffect(() => finish, [composer]);
  useEffect(() => {
    const touch = matchMedia("(pointer: coarse)").matches;
    if (app.focus.value.part === "composer" && (app.focus.value.n > 0 || !touch)) ref.current?.focus();
  }, [app.focus.value, composer]);
  useReturn(app);
  const send = (): void => {
    finish();
    void app.send();
  };
  return (
    <form
      id="composer"
      class="composer"
      data-test="composer-form"
      onSubmit={(e) => {
        e.preventDefault();
        send();
      }}
    >
      {hovering && <div class={`drop ${hovering}`} data-test="drop"><p><Icon name={hovering === "images" ? "image" : "warning"} size={28} />{t(hovering === "images" ? "composer.drop" : "composer.drop_none")}</p></div>}
      <div class="composer-box">
        <Previews pieces={composer.pieces.value} remove={(key) => (composer.detach(key), app.ask("composer"))} />
        <textarea
          ref={ref}
          class="composer-text"
          rows={1}
          dir="auto"
          aria-label={t("composer.name")}
          placeholder={t("composer.placeholder")}
          enterkeyhint={app.preferences.get("enter") === "send" ? "send" : "enter"}
          data-test="composer"
          value={text}
          onInput={(e) => composer.write(e.currentTarget.value)}
          onKeyDown={(e) => keys(e, app, send)}
        />
        {listening.value && <p class="composer-heard" dir="auto" data-test="heard">{heard.value || t("composer.listening")}</p>}
        <div class="composer-bar">
          <AttachButton />
          {canDictate() && <IconButton icon="mic" class={listening.value ? "on" : ""} label={t(listening.value ? "composer.dictate_stop" : "composer.dictate")} aria-pressed={listening.value} data-test="dictate" onClick={() => (listening.value ? finish() : dictate(app))} />}
          <ModelPicker />
          <span class="grow" />
          {busy && <ModeButton />}
          {busy && <IconButton class="stop" icon="stop" label={t("composer.stop")} shortcut={showKeys(commands.find((c) => c.id === "stop")?.shortcut)} data-test="stop" onClick={() => void app.stop()} />}
          {(!busy || ready) && <IconButton class="send" type="submit" icon="arrow-up" label={t(busy ? `composer.${app.preferences.get("busy")}` : "composer.send")} data-test="send" disabled={!ready || app.state.value === "signed-out"} />}
        </div>
      </div>
    </form>
  );
}

/** keys sends with Enter as the user prefers it, and changes the last message with an arrow up in an empty box. */
function keys(e: KeyboardEvent, app: App, send: () => void): void {
  if (composing(e) || e.altKey) return;
  const { text, pieces } = app.composer.peek();
  if (e.key === "ArrowUp" && !e.shiftKey && !e.ctrlKey && !e.metaKey && !text.peek() && !pieces.peek().length && app.editLast()) e.preventDefault();
  if (e.key !== "Enter") return;
  const wanted = app.preferences.get("enter") === "send" ? !e.shiftKey : e.ctrlKey || e.metaKey;
  if (!wanted) return;
  e.preventDefault();
  if (!e.repeat) send();
}

/** useReturn gives the focus back to the box when a message is not changed any more. */
function useReturn(app: App): void {
  const editing = app.conversation.editing.value;
  const before = useRef(editing);
  useEffect(() => {
    if (before.current && !editing) app.ask("composer");
    before.current = editing;
  }, [editing]);
}

function AttachButton() {
  const { app } = usePage();
  const input = useRef<HTMLInputElement>(null);
  const [address, setAddress] = useState(false);
  const menu = (anchor: HTMLElement): void =>
    openMenu(anchor, t("composer.attach"), () => [
      { label: t("composer.attach_files"), icon: "upload", test: "attach-files", run: () => input.current?.click() },
      { label: t("composer.attach_address"), icon: "link", test: "attach-address", run: () => setAddress(true) },
    ]);
  return (
    <>
      <IconButton icon="attach" label={t("composer.attach")} aria-haspopup="menu" data-test="attach" onClick={(e) => menu(e.currentTarget)} />
      <input
        ref={input}
        type="file"
        class="composer-file"
        accept={accepted}
        multiple
        hidden
        tabIndex={-1}
        aria-label={t("composer.attach")}
        data-test="attach-input"
        onChange={({ currentTarget }) => {
          void app.attach([...(currentTarget.files ?? [])]);
          currentTarget.value = ""; // the same file may be chosen again
        }}
      />
      {address && <Later load={addressDialog} failed={() => setAddress(false)} close={() => setAddress(false)} />}
    </>
  );
}

/** ModeButton says, and lets the user choose, what a send does while a reply is written. */
function ModeButton() {
  const { app } = usePage();
  const now = app.preferences.get("busy");
  const choose = (anchor: HTMLElement): void =>
    openMenu(anchor, t("composer.mode"), () => modes.map((mode) => ({ label: t(`composer.${mode}`), checked: now === mode, test: `mode-${mode}`, run: () => (app.preferences.set("busy", mode), app.ask("composer")) })));
  return (
    <button type="button" class="composer-mode" aria-label={`${t("composer.mode")}: ${t(`composer.${now}`)}`} aria-haspopup="menu" data-test="send-mode" data-mode={now} onClick={(e) => choose(e.currentTarget)}>
      <span>{t(`composer.${now}`)}</span>
      <Icon name="chevron-down" size={16} />
    </button>
  );
}

/** grow makes the box as high as its text, in browsers where CSS does not. CSS limits the height. */
function grow(box: HTMLTextAreaElement): void {
  if (CSS.supports("field-sizing", "content")) return;
  box.style.setProperty("block-size", "auto");
  box.style.setProperty("block-size", `${box.scrollHeight + 2}px`);
}
