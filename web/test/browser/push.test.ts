// Notifications that the server pushes, with Firefox's own Web Push: it decrypts what the server has encrypted. Chromium takes
// pushes from Google's service alone.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Browser } from "puppeteer-core";
import { launch, missing, Page } from "./browser.ts";
import { Server, until } from "./program.ts";
import { PushService } from "./push-service.ts";

interface Shown {
  readonly title: string;
  readonly body: string;
  readonly session: string;
}

/** notifications returns what the service worker shows. */
const notifications = (page: Page): Promise<Shown[]> =>
  page.driver.evaluate(async () => {
    const all = await (await navigator.serviceWorker.ready).getNotifications();
    return all.map(({ title, body, data }) => ({ title, body, session: String(data) }));
  });

describe("push in firefox", { skip: missing("firefox"), concurrency: 1 }, () => {
  let service: PushService;
  let server: Server;
  let browser: Browser;
  before(async () => {
    service = await PushService.start();
    server = await Server.start({ config: { push: { web: { subject: "mailto:admin@example.org", allow_private_addresses: true } } }, env: { SSL_CERT_FILE: service.certificate } });
    browser = await launch("firefox", false, service.preferences);
  });
  after(async () => {
    await browser?.close();
    await server?.stop();
    await service?.stop();
  });

  test("a reply that ends is pushed, also after a restart of the server and while no page is open, until the user wants it no more", { timeout: 120_000 }, async () => {
    const seen = await server.session({ title: "In sight", script: { text: "Done." } });
    const behind = await server.session({ title: "Behind", script: { text: "Done." } });
    const later = await server.session({ title: "Later", script: { text: "Done." } });
    const page = await Page.open(browser, `${server.url}/s/${seen}`);
    await page.at("composer");
    await page.press("Control", ",");
    await page.click("notify");
    await page.until("the server has the subscription", async () => Boolean(await caches.match("/notification-texts"))); // which the page keeps last
    await page.press("Escape");

    await server.send(seen, "Go"); // its push comes first, and shows nothing
    await until("the first push", () => service.pushed === 1);
    await server.send(behind, "Go");
    await until("a notification", async () => (await notifications(page)).length > 0);
    const first = { title: "Behind", body: "The reply is complete", session: behind };
    assert.deepEqual(await notifications(page), [first]);

    await page.close();
    await server.restart();
    await server.send(later, "Go");
    await until("the push after the restart", () => service.pushed === 3);
    const again = await Page.open(browser, `${server.url}/s/${seen}`, {}, page.context);
    await until("the notification of a reply that ended while no page was open", async () => (await notifications(again)).length > 1);
    assert.deepEqual((await notifications(again)).sort((a, b) => a.title.localeCompare(b.title)), [first, { title: "Later", body: "The reply is complete", session: later }]);

    await again.press("Control", ",");
    await again.click("notify");
    await until("the browser unsubscribes", () => service.channels.size === 0);
    await again.close();
  });
});
