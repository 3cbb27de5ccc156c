// The way of somebody who opens the page for the first time.
import assert from "node:assert/strict";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ElementHandle } from "puppeteer-core";
import type { Page } from "./browser.ts";
import { saveTo, savedFile } from "./downloads.ts";
import { suite } from "./suite.ts";

const dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/** replies waits until the page has as many replies, and the last one has ended. */
const replies = (page: Page, n: number): Promise<void> =>
  page.until(`reply ${n}`, (many) => document.querySelectorAll('[data-test="message"][data-role="assistant"][aria-busy="false"]').length === many && !document.querySelector('[data-test="stop"]'), n);

suite("newcomer", (check) => {
  check("from the first page to a reply with an image, a copy of the chat, and a file that brings it back", async ({ server, open }) => {
    const folder = await mkdtemp(join(tmpdir(), "loquat-newcomer-"));
    try {
      await writeFile(join(folder, "photo.png"), Buffer.from(dot, "base64"));
      const page = await open("/");
      await saveTo(page, folder);
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
        const text = await savedFile(folder, ending);
        for (const part of ["Tell me something", "What is in the picture?", "An image came with it."]) assert.ok(text.includes(part), `${format} has no ${part}: ${text.slice(0, 500)}`);
        if (format !== "markdown") assert.ok(text.includes(dot), `${format} has no image`);
      }

      await server.call("DELETE", `/sessions/${asked}`);
      await page.until("the chat is left", () => location.pathname === "/");
      await page.press("Control", "k");
      await page.type("palette-query", "import chats");
      await page.press("Enter");
      const field = (await page.at("import-files")) as unknown as ElementHandle<HTMLInputElement>;
      await field.uploadFile(join(folder, (await readdir(folder)).find((name) => name.endsWith(".json"))!));
      await page.click("import-copies"); // which says that it is for deleted chats
      await page.click("import-run");
      await page.shows("1 chat imported", "import-result");
      const { sessions } = await server.call<{ sessions: { session_id: string }[] }>("GET", "/sessions"); // the newest first
      assert.equal((await server.messages(sessions[0]!.session_id)).length, 4, "the chat is back");
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  }, { kinds: ["chrome"], looks: true });
});
