import "../parts/common.ts";
import { useState } from "preact/hooks";
import { t } from "../../i18n/index.ts";
import type { Entry } from "../../model/list.ts";
import { useApp } from "../context.ts";
import { Button } from "../parts/Button.tsx";
import { Dialog } from "../parts/Dialog.tsx";
import { Field } from "../parts/Field.tsx";

const parse = (text: string): string[] => [...new Set(text.split(",").map((tag) => tag.trim()).filter(Boolean))];
const fit = (tags: readonly string[]): boolean => tags.length <= 32 && tags.every((tag) => [...tag].length <= 64);

export default function TagsDialog({ entry, close }: { readonly entry: Entry; readonly close: () => void }) {
  const app = useApp();
  const [text, setText] = useState(entry.tags.join(", "));
  const tags = parse(text);
  const save = (e: Event): void => {
    e.preventDefault();
    if (!fit(tags)) return;
    void app.library.tag(entry.id, tags);
    close();
  };
  return (
    <Dialog title={t("session.tags_title")} class="small" test="tags-dialog" onClose={close}>
      <form onSubmit={save}>
        <Field label={t("session.tags_label")} {...(fit(tags) ? { help: t("session.tags_help") } : { error: t("session.tags_help") })}>
          {(ids) => <input {...ids} class="input" dir="auto" autoFocus list="known-tags" data-test="tags-field" value={text} onInput={(e) => setText(e.currentTarget.value)} />}
        </Field>
        <datalist id="known-tags">{app.list.tags.value.map((tag) => <option key={tag} value={tag} />)}</datalist>
        <footer class="dialog-foot">
          <Button onClick={close}>{t("cancel")}</Button>
          <Button kind="primary" type="submit" data-test="tags-save">{t("save")}</Button>
        </footer>
      </form>
    </Dialog>
  );
}
