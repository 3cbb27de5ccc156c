// The notifications of the service worker, which runs here with a stand-in for its browser.
import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { runInNewContext } from "node:vm";
import { build } from "esbuild";

interface Window {
  readonly url: string;
  readonly visibilityState: "visible" | "hidden";
  focused?: boolean;
  messages?: unknown[];
}

const { outputFiles } = await build({
  entryPoints: [fileURLToPath(new URL("../../src/wire/service-worker.ts", import.meta.url))],
  bundle: true, write: false, format: "esm", define: { SHELL: "[]" },
});
const code = outputFiles[0]!.text;

/** start runs the service worker with open windows. fire sends it an event and waits for its work. */
function start(windows: Window[], texts?: object) {
  const listeners = new Map<string, (event: object) => void>();
  const shown: { title: string; options: Record<string, unknown> }[] = [];
  const opened: string[] = [];
  const clients = windows.map((window) => ({
    ...window,
    focus: async () => void (window.focused = true),
    postMessage: (message: unknown) => void (window.messages ??= []).push(message),
  }));
  const self = {
    location: { origin: "https://chat.example" },
    addEventListener: (type: string, listener: (event: object) => void) => void listeners.set(type, listener),
    registration: { showNotification: async (title: string, options: Record<string, unknown>) => void shown.push({ title, options }) },
    clients: { matchAll: async () => clients, openWindow: async (url: string) => void opened.push(url) },
  };
  const caches = { match: async (path: string) => (texts && path === "/notification-texts" ? new Response(JSON.stringify(texts)) : undefined) };
  runInNewContext(code, { self, caches, URL });
  const fire = async (type: string, event: object): Promise<void> => {
    const work: Promise<unknown>[] = [];
    listeners.get(type)!({ ...event, waitUntil: (p: Promise<unknown>) => void work.push(p) });
    assert.equal(work.length, 1);
    await work[0];
  };
  return { shown, opened, push: (data: object) => fire("push", { data: { json: () => data } }), click: (id: string) => fire("notificationclick", { notification: { close: () => {}, data: id } }) };
}

const done = { session_id: "a", request_id: "r", status: "completed", title: "About a" };

test("a notification is shown unless the user sees the session", async () => {
  const cases: [string, Window[], number][] = [
    ["no window", [], 1],
    ["the session, visible", [{ url: "https://chat.example/s/a#m3", visibilityState: "visible" }], 0],
    ["the session, hidden", [{ url: "https://chat.example/s/a", visibilityState: "hidden" }], 1],
    ["another session, visible", [{ url: "https://chat.example/s/ab", visibilityState: "visible" }], 1],
  ];
  for (const [name, windows, want] of cases) {
    const worker = start(windows);
    await worker.push(done);
    assert.equal(worker.shown.length, want, name);
  }
});

test("a notification has the title of the session, and the texts of the page", async () => {
  const worker = start([], { completed: "Fertig", failed: "Fehler" });
  await worker.push(done);
  await worker.push({ ...done, status: "failed", title: undefined });
  assert.deepEqual(worker.shown.map(({ title, options }) => [title, options["body"], options["tag"]]), [["About a", "Fertig", "a"], ["Fehler", "", "a"]]);
  const english = start([]);
  await english.push({ ...done, title: undefined });
  assert.equal(english.shown[0]!.title, "The reply is complete");
});

test("a click focuses the session, or opens it", async () => {
  const other: Window = { url: "https://chat.example/", visibilityState: "hidden" };
  const same: Window = { url: "https://chat.example/s/a", visibilityState: "hidden" };
  const both = start([other, same]);
  await both.click("a");
  assert.deepEqual([other.focused, same.focused, both.opened], [undefined, true, []]);
  await start([other]).click("a");
  assert.deepEqual([other.focused, JSON.stringify(other.messages)], [true, '[{"openSession":"a"}]']);
  const none = start([]);
  await none.click("a");
  assert.deepEqual(none.opened, ["/s/a"]);
});
