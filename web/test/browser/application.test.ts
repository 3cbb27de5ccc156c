// The page as an application: installed, without a network, in the background, and with a token that only reads.
import assert from "node:assert/strict";
import { suite } from "./suite.ts";

const everywhere = { looks: true } as const;

/** notification takes the place of the browser's notifications, which test browsers do not show, and lets the test hide the page. */
const notification = (): void => {
  const all = globalThis as unknown as { shown: { title: string; body: string }[]; hiddenPage: boolean };
  Object.assign(all, {
    shown: [],
    hiddenPage: false,
    Notification: class {
      static permission = "default";
      static requestPermission(): Promise<string> {
        return Promise.resolve((this.permission = "granted"));
      }
      constructor(title: string, { body }: { body: string }) {
        all.shown.push({ title, body });
      }
    },
  });
  Object.defineProperty(document, "hidden", { get: () => all.hiddenPage });
};

suite("application", (check) => {
  check("the page can be installed, and starts without the server", async ({ kind, server, open }) => {
    const page = await open("/", { tolerant: true });
    await page.at("composer");
    const manifest = await page.driver.evaluate(async () => {
      const found = (await (await fetch(document.querySelector<HTMLLinkElement>('link[rel="manifest"]')!.href)).json()) as { name: string; start_url: string; display: string; icons: { src: string; sizes: string }[] };
      const icons = await Promise.all(found.icons.map(async ({ src, sizes }) => `${sizes} ${(await fetch(src)).status}`));
      return { name: found.name, start: found.start_url, display: found.display, icons };
    });
    assert.deepEqual(manifest, { name: "Loquat", start: "/", display: "standalone", icons: ["any 200", "192x192 200", "512x512 200", "512x512 200"] });
    await page.until("the service worker", async () => (await navigator.serviceWorker.getRegistration())?.active?.state === "activated");
    await page.until("the worker serves the page", () => navigator.serviceWorker.controller);
    const source = () => page.driver.evaluate(async () => {
      const url = new URL("/events", location.href).href;
      const noted = new Promise<PerformanceEntry>((resolve) => new PerformanceObserver((list) => list.getEntriesByName(url).forEach(resolve)).observe({ type: "resource" }));
      await (await fetch(url)).arrayBuffer();
      return ((await noted) as unknown as { workerFinalSourceType?: string }).workerFinalSourceType;
    });
    if (kind === "chrome") assert.equal(await source(), "network", "calls of the API go past the worker");
    server.network.cut();
    await page.driver.reload({ waitUntil: "domcontentloaded" });
    await page.at("composer");
    await page.shows("The server cannot be reached.", "banner");
    server.network.mend();
    await page.driver.evaluate(() => document.querySelector<HTMLElement>('[data-test="reconnect"]')?.click()); // unless it has connected already
    await page.gone("banner");
  }, everywhere);

  check("a press on the edge or the scrollbar of a dialog or a menu keeps it open, and one outside closes it", async ({ open }) => {
    const page = await open();
    for (const name of ["palette", "menu"]) {
      if (name === "menu") await page.click("attach");
      else await page.press("Control", "k");
      const box = await page.at(name);
      // Test browsers have no scrollbars that take room. A wider edge gets the same event as one.
      const { x, y } = await box.evaluate((dialog) => {
        dialog.style.setProperty("padding-right", "30px");
        const { right, top, height } = dialog.getBoundingClientRect();
        return { x: Math.round(right - 10), y: Math.round(top + height / 2) };
      });
      await page.driver.mouse.click(x, y);
      assert.equal(await page.count(name), 1, name);
      await page.driver.mouse.click(x + 40, y);
      await page.gone(name);
    }
  });

  check("a reply that ends while the page is hidden is notified, if the user wants it", async ({ server, open }) => {
    const session = await server.session({ title: "Behind", script: { text: "Ready now.", delay_ms: 300 } });
    const page = await open(`/s/${session}`, { before: notification });
    const shown = () => page.driver.evaluate(() => (globalThis as unknown as { shown: object[] }).shown);
    const hide = (hidden: boolean) => page.driver.evaluate((now) => void Object.assign(globalThis, { hiddenPage: now }), hidden);
    const reply = async (n: number, hidden: boolean): Promise<void> => {
      await hide(hidden); // before the send, because a busy machine may hide the page after the reply
      await page.send(`Question ${n}`);
      await page.until("the reply", (many) => document.querySelectorAll('[data-test="message"]').length === 2 * many && !document.querySelector('[data-test="stop"]'), n);
    };
    await reply(1, true);
    assert.deepEqual(await shown(), [], "nobody asked for notifications yet");
    await hide(false);
    await page.press("Control", ",");
    await page.click("notify");
    await page.press("Escape");
    await page.gone("theme");
    await reply(2, false);
    assert.deepEqual(await shown(), [], "the page is in sight");
    await reply(3, true);
    await page.until("a notification", () => (globalThis as unknown as { shown: object[] }).shown.length > 0);
    assert.deepEqual(await shown(), [{ title: "Behind", body: "Ready now." }]);
  }, everywhere);
});

suite("a token that only reads", (check) => {
  check("shows chats, says that it only reads, and offers nothing else", async ({ server, open }) => {
    const { session_id: session } = await server.call<{ session_id: string }>("POST", "/sessions", { metadata: { title: "Shared" }, messages: [{ role: "user", content: "Read this" }, { role: "assistant", content: "A reply" }] }, "open-sesame");
    const page = await open(`/s/${session}`, { tolerant: true });
    await page.type("token", "look-only");
    await page.press("Enter");
    await page.shows("A reply", "message");
    await page.shows("You may read, but not change anything.", "banner");
    await page.click("message", '[data-index="1"] [data-test="message-menu"]');
    await page.at("copy-plain");
    assert.deepEqual(await page.driver.$$eval('[data-test="menu"] [data-test]', (all) => all.map((one) => one.getAttribute("data-test")).filter((name) => name !== "read")), ["menu-copy", "copy-plain", "details"]);
    await page.press("Escape");
    await page.gone("menu");
    for (const name of ["composer", "session-menu", "row-menu", "new", "edit", "regenerate"]) assert.equal(await page.count(name), 0, name);
  }, everywhere);
}, { config: { server: { auth_tokens: [{ name: "full", token: "open-sesame", scope: "full" }, { name: "read", token: "look-only", scope: "read" }] } } });
