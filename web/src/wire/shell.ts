import { scriptURL } from "./trusted.ts";

/** keepShell installs the service worker that keeps the files of the page, so that it starts without a connection. */
export function keepShell(): void {
  if (!("serviceWorker" in navigator) || !isSecureContext) return;
  addEventListener("load", () => void navigator.serviceWorker.register(scriptURL("/sw.js")).catch(() => {})); // the page works without it
}
