// What users do with single messages.
import assert from "node:assert/strict";
import type { Page } from "./browser.ts";
import { suite } from "./suite.ts";

const everywhere = { looks: true } as const;
const dot = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEklEQVR4nGNoaGjAihgGlwQA9QRgAQm9pRcAAAAASUVORK5CYII=";
const other = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7";
const talk = [{ role: "user", content: "Question **one**" }, { role: "assistant", content: "Answer **one** with `code`" }, { role: "user", content: "Question two" }, { role: "assistant", content: "Answer two" }];

/** keepCopies lets a test read what the page copies. Test browsers ask nobody whether a page may use the clipboard. */
const keepCopies = (): void => {
  const copied: string[] = ((globalThis as { copied?: string[] }).copied = []);
  Object.defineProperty(navigator, "clipboard", { value: { writeText: async (text: string) => void copied.push(text) } });
};

const copies = (page: Page): Promise<string[]> => page.driver.evaluate(() => (globalThis as { copied?: string[] }).copied!);

/** rows waits until the page shows so many messages, and nothing runs. */
const rows = (page: Page, n: number): Promise<void> =>
  page.until(`${n} messages at rest`, (many) => document.querySelectorAll('[data-test="message"]').length === many && !document.querySelector('[data-test="stop"], [aria-busy="true"]'), n);

