import { useState } from "preact/hooks";
import { t } from "../../i18n/index.ts";
import { sessionOf } from "../../model/route.ts";
import type { Message } from "../../model/types.ts";
import { sessionPath } from "../../model/wire.ts";
import { useApp } from "../context.ts";
import { IconButton } from "../parts/Button.tsx";
import { Dialog } from "../parts/Dialog.tsx";
import { Icon } from "../parts/Icon.tsx";
import { hostOf } from "./Text.tsx";

interface Picture {
  readonly url: string;
  /** Loading it tells its server who reads. */
  readonly remote: boolean;
}

/** picturesOf returns the images of a message that can be shown. */
function picturesOf(session: string, message: Message): Picture[] {
  const list: unknown = message.metadata?.attachments;
  if (!Array.isArray(list)) return [];
  return (list as (Partial<Record<string, unknown>> | null)[]).flatMap((attachment): Picture[] => {
    const { asset_id: id, data_url: data, url } = attachment ?? {};
    if (typeof id === "string" && id) return [{ url: sessionPath(session, `/assets/${encodeURIComponent(id)}`), remote: false }];
    if (typeof data === "string" && /^data:image\/(png|jpeg|gif|webp);/i.test(data)) return [{ url: data, remote: false }];
    return typeof url === "string" && /^https?:\/\//i.test(url) ? [{ url, remote: true }] : [];
  });
}

/** Images shows the images of a message. A remote one is loaded after a click. */
export function Images({ message }: { readonly message: Message }) {
  const app = useApp();
  const [open, setOpen] = useState(-1);
  const pictures = picturesOf(sessionOf(app.route.value) ?? "", message);
  if (!pictures.length) return null;
  return (
    <>
      <ul class="plain images">
        {pictures.map((picture, i) => <li key={picture.url}><Thumb picture={picture} n={i + 1} enlarge={() => setOpen(i)} /></li>)}
      </ul>
      {open >= 0 && <Enlarged pictures={pictures} at={open} show={setOpen} />}
    </>
  );
}

function Thumb({ picture, n, enlarge }: { readonly picture: Picture; readonly n: number; readonly enlarge: () => void }) {
  const [state, setState] = useState<"asked" | "shown" | "failed">(picture.remote ? "asked" : "shown");
  if (state === "failed") return <p class="image-failed"><Icon name="image" size={18} /><span>{t("transcript.image_failed")}</span></p>;
  if (state === "asked") {
    return (
      <button type="button" class="image-load" title={picture.url} data-test="image-load" onClick={() => setState("shown")}>
        <Icon name="image" size={18} />
        <span>{t("transcript.image_load", { host: hostOf(picture.url) })}</span>
        <small>{t("transcript.image_load_help")}</small>
      </button>
    );
  }
  return (
    <button type="button" class="image" aria-label={t("transcript.image_enlarge", { n })} data-test="image" onClick={enlarge}>
      <img src={picture.url} alt={t("transcript.image", { n })} loading="lazy" decoding="async" referrerpolicy="no-referrer" onError={() => setState("failed")} />
    </button>
  );
}

/** Enlarged shows one image as large as the window allows; the arrow keys go to the others. */
function Enlarged({ pictures, at, show }: { readonly pictures: readonly Picture[]; readonly at: number; readonly show: (at: number) => void }) {
  const picture = pictures[at]!;
  const by = (step: number): void => {
    let to = at;
    do to = (to + step + pictures.length) % pictures.length;
    while (pictures[to]!.remote && to !== at); // which nobody has agreed to load
    show(to);
  };
  const keys = (e: KeyboardEvent): void => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
    if (!step || pictures.length < 2) return;
    e.preventDefault();
    by(step);
  };
  return (
    <Dialog title={t("transcript.image", { n: at + 1 })} class="enlarged" test="enlarged" onClose={() => show(-1)}>
      <div class="enlarged-image" onKeyDown={keys}>
        <img src={picture.url} alt={t("transcript.image", { n: at + 1 })} referrerpolicy="no-referrer" />
        <div class="enlarged-foot">
          {pictures.length > 1 && <IconButton icon="chevron-left" label={t("transcript.image_previous")} data-test="image-previous" onClick={() => by(-1)} />}
          <a class="button plain" href={picture.url} download={picture.remote ? undefined : ""} {...(picture.remote && { target: "_blank", rel: "noopener noreferrer" })} data-test="image-download">
            <Icon name="download" size={18} />
            <span>{t("transcript.download")}</span>
          </a>
          {pictures.length > 1 && <IconButton icon="chevron-right" label={t("transcript.image_next")} data-test="image-next" onClick={() => by(1)} />}
        </div>
      </div>
    </Dialog>
  );
}
