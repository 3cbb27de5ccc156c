// Files that go in and out: imports, and the export of a chat.
import assert from "node:assert/strict";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ElementHandle } from "puppeteer-core";
import { saveTo, savedFile } from "./downloads.ts";
import { suite } from "./suite.ts";

const examples = new URL("../../../internal/importer/testdata/", import.meta.url).pathname;

interface SlowMe {
  answerMe(): void;
}

/** slowMe lets the question who uses the page wait for answerMe. */
function slowMe(): void {
  const ask = globalThis.fetch;
  const wait = new Promise<void>((done) => Object.assign(globalThis, { answerMe: done }));
  globalThis.fetch = async (input, init) => {
    if (String(input instanceof Request ? input.url : input).endsWith("/auth/me")) await wait;
    return ask(input, init);
  };
}

suite("import", (check) => {
  check("chats of four applications are imported, and the page says what was left out", async ({ server, open }) => {
    const page = await open("/");
    await page.click("page-menu");
    await page.click("import-open");
    const field = (await page.at("import-files")) as unknown as ElementHandle<HTMLInputElement>;
    const names = ["chatgpt.json", "claude.json", "librechat.json", "open-webui.json"];
    await field.uploadFile(...names.map((name) => join(examples, name)));
    await page.click("import-run");
    await page.until("four results", () => document.querySelectorAll('[data-test="import-result"]').length === 4);
    const results = await page.texts("import-result");
    names.forEach((name, i) => assert.ok(results[i]!.startsWith(name) && !/\b0 chats imported/.test(results[i]!), results[i]));
    assert.ok((await page.count("import-notes")) > 0);
    const { sessions } = await server.call<{ sessions: unknown[] }>("GET", "/sessions?archived=any&limit=200");
    assert.ok(sessions.length >= 4);
    await page.click("dialog-close");
    await page.until("the imported chats", () => document.querySelectorAll('[data-test="session-row"]').length >= 3);
  });

  check("the menu that is opened before the page knows who uses it gets its entries as soon as it does", async ({ open }) => {
    const page = await open("/", { before: slowMe });
    await page.click("page-menu");
    await page.at("menu");
    assert.equal(await page.count("import-open"), 0);
    await page.driver.evaluate(() => (globalThis as unknown as SlowMe).answerMe());
    await page.click("import-open");
    await page.at("import-files");
  });

  check("a file that is not an export is refused with the reason, and nothing else happens", async ({ open }) => {
    const folder = await mkdtemp(join(tmpdir(), "loquat-import-"));
    try {
      const path = join(folder, "holiday <b>.json");
      await writeFile(path, "not JSON at all");
      const page = await open("/", { tolerant: true });
      await page.at("composer");
      await page.press("Control", "k");
      await page.type("palette-query", "import chats");
      await page.press("Enter");
      const field = (await page.at("import-files")) as unknown as ElementHandle<HTMLInputElement>;
      await field.uploadFile(path);
      await page.click("import-run");
      await page.shows("holiday <b>.json", "import-result");
      assert.equal(await page.driver.$$eval('[data-test="import-result"] .field-error', (all) => all.length), 1);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });

  check("the palette saves the open chat as a file", async ({ server, browser, open }) => {
    const folder = await mkdtemp(join(tmpdir(), "loquat-export-"));
    try {
      const session = await server.session({ title: "To keep", messages: [{ role: "user", content: "Keep me" }] });
      const page = await open(`/s/${session}`);
      await page.shows("Keep me", "message");
      await saveTo(page, folder);
      await page.press("Control", "k");
      await page.type("palette-query", "download as json");
      await page.press("Enter");
      assert.match(await savedFile(folder, ".json"), /Keep me/);
      assert.equal((await readdir(folder)).length, 1);
      assert.ok(browser.connected);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  }, { kinds: ["chrome"] });
});
