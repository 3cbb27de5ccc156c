import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { t } from "../../i18n/index.ts";
import { IconButton } from "./Button.tsx";

/** outside reports whether an event is on what is behind a dialog. Its target is the dialog also on the dialog's edge and scrollbar. */
export function outside({ target, clientX: x, clientY: y }: MouseEvent, dialog: Element | null): boolean {
  if (!dialog || target !== dialog) return false;
  const { left, right, top, bottom } = dialog.getBoundingClientRect();
  return x < left || x > right || y < top || y > bottom;
}

interface DialogProps {
  readonly title: string;
  readonly class?: string;
  readonly test?: string;
  readonly onClose: () => void;
  readonly children: ComponentChildren;
}

/** Dialog is a modal dialog. Escape, the button and a press outside of it close it; the focus goes back to where it was. */
export function Dialog({ title, class: more, test, onClose, children }: DialogProps) {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const dialog = ref.current;
    const before = document.activeElement;
    if (dialog && !dialog.open) dialog.showModal();
    return () => {
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={ref}
      class={`dialog ${more ?? ""}`}
      aria-labelledby={id}
      data-test={test}
      onCancel={(e) => {
        e.preventDefault();
        onClose();
      }}
      onClose={onClose}
      onPointerDown={(e) => {
        if (outside(e, ref.current)) onClose();
      }}
    >
      <div class="dialog-body">
        <header class="dialog-head">
          <h2 id={id}>{title}</h2>
          <IconButton icon="close" label={t("close")} data-test="dialog-close" onClick={onClose} />
        </header>
        {children}
      </div>
    </dialog>
  );
}
