import { useEffect, useState } from "preact/hooks";
import { t } from "../../i18n/index.ts";
import { explain } from "../../model/problems.ts";
import { useApp } from "../context.ts";
import { Button } from "../parts/Button.tsx";
import { Icon } from "../parts/Icon.tsx";

/** useSecondsTo counts down to a time. */
export function useSecondsTo(time: number): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    if (time <= Date.now()) return;
    const timer = setInterval(() => setNow(Date.now()), 500);
    return () => clearInterval(timer);
  }, [time]);
  return Math.max(0, Math.ceil((time - Math.max(now, Date.now())) / 1000));
}

/** Banner says why the page is not live, and what the user can do. */
export function Banner() {
  const app = useApp();
  const connection = app.connection.value;
  const state = app.state.value;
  const seconds = useSecondsTo(connection.retryAt ?? 0);
  const [online, setOnline] = useState(navigator.onLine);
  useEffect(() => {
    const changed = (): void => setOnline(navigator.onLine);
    addEventListener("online", changed);
    addEventListener("offline", changed);
    return () => {
      removeEventListener("online", changed);
      removeEventListener("offline", changed);
    };
  }, []);
  if (state === "signed-out") {
    return (
      <div class="banner" role="status" data-test="banner">
        <Icon name="key" size={18} />
        <p>{t("connection.signed_out")}</p>
        <Button kind="quiet" data-test="sign-in-again" onClick={() => (app.signIn.value = true)}>{t("sign_in.again")}</Button>
      </div>
    );
  }
  if (state === "waiting" || state === "stopped" || (!online && state !== "live")) { // a server on this device needs no network
    return (
      <div class="banner warn" data-test="banner">
        <Icon name="offline" size={18} />
        <p role="status">{!online ? t("connection.offline") : connection.error && connection.error.code !== "connection" ? explain(connection.error) : t("problem.connection")}</p>
        {online && connection.retryAt && <span class="banner-time" aria-hidden="true">{t("connection.waiting", { n: seconds })}</span>}
        <Button kind="quiet" data-test="reconnect" onClick={() => app.wire.retryNow()}>{t("connection.now")}</Button>
      </div>
    );
  }
  if (!app.readOnly.value) return null;
  return (
    <div class="banner" role="status" data-test="banner">
      <Icon name="eye" size={18} />
      <p>{t("connection.read_only")}</p>
    </div>
  );
}
