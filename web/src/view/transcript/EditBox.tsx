import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { t } from "../../i18n/index.ts";
import { useApp } from "../context.ts";
import { Button } from "../parts/Button.tsx";
import { composing } from "../parts/keys.ts";

interface Props {
  readonly text: string;
  /** Returns false if the text could not be saved. */
  readonly save: (content: string) => Promise<boolean>;
  /** Sends the text in the place of the message. */
  readonly ask?: (content: string) => Promise<boolean>;
  readonly close: () => void;
  /** What belongs to the text and stays as it is, such as images. */
  readonly children?: ComponentChildren;
}

/** EditBox changes a text in its place. Escape leaves it as it was. If the box goes for another reason, the text is a draft of the chat. */
export function EditBox({ text, save, ask, close, children }: Props) {
  const ref = useRef<HTMLTextAreaElement>(null);
  const [now, setNow] = useState(text);
  useLayoutEffect(() => {
    const box = ref.current;
    if (!box) return;
    box.focus();
    box.setSelectionRange(box.value.length, box.value.length);
  }, []);
  useLayoutEffect(() => {
    const box = ref.current;
    if (!box) return;
    box.style.setProperty("height", "auto");
    box.style.setProperty("height", `${box.scrollHeight + 2}px`);
  }, [now]);
  const app = useApp();
  const [composer] = useState(() => app.composer.peek()); // of this chat
  const done = useRef(text); // what need not be kept
  const latest = useRef(now);
  const gone = useRef(false);
  latest.current = now;
  const keep = (): void => {
    if (latest.current !== done.current) composer.putBack({ text: latest.current, pieces: [] });
  };
  useLayoutEffect(() => () => {
    gone.current = true;
    keep();
  }, []);
  const give = (to: (content: string) => Promise<boolean>): void => {
    done.current = now;
    void to(now).then((saved) => {
      if (saved || done.current !== now) return;
      done.current = text;
      if (gone.current && latest.current === now) keep();
    });
  };
  const leave = (): void => {
    latest.current = done.current;
    close();
  };
  useLayoutEffect(() => ref.current?.form?.scrollIntoView({ block: "nearest" }), []);
  const empty = !now.trim();
  const keys = (e: KeyboardEvent): void => {
    if (composing(e)) return;
    if (e.key === "Escape") {
      e.preventDefault();
      e.stopPropagation();
      leave();
    } else if (e.key === "Enter" && (e.ctrlKey || e.metaKey) && !empty) {
      e.preventDefault();
      give(ask ?? save);
    }
  };
  return (
    <form class="edit-box" data-test="edit-box" onSubmit={(e) => (e.preventDefault(), empty || give(ask ?? save))}>
      {children}
      <textarea ref={ref} dir="auto" rows={1} value={now} aria-label={t("transcript.edit_name")} data-test="edit-text" onInput={(e) => setNow(e.currentTarget.value)} onKeyDown={keys} />
      {ask && <p class="edit-help">{t("transcript.edit_help")}</p>}
      <div class="edit-foot">
        <Button kind="quiet" data-test="edit-cancel" onClick={leave}>{t("cancel")}</Button>
        <Button kind={ask ? "plain" : "primary"} disabled={empty} data-test="edit-save" onClick={() => give(save)}>{t("save")}</Button>
        {ask && <Button kind="primary" disabled={empty} data-test="edit-ask" onClick={() => give(ask)}>{t("transcript.save_ask")}</Button>}
      </div>
    </form>
  );
}
