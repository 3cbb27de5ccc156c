// What comes from other programs: files that are dropped or pasted, and addresses of images.
import { useEffect, useState } from "preact/hooks";
import { t } from "../../i18n/index.ts";
import type { App } from "../../model/app.ts";
import { accepted, addressOf, looksLikeImage } from "../../model/attachments.ts";

/** Hovering says what is dragged over the page: images, or files that are not taken. */
type Hovering = "images" | "others" | "";

const modal = (): boolean => document.querySelector("dialog[open]") !== null;

/** filesOf returns the files of a drop or paste. */
const filesOf = (data: DataTransfer | null): File[] => [...(data?.files ?? [])];

function hoveringOf({ types, items }: DataTransfer): Hovering {
  if (!types.includes("Files")) return "";
  const files = [...items].filter((item) => item.kind === "file"); // Safari has none before the drop
  return files.length === 0 || files.some((item) => item.type === "" || accepted.includes(item.type)) ? "images" : "others";
}

/** useDrop attaches files that are dropped anywhere on the page, and returns what hovers above it. */
export function useDrop(app: App): Hovering {
  const [hovering, setHovering] = useState<Hovering>("");
  useEffect(() => {
    const ends = new AbortController();
    const on = (name: "dragenter" | "dragover" | "dragleave" | "drop", listener: (e: DragEvent, data: DataTransfer) => void): void =>
      addEventListener(name, (e) => e.dataTransfer?.types.includes("Files") && !modal() && listener(e, e.dataTransfer), { capture: true, signal: ends.signal });
    const over = (e: DragEvent, data: DataTransfer): void => {
      e.preventDefault();
      data.dropEffect = "copy"; // also above files that are not taken: the drop says so
      setHovering(hoveringOf(data));
    };
    on("dragenter", over);
    on("dragover", over);
    on("dragleave", (e) => e.relatedTarget === null && setHovering(""));
    on("drop", (e, data) => {
      e.preventDefault();
      setHovering("");
      void app.attach(filesOf(data));
    });
    return () => ends.abort();
  }, []);
  return hovering;
}

/** usePaste attaches images that are pasted into the message box, or where nothing takes text. */
export function usePaste(app: App, box: { readonly current: HTMLTextAreaElement | null }): void {
  useEffect(() => {
    const paste = (e: ClipboardEvent): void => {
      const target = e.target instanceof Element ? e.target : null;
      if (e.defaultPrevented || modal() || (target !== box.current && target?.closest("input, textarea, select, [contenteditable]"))) return;
      const files = filesOf(e.clipboardData);
      const text = e.clipboardData?.getData("text/plain") ?? "";
      // Office programs give a picture of a text beside the text, which counts then.
      if (files.length && (text.trim() === "" || isName(text))) {
        e.preventDefault();
        void app.attach(files);
      } else if (target === box.current && looksLikeImage(addressOf(text))) {
        e.preventDefault();
        pasteAddress(app, text.trim());
      }
    };
    addEventListener("paste", paste);
    return () => removeEventListener("paste", paste);
  }, []);
}

/** isName reports whether a text only says where copied files are. */
const isName = (text: string): boolean => text.trim().split(/\r?\n/).every((line) => /^(file:|\/|[A-Z]:\\)/i.test(line) || /^[^\s/]+\.(png|jpe?g|gif|webp)$/i.test(line));

/** pasteAddress attaches an address, unless the user wants it as text. */
function pasteAddress(app: App, address: string): void {
  const composer = app.composer.peek();
  const before = new Set(composer.pieces.peek());
  app.attachAddress(address);
  const added = composer.pieces.peek().find((piece) => !before.has(piece));
  if (!added) return;
  const asText = (): void => {
    composer.detach(added.key);
    composer.write([composer.text.peek(), address].filter(Boolean).join(" "));
  };
  app.notices.add({ kind: "info", text: t("composer.address_pasted"), action: { label: t("composer.as_text"), run: asText } });
}
