import "../parts/common.ts";
import { useState } from "preact/hooks";
import { t } from "../../i18n/index.ts";
import { addressOf } from "../../model/attachments.ts";
import { useApp } from "../context.ts";
import { Button } from "../parts/Button.tsx";
import { Dialog } from "../parts/Dialog.tsx";
import { Field } from "../parts/Field.tsx";

/** AddressDialog attaches an image by its address, which is checked while it is typed. */
export default function AddressDialog({ close }: { readonly close: () => void }) {
  const app = useApp();
  const [text, setText] = useState("");
  const [tried, setTried] = useState(false);
  // The beginning of an address is not called wrong while it is typed.
  const begun = "https://".startsWith(text.trim().toLowerCase()) || "http://".startsWith(text.trim().toLowerCase());
  const wrong = addressOf(text) === "" && (tried || (text.trim() !== "" && !begun));
  const submit = (e: Event): void => {
    e.preventDefault();
    setTried(true);
    if (!app.attachAddress(text)) return;
    close();
    app.ask("composer");
  };
  return (
    <Dialog title={t("composer.address_title")} class="small" test="address-dialog" onClose={close}>
      <form noValidate onSubmit={submit}>
        <Field label={t("composer.address")} help={t("composer.address_help")} error={wrong ? t("composer.address_wrong") : undefined}>
          {(ids) => <input {...ids} class="input" type="url" dir="ltr" autoFocus autocomplete="off" placeholder="https://" data-test="address" value={text} onInput={(e) => setText(e.currentTarget.value)} />}
        </Field>
        <div class="dialog-foot">
          <Button kind="quiet" onClick={close}>{t("cancel")}</Button>
          <Button kind="primary" type="submit" data-test="address-add">{t("composer.address_add")}</Button>
        </div>
      </form>
    </Dialog>
  );
}
