import { useState } from "preact/hooks";
import { t } from "../../i18n/index.ts";
import { explain } from "../../model/problems.ts";
import { asProblem } from "../../model/wire.ts";
import { useApp } from "../context.ts";
import { Button } from "../parts/Button.tsx";
import { Dialog } from "../parts/Dialog.tsx";
import { Field } from "../parts/Field.tsx";

/** SignIn asks for a token. Closing it leaves a page that can ask again. */
export function SignIn() {
  const app = useApp();
  const [token, setToken] = useState("");
  const [fault, setFault] = useState("");
  const [busy, setBusy] = useState(false);
  const submit = async (e: Event): Promise<void> => {
    e.preventDefault();
    if (busy || !token.trim()) return;
    setBusy(true);
    setFault("");
    try {
      await app.wire.call("POST", "/auth/session", { body: { token: token.trim() } });
      await app.signedIn();
    } catch (thrown) {
      const problem = asProblem(thrown);
      setFault(problem.code === "unauthorized" ? t("sign_in.wrong") : explain(problem));
    } finally {
      setBusy(false);
    }
  };
  return (
    <Dialog title={t("sign_in.title")} class="small" test="sign-in" onClose={() => (app.signIn.value = false)}>
      <form onSubmit={(e) => void submit(e)}>
        <p class="dialog-text">{t("sign_in.help").split("`").map((part, i) => (i % 2 ? <code key={i}>{part}</code> : part))}</p>
        <Field label={t("sign_in.token")} error={fault || undefined}>
          {(ids) => <input {...ids} class="input" type="password" autoComplete="current-password" spellcheck={false} autoFocus data-test="token" value={token} onInput={(e) => setToken(e.currentTarget.value)} />}
        </Field>
        <footer class="dialog-foot">
          <Button onClick={() => (app.signIn.value = false)} data-test="sign-in-cancel">{t("cancel")}</Button>
          <Button kind="primary" type="submit" disabled={busy} data-test="sign-in-submit">{t("sign_in.action")}</Button>
        </footer>
      </form>
    </Dialog>
  );
}

/** Pair asks before a link signs this browser in: it would sign it in as the person who made the link. */
export function Pair({ code, done }: { readonly code: string; readonly done: () => void }) {
  const app = useApp();
  const [fault, setFault] = useState("");
  const claim = async (): Promise<void> => {
    try {
      const name = t("pair.device", { platform: navigator.platform || "?" });
      const { token } = await app.wire.call<{ token: string }>("POST", "/pairing/claim", { body: { code, device_name: name } });
      await app.wire.call("POST", "/auth/session", { body: { token } });
      done();
      await app.signedIn();
    } catch (thrown) {
      const problem = asProblem(thrown);
      setFault(problem.code === "unauthorized" ? t("pair.failed") : explain(problem));
    }
  };
  const refuse = (): void => {
    done();
    app.start();
  };
  return (
    <Dialog title={t("pair.title")} class="small" test="pair" onClose={refuse}>
      <p class="dialog-text">{t("pair.help", { host: location.host })}</p>
      {fault && <p class="field-error" role="alert">{fault}</p>}
      <footer class="dialog-foot">
        <Button onClick={refuse}>{t("cancel")}</Button>
        <Button kind="primary" data-test="pair-confirm" onClick={() => void claim()}>{t("pair.action")}</Button>
      </footer>
    </Dialog>
  );
}
