import { t } from "../../i18n/index.ts";
import { useApp } from "../context.ts";
import { Button, IconButton } from "./Button.tsx";

/** Toasts shows the notices. */
export function Toasts() {
  const { notices } = useApp();
  return (
    <div class="toasts" role="status" aria-live="polite" data-test="toasts">
      {notices.shown.value.map(({ id, kind, text, action }) => (
        <div key={id} class={`toast ${kind}`} data-test="toast">
          <p dir="auto">{text}</p>
          {action && (
            <Button
              kind="quiet"
              data-test="toast-action"
              onClick={() => {
                action.run();
                notices.remove(id);
              }}
            >
              {action.label}
            </Button>
          )}
          <IconButton icon="close" size={16} label={t("close")} onClick={() => notices.remove(id)} />
        </div>
      ))}
    </div>
  );
}
