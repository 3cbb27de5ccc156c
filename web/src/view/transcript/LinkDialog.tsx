import { useState } from "preact/hooks";
import { t } from "../../i18n/index.ts";
import { Button } from "../parts/Button.tsx";
import { Dialog } from "../parts/Dialog.tsx";
import { copy } from "./copy.ts";
import { useApp } from "../context.ts";
import { hostOf, leaving, trusted } from "./Text.tsx";

/** LinkDialog shows where a link really leads, before the browser goes there. */
export function LinkDialog() {
  return leaving.value ? <Ask key={leaving.value} url={leaving.value} /> : null;
}

function Ask({ url }: { readonly url: string }) {
  const app = useApp();
  const [trust, setTrust] = useState(false);
  const host = hostOf(url);
  const at = url.indexOf(host);
  const close = (): void => void (leaving.value = "");
  const open = (): void => {
    if (trust) trusted.add(host);
    window.open(url, "_blank", "noopener,noreferrer");
    close();
  };
  return (
    <Dialog title={t("transcript.link")} class="small" test="link-dialog" onClose={close}>
      <p>{t("transcript.link_help", { host })}</p>
      <p class="link-target" dir="ltr" data-test="link-target">
        {at < 0 ? url : <>{url.slice(0, at)}<strong>{host}</strong>{url.slice(at + host.length)}</>}
      </p>
      <label class="check">
        <input type="checkbox" checked={trust} data-test="link-trust" onChange={(e) => setTrust(e.currentTarget.checked)} />
        <span>{t("transcript.link_trust", { host })}</span>
      </label>
      <div class="dialog-foot">
        <Button kind="quiet" data-test="link-copy" onClick={() => void copy(app, url)}>{t("transcript.link_copy")}</Button>
        <Button kind="primary" data-test="link-open" onClick={open}>{t("transcript.link_open")}</Button>
      </div>
    </Dialog>
  );
}