/** stored waits until a session has exactly these texts. */
async function stored(server: { messages(session: string): Promise<{ content: string }[]> }, session: string, texts: string[]): Promise<void> {
  let now: string[] = [];
  for (let i = 0; i < 100; i++) {
    now = (await server.messages(session)).map((one) => one.content);
    if (now.join("\n") === texts.join("\n")) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.deepEqual(now, texts);
}

suite("messages", (check) => {
  check("a message is copied as Markdown and as plain text", async ({ server, open }) => {
    const page = await open(`/s/${await server.session({ messages: talk })}`, { before: keepCopies });
    await rows(page, 4);
    await page.act(1, "menu-copy");
    await page.shows("Copied", "toast");
    await page.act(1, "copy-plain");
    await page.until("two copies", () => (globalThis as { copied?: string[] }).copied!.length >= 2);
    await page.click("message", '[data-index="3"] [data-test="copy"]');
    await page.until("three copies", () => (globalThis as { copied?: string[] }).copied!.length >= 3);
    assert.deepEqual(await copies(page), ["Answer **one** with `code`", "Answer one with code", "Answer two"]);
  }, everywhere);

  check("an image is enlarged, stepped through and downloaded", async ({ server, open }) => {
    const session = await server.session();
    await server.send(session, "Look", { attachments: [{ type: "image", data_url: dot }, { type: "image", data_url: other }] });
    await server.settled(session);
    const page = await open(`/s/${session}`);
    await page.at("image");
    await page.click("image");
    await page.at("enlarged", " img");
    await page.until("the image", () => (document.querySelector<HTMLImageElement>('[data-test="enlarged"] img')?.naturalWidth ?? 0) > 0);
    await page.shows("Image 1", "enlarged");
    await page.click("image-next");
    await page.shows("Image 2", "enlarged");
    await page.press("ArrowLeft");
    await page.shows("Image 1", "enlarged");
    assert.deepEqual(await page.driver.$eval('[data-test="image-download"]', (link) => [(link as HTMLAnchorElement).href, link.hasAttribute("download")]), [dot, true]);
    await page.press("Escape");
    await page.gone("enlarged");
  }, everywhere);

  check("a reply is edited in its place, and a message is edited and asked again", async ({ server, open }) => {
    const session = await server.session({ model: "echo", messages: talk });
    const page = await open(`/s/${session}`);
    await rows(page, 4);
    await page.act(3, "menu-edit");
    await page.type("edit-text", ", corrected");
    await page.click("edit-save");
    await page.gone("edit-box");
    await page.shows("Answer two, corrected", "message");
    await stored(server, session, [...talk.slice(0, 3).map((one) => one.content), "Answer two, corrected"]);
    await page.act(2, "menu-edit");
    await page.type("edit-text", " and a half");
    await page.click("edit-ask");
    await page.until("the new reply", () => [...document.querySelectorAll<HTMLElement>('[data-role="assistant"]')].some((one) => one.innerText.includes("Question two and a half")));
    await rows(page, 4);
    await stored(server, session, [talk[0]!.content, talk[1]!.content, "Question two and a half", "Question two and a half"]);
  }, everywhere);

  check("a reply is written again, and its versions are stepped through", async ({ server, open }) => {
    const session = await server.session({ messages: talk.slice(0, 2), script: { text: "Another answer" } });
    const page = await open(`/s/${session}`);
    await rows(page, 2);
    assert.equal(await page.count("alternatives"), 0);
    await page.act(1, "menu-regenerate");
    await page.shows("Another answer", "message");
    await page.shows("2/2", "alternative");
    await page.click("alternative-previous");
    await page.shows("1/2", "alternative");
    await page.shows("Answer one", "message");
    await page.click("alternative-next");
    await page.shows("2/2", "alternative");
    await page.shows("Another answer", "message");
    await stored(server, session, [talk[0]!.content, "Another answer"]);
  }, everywhere);

  check("the button that steps through versions keeps the focus", async ({ server, open }) => {
    const session = await server.session({ messages: talk.slice(0, 2), script: { text: "Another answer" } });
    const page = await open(`/s/${session}`);
    await rows(page, 2);
    await page.act(1, "menu-regenerate");
    await page.shows("2/2", "alternative");
    await page.shows("Another answer", "message");
    const focused = (name: string): Promise<void> => page.until(`the focus on ${name}`, (wanted) => (document.activeElement as HTMLElement).dataset["test"] === wanted, name);
    await (await page.at("alternative-previous")).focus();
    await page.press("Enter");
    await page.shows("Answer one", "message");
    await focused("alternative-previous");
    await (await page.at("alternative-next")).focus();
    await page.press("Enter");
    await page.shows("Another answer", "message");
    await focused("alternative-next");
  });

  check("a message is edited in sight, with its images", async ({ server, open }) => {
    const session = await server.session({ script: { text: "A long answer. ".repeat(120) } });
    await server.send(session, "Look", { attachments: [{ type: "image", data_url: dot }] });
    await server.settled(session);
    const page = await open(`/s/${session}`);
    await rows(page, 2);
    await page.driver.$eval('[data-index="0"]', (row) => row.scrollIntoView());
    await page.act(0, "menu-edit");
    await page.at("edit-box", ' [data-test="image"]');
    await page.until("the whole box in sight", () => {
      const inner = document.querySelector('[data-test="edit-box"]')!.getBoundingClientRect();
      const outer = document.querySelector('[data-test="transcript"]')!.getBoundingClientRect();
      return inner.top >= outer.top && inner.bottom <= outer.bottom;
    });
    await page.press("Escape");
    await page.gone("edit-box");
    await page.shows("Look", "message");
  }, everywhere);

  check("a chat that ends in a question can be given a reply", async ({ server, open }) => {
    const session = await server.session({ messages: talk, script: { text: "The first reply" } });
    const page = await open(`/s/${session}`);
    await rows(page, 4);
    assert.equal(await page.count("ask-reply"), 0);
    await page.act(2, "fork-here");
    await rows(page, 3);
    await page.shows("This is a copy", "toast");
    await page.click("ask-reply");
    await page.shows("The first reply", "message");
    await page.gone("ask-reply");
  }, everywhere);

  check("a chat is copied up to a message", async ({ server, open }) => {
    const session = await server.session({ title: "Whole", messages: talk });
    const page = await open(`/s/${session}`);
    await rows(page, 4);
    await page.act(1, "fork-here");
    await page.until("another session", (old) => location.pathname.startsWith("/s/") && !location.pathname.endsWith(old), session);
    await rows(page, 2);
    await page.shows("Answer one", "message");
    assert.equal((await server.messages(session)).length, 4);
    await page.until("the list marks the copy alone", (old) => {
      const marked = (id: string): boolean => document.querySelector(`[data-session="${id}"] [data-test="row-copy"]`) !== null;
      return marked(location.pathname.slice("/s/".length)) && !marked(old);
    }, session);
  }, everywhere);

  check("a deleted message goes although the page is left at once", async ({ server, open }) => {
    const session = await server.session({ messages: talk });
    const page = await open(`/s/${session}`);
    await rows(page, 4);
    await page.act(2, "delete-message");
    await rows(page, 3);
    await page.driver.goto("about:blank");
    await stored(server, session, ["Question **one**", "Answer **one** with `code`", "Answer two"]);
  });

  check("a deleted message can be brought back, and otherwise goes", async ({ server, open }) => {
    const session = await server.session({ messages: talk });
    const page = await open(`/s/${session}`);
    await rows(page, 4);
    await page.act(2, "delete-message");
    await rows(page, 3);
    await page.click("toast-action");
    await rows(page, 4);
    assert.equal((await server.messages(session)).length, 4);
    await page.act(2, "delete-message");
    await rows(page, 3);
    await page.act(3, "delete-message"); // on its own, although the one before still waits
    await rows(page, 2);
    await page.press("Control", "Shift", "o"); // leaving the chat ends the time to undo
    await page.at("empty");
    await stored(server, session, [talk[0]!.content, talk[1]!.content]);
  }, everywhere);

  check("a selection is quoted, or the whole message", async ({ server, open }) => {
    const page = await open(`/s/${await server.session({ messages: talk })}`);
    await rows(page, 4);
    await page.driver.$eval('[data-index="1"] strong', (word) => getSelection()!.selectAllChildren(word));
    await page.act(1, "quote");
    await page.until("the selection in the box", () => document.querySelector<HTMLTextAreaElement>('[data-test="composer"]')?.value === "> one\n\n");
    await page.driver.evaluate(() => getSelection()!.removeAllRanges());
    await page.act(3, "quote");
    await page.until("the message below it", () => document.querySelector<HTMLTextAreaElement>('[data-test="composer"]')?.value === "> one\n\n> Answer two\n\n");
  }, everywhere);

  check("a reply that was cut says why and is continued", async ({ server, open }) => {
    const session = await server.session({ script: { text: "and this is the rest." }, messages: [{ role: "user", content: "Tell me" }, { role: "assistant", content: "The beginning,", metadata: { incomplete: "cancelled" } }] });
    const page = await open(`/s/${session}`);
    await page.shows("Stopped before the end", "remark");
    await page.click("continue");
    await page.shows("and this is the rest.", "message");
    await page.gone("continue");
    await stored(server, session, ["Tell me", "The beginning,", "Continue exactly where you stopped.", "and this is the rest."]);
  }, everywhere);

  check("a reply that was cut is not continued while a later message can be brought back", async ({ server, open }) => {
    const session = await server.session({ messages: [{ role: "user", content: "Tell me" }, { role: "assistant", content: "The beginning,", metadata: { incomplete: "cancelled" } }, { role: "user", content: "Later" }] });
    const page = await open(`/s/${session}`);
    await rows(page, 3);
    await page.act(2, "delete-message");
    await rows(page, 2);
    assert.equal(await page.count("continue"), 0);
  });
});
