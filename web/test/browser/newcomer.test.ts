// The way of somebody who opens the page for the first time.
import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Page } from "./browser.ts";
import { suite } from "./suite.ts";

const dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/** replies waits until the page has as many replies, and the last one has ended. */
const replies = (page: Page, n: number): Promise<void> =>
  page.until(`reply ${n}`, (many) => document.querySelectorAll('[data-test="message"][data-role="assistant"][aria-busy="false"]').length === many && !document.querySelector('[data-test="stop"]'), n);

/** saved returns the text of the file in a folder whose name ends so, as soon as it is there. */
async function saved(page: Page, folder: string, ending: string): Promise<string> {
  for (let tries = 0; tries < 100; tries++) {
    const name = (await readdir(folder)).find((one) => one.endsWith(ending)); // one that is still written has another ending
    if (name) return readFile(join(folder, name), "utf8");
    await page.driver.evaluate(() => new Promise((resolve) => setTimeout(resolve, 100)));
  }
  throw new Error(`no file ${ending} was saved`);
}

suite("newcomer", (check) => {
  check("from the first page to a reply with an image, a copy of the chat, and a file with it", async ({ server, open }) => {
    const folder = await mkdtemp(join(tmpdir(), "loquat-newcomer-"));
    try {
      await writeFile(join(folder, "photo.png"), Buffer.from(dot, "base64"));
      const page = await open("/");
      const chrome = await page.driver.createCDPSession();
      await chrome.send("Browser.setDownloadBehavior", { behavior: "allow", downloadPath: folder, browserContextId: page.context.id! });
      await page.click("composer");
      await page.send("Tell me something");
      await replies(page, 1);

      await page.click("attach");
      const [chooser] = await Promise.all([page.driver.waitForFileChooser(), page.click("attach-files")]);
      await chooser.accept([join(folder, "photo.png")]);
      await page.at("attachment");
      await page.send("What is in the picture?");
      await replies(page, 2);
      await page.shows("An image came with it.", "transcript");
      const asked = await page.driver.evaluate(() => location.pathname.slice("/s/".length));

      await page.act(1, "fork-here");
      await page.until("the copy", (old) => location.pathname !== `/s/${old}` && document.querySelectorAll('[data-test="message"]').length === 2, asked);
      assert.equal((await server.messages(asked)).length, 4, "the other chat stays as it is");

      await page.driver.goto(`${server.url}/s/${asked}`);
      await replies(page, 2);
      for (const [format, ending] of [["json", ".json"], ["markdown", ".md"], ["html", ".html"]] as const) {
        await page.click("session-menu");
        await page.click(`export-${format}`);
        const text = await saved(page, folder, ending);
        for (const part of ["Tell me something", "What is in the picture?", "An image came with it."]) assert.ok(text.includes(part), `${format} has no ${part}: ${text.slice(0, 500)}`);
        if (format !== "markdown") assert.ok(text.includes(dot), `${format} has no image`);
      }
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  }, { kinds: ["chrome"], looks: true });
});
