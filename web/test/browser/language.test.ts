// The language of the page while it loads.
import assert from "node:assert/strict";
import { Page } from "./browser.ts";
import { suite } from "./suite.ts";

suite("language", (check) => {
  check("no English text flashes before the texts of the language", async ({ browser, server }) => {
    const context = await browser.createBrowserContext();
    const driver = await context.newPage();
    await driver.evaluateOnNewDocument(() => {
      Object.defineProperty(navigator, "languages", { value: ["de-DE"] });
      const seen: string[] = ((globalThis as { seen?: string[] }).seen = []);
      new MutationObserver(() => seen.push(document.body?.innerText ?? "")).observe(document, { childList: true, subtree: true, characterData: true });
    });
    await driver.goto(server.url);
    await driver.waitForFunction(() => document.body.innerText.includes("Neuer Chat"), { polling: 50 });
    const seen = await driver.evaluate(() => (globalThis as { seen?: string[] }).seen!);
    assert.ok(seen.length > 0);
    assert.deepEqual(seen.filter((text) => text.includes("New chat")), []);
    assert.equal(await driver.evaluate(() => document.documentElement.lang), "de");
    await context.close();
  });

  check("texts that cannot be loaded are reported", async ({ server, open }) => {
    const page: Page = await open("/", { tolerant: true });
    await page.click("settings");
    await page.at("language");
    server.network.cut();
    await (await page.at("language")).evaluate((field) => {
      (field as HTMLSelectElement).value = "fr";
      field.dispatchEvent(new Event("change", { bubbles: true }));
    });
    await page.shows("A part of this page could not be loaded");
    assert.equal(await page.driver.evaluate(() => document.documentElement.lang), "en");
  });
});
