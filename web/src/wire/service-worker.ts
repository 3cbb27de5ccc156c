// Keeps the files of the page, so that it starts without a connection. It never keeps
// answers of the API. It also shows the notifications that the server pushes.
export {};

declare const self: ServiceWorkerGlobalScope;
/** https://w3c.github.io/ServiceWorker/#register-router-method, which not all browsers have. */
interface InstallEvent extends ExtendableEvent {
  addRoutes?(rules: { readonly condition: object; readonly source: "network" }): Promise<void>;
}
/** The files that the page needs to start. The build fills it in. */
declare const SHELL: readonly string[];

const prefix = "loquat-shell-";
const name = prefix + SHELL.join().split("").reduce((hash, c) => (hash * 31 + c.charCodeAt(0)) | 0, 7).toString(36);

self.addEventListener("install", (event) => {
  const ours = [{ requestMode: "navigate" }, ...["/assets/*", ...SHELL].map((pathname) => ({ urlPattern: { pathname } }))];
  (event as InstallEvent).addRoutes?.({ condition: { not: { or: ours } }, source: "network" }).catch(() => {}); // calls of the API do not wait for this worker
  event.waitUntil(caches.open(name).then((cache) => cache.addAll(SHELL.map((path) => new Request(path, { cache: "no-cache" })))).then(() => self.skipWaiting()));
});

self.addEventListener("activate", (event) => {
  const old = async (): Promise<void> => {
    for (const key of await caches.keys()) if (key.startsWith(prefix) && key !== name) await caches.delete(key);
    await self.clients.claim();
  };
  event.waitUntil(old());
});

self.addEventListener("fetch", (event) => {
  const { request } = event;
  const url = new URL(request.url);
  if (request.method !== "GET" || url.origin !== self.location.origin) return;
  if (request.mode === "navigate") {
    if (url.pathname === "/" || url.pathname === "/archived" || url.pathname.startsWith("/s/")) event.respondWith(page(request));
  } else if (url.pathname.startsWith("/assets/")) {
    event.respondWith(file(request));
  } else if (SHELL.includes(url.pathname)) {
    event.respondWith(fetch(request).catch(() => cached(url.pathname)));
  }
});

/** page returns the page of the server, or the kept one without a connection. */
async function page(request: Request): Promise<Response> {
  try {
    return await fetch(request);
  } catch {
    return cached("/");
  }
}

/** file returns a file whose name has its hash: the kept one, else the server's, which is kept. */
async function file(request: Request): Promise<Response> {
  const kept = await caches.match(request, { ignoreVary: true }); // scripts are asked for with other headers than those that install them
  if (kept) return kept;
  const answer = await fetch(request);
  if (answer.ok) {
    const copy = answer.clone();
    void caches.open(name).then((cache) => cache.put(request, copy)).catch(() => {});
  }
  return answer;
}

const cached = async (path: string): Promise<Response> => (await caches.match(path, { ignoreVary: true })) ?? Response.error();

/** What the server pushes: PushNotification in push.go. */
interface Push {
  readonly session_id: string;
  readonly status: string;
  readonly title?: string;
}

const addressOf = (id: string): string => `/s/${encodeURIComponent(id)}`;
const windows = (): Promise<readonly WindowClient[]> => self.clients.matchAll({ type: "window", includeUncontrolled: true });
const shows = (client: WindowClient, id: string): boolean => new URL(client.url).pathname === addressOf(id);

self.addEventListener("push", (event) => {
  const push = event.data?.json() as Push | undefined;
  if (push) event.waitUntil(notify(push));
});

/** notify shows a notification, unless the user sees the session. A newer one of a session replaces the older one. */
async function notify({ session_id, status, title }: Push): Promise<void> {
  if ((await windows()).some((client) => client.visibilityState === "visible" && shows(client, session_id))) return;
  const texts = await textsOf();
  const body = status === "failed" ? texts.failed : texts.completed;
  await self.registration.showNotification(title || body, { body: title ? body : "", tag: session_id, icon: "/icon-192.png", data: session_id });
}

/** textsOf returns the texts in the language of the page, which wire/push.ts has stored. */
async function textsOf(): Promise<{ readonly completed: string; readonly failed: string }> {
  const kept = await caches.match("/notification-texts");
  return kept ? ((await kept.json()) as { completed: string; failed: string }) : { completed: "The reply is complete", failed: "The reply failed" };
}

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(open(event.notification.data as string));
});

/** open shows a session in a page that is open, or in a new one. */
async function open(id: string): Promise<void> {
  const all = await windows();
  const client = all.find((one) => shows(one, id)) ?? all[0];
  if (!client) {
    await self.clients.openWindow(addressOf(id));
    return;
  }
  await client.focus();
  client.postMessage({ openSession: id });
}
