// Notifications of the browser: those of this page, and those that the server pushes.
import { effect } from "@preact/signals";
import { t } from "../../i18n/index.ts";
import type { App } from "../../model/app.ts";

/** notifyReplies shows a notification when a reply ends while the page is hidden, if the user has allowed that. The server pushes it where it can. */
export function notifyReplies(app: App): void {
  const pushed = keepSubscription(app);
  app.onReply = (title, text) => {
    if (pushed() || !document.hidden || !app.preferences.get("notify") || !("Notification" in globalThis) || Notification.permission !== "granted") return;
    const options = { body: text.slice(0, 200), icon: "/icon-192.png", tag: "reply" };
    try {
      const notification = new Notification(title || t("notify.title"), options);
      notification.onclick = () => {
        window.focus();
        notification.close();
      };
    } catch {
      // Phones show notifications only through the service worker.
      void navigator.serviceWorker?.ready.then((registration) => registration.showNotification(title || t("notify.title"), options));
    }
  };
}

/** keepSubscription subscribes this browser while a user who wants notifications is signed in. It returns whether the server pushes them. */
function keepSubscription(app: App): () => boolean {
  let id = "";
  let asked = false;
  let last: Promise<void> = Promise.resolve();
  const then = (step: (push: typeof import("../../wire/push.ts")) => Promise<void>): void => {
    last = last.then(async () => step(await import("../../wire/push.ts"))).catch(() => {}); // the page itself notifies then
  };
  navigator.serviceWorker?.addEventListener("message", ({ data }: MessageEvent<{ openSession?: unknown } | null>) => {
    if (typeof data?.openSession === "string") app.go({ at: "session", id: data.openSession });
  });
  effect(() => {
    const wanted = app.preferences.get("notify") && app.me.value !== null && "PushManager" in globalThis && Notification.permission === "granted";
    const ends = asked && !wanted;
    asked = wanted;
    if (wanted) then(async ({ subscribe }) => void (id = await subscribe(app.wire.sdk, { completed: t("notify.title"), failed: t("notify.failed") })));
    else if (ends) then(async ({ unsubscribe }) => {
      const former = id;
      id = "";
      await unsubscribe(app.wire.sdk, former);
    });
  });
  return () => id !== "";
}
