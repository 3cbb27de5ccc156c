import { useEffect, useState } from "preact/hooks";
import { fileSize, t } from "../../i18n/index.ts";
import { placeOf, type Piece } from "../../model/attachments.ts";
import { sessionOf } from "../../model/route.ts";
import { sessionPath } from "../../model/wire.ts";
import { useApp } from "../context.ts";
import { IconButton } from "../parts/Button.tsx";
import { Icon } from "../parts/Icon.tsx";

/** Previews shows the attachments of a draft, or of a send on its way. */
export function Previews({ pieces, remove }: { readonly pieces: readonly Piece[]; readonly remove?: (key: string) => void }) {
  if (!pieces.length) return null;
  return (
    <ul class="plain previews" aria-label={t("composer.attachments")} data-test="attachments">
      {pieces.map((piece) => <Preview key={piece.key} piece={piece} remove={remove} />)}
    </ul>
  );
}

function Preview({ piece, remove }: { readonly piece: Piece; readonly remove?: ((key: string) => void) | undefined }) {
  const { key, image, attachment } = piece;
  const [shown, setShown] = useState(false);
  const { url: address = "", asset_id: asset } = placeOf(attachment);
  const name = piece.name || t(asset ? "composer.stored_image" : "composer.image");
  return (
    <li class="preview" data-test="attachment" data-kind={address ? "address" : "image"}>
      {address && !shown ? <span class="preview-picture"><Icon name="link" size={18} /></span> : <Picture piece={piece} />}
      <span class="preview-text">
        <span class="preview-name" dir={address ? "ltr" : "auto"} title={name}>{name}</span>
        {image && <span class="preview-more">{fileSize(image.size)}</span>}
        {address && !shown && <button type="button" class="preview-show" data-test="attachment-show" data-tip={t("composer.address_show_help")} onClick={() => setShown(true)}>{t("composer.address_show")}</button>}
      </span>
      {remove && <IconButton icon="close" size={15} class="preview-remove" label={t("composer.remove", { name })} data-test="attachment-remove" onClick={() => remove(key)} />}
    </li>
  );
}

/** Picture shows a small image. One that is not in the browser is loaded without telling from where. */
function Picture({ piece: { image, attachment } }: { readonly piece: Piece }) {
  const app = useApp();
  const [failed, setFailed] = useState(false);
  const local = useAddress(image);
  const { url: remote, data_url: inline, asset_id: asset } = placeOf(attachment);
  const stored = asset && sessionPath(sessionOf(app.route.value) ?? "", `/assets/${encodeURIComponent(asset)}`);
  const url = local || stored || remote || inline;
  if (failed) return <span class="preview-picture" data-tip={t("composer.address_failed")}><Icon name="warning" size={18} /></span>;
  return <span class="preview-picture">{url && <img src={url} alt="" referrerpolicy="no-referrer" decoding="async" onError={() => setFailed(true)} />}</span>;
}

/** useAddress returns an address of an image in the browser. */
function useAddress(image: Blob | undefined): string {
  const [address, setAddress] = useState("");
  useEffect(() => {
    if (!image) return;
    const made = URL.createObjectURL(image);
    setAddress(made);
    return () => URL.revokeObjectURL(made);
  }, [image]);
  return address;
}
