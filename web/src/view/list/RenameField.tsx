import { useEffect, useRef } from "preact/hooks";
import { t } from "../../i18n/index.ts";
import type { Entry } from "../../model/list.ts";
import { useApp } from "../context.ts";
import { composing } from "../parts/keys.ts";

/** RenameField edits the title of a session in its place. Enter or leaving keeps the title, Escape does not. */
export function RenameField({ entry, done }: { readonly entry: Entry; readonly done: () => void }) {
  const app = useApp();
  const ref = useRef<HTMLInputElement>(null);
  const ended = useRef(false);
  useEffect(() => ref.current?.select(), []);
  const end = (keep: boolean): void => {
    if (ended.current) return;
    ended.current = true;
    const title = ref.current?.value.trim(); // undefined if the field is already gone, because another session opens
    if (keep && title !== undefined && title !== entry.title) void app.library.rename(entry.id, title);
    done();
  };
  return (
    <input
      ref={ref}
      class="input rename"
      dir="auto"
      autoFocus
      maxLength={200}
      aria-label={t("list.rename")}
      data-test="rename-field"
      defaultValue={entry.title}
      onBlur={() => end(true)}
      onKeyDown={(e) => {
        if (composing(e)) return;
        if (e.key === "Enter" || e.key === "Escape") {
          e.preventDefault();
          e.stopPropagation();
          end(e.key === "Enter");
        }
      }}
    />
  );
}
