// Everything that users often do, with no mouse.
import assert from "node:assert/strict";
import type { Page } from "./browser.ts";
import { suite } from "./suite.ts";

/** tabTo presses Tab until the element with a name for tests has the focus. */
async function tabTo(page: Page, name: string, limit = 60): Promise<void> {
  const passed: string[] = [];
  for (let i = 0; i < limit; i++) {
    const at = await page.driver.evaluate(() => document.activeElement?.closest("[data-test]")?.getAttribute("data-test") ?? document.activeElement?.tagName ?? "");
    if (at === name && i > 0) return;
    passed.push(at);
    await page.press("Tab");
  }
  assert.fail(`Tab did not reach ${name} in ${limit} steps: ${passed.join(", ")}`);
}

/** focused waits until an element with a name, or one inside of it, has the focus. */
const focused = (page: Page, name: string) => page.until(`the focus in ${name}`, (where) => document.activeElement?.closest(`[data-test="${where}"]`), name);

/** choose moves through the open menu with the arrow keys to an entry, and runs it. */
async function choose(page: Page, name: string): Promise<void> {
  await focused(page, "menu");
  for (let i = 0; i < 40; i++) {
    if (await page.driver.evaluate((where) => document.activeElement?.getAttribute("data-test") === where, name)) return page.press("Enter");
    await page.press("ArrowDown");
  }
  assert.fail(`the menu has no ${name}`);
}

/** composed sends a key to the focused element as Safari sends the one that has just ended a composition. The others say isComposing. */
const composed = (page: Page, init: KeyboardEventInit) => page.driver.evaluate((more) => {
  const key = new KeyboardEvent("keydown", { keyCode: 229, bubbles: true, cancelable: true, ...more });
  (document.activeElement ?? document.body).dispatchEvent(key);
  return key.defaultPrevented;
}, init);

const chrome = { kinds: ["chrome"] } as const; // in Firefox, Enter of its protocol does not press buttons

const sessionIn = (page: Page): string => new URL(page.driver.url()).pathname.slice("/s/".length);

suite("the keyboard alone", (check) => {
  check("from the first page to sending, renaming, forking and deleting", async ({ server, open }) => {
    const page = await open();
    await focused(page, "composer");
    await page.driver.keyboard.type("Written with keys");
    await page.press("Enter");
    await page.until("the reply", () => document.querySelectorAll('[data-test="message"]').length === 2 && !document.querySelector('[data-test="stop"]'));
    const first = sessionIn(page);
    await focused(page, "composer");

    await tabTo(page, "session-menu");
    await page.press("Enter");
    await choose(page, "rename");
    await focused(page, "rename-field");
    await page.driver.keyboard.type("Named with keys");
    await page.press("Enter");
    await page.shows("Named with keys", "title");

    await tabTo(page, "session-menu");
    await page.press("Enter");
    await choose(page, "fork");
    await page.until("another session", (old) => location.pathname.startsWith("/s/") && !location.pathname.endsWith(old), first);
    await page.until("its messages", () => document.querySelectorAll('[data-test="message"]').length === 2);
    const second = sessionIn(page);

    await tabTo(page, "session-menu");
    await page.press("Enter");
    await choose(page, "delete");
    await tabTo(page, "toast-action");
    await page.press("Enter");
    await page.until("the session again", (id) => document.querySelector(`[data-session="${id}"]`), second);

    await tabTo(page, "session-row");
    await page.press("ArrowDown");
    await page.press("ArrowUp");
    await page.press("Enter");
    await page.until("an open session", () => location.pathname.startsWith("/s/"));
    assert.equal((await server.messages(first)).length, 2);
  }, chrome);

  check("a chat that is left while it is renamed keeps its title, and so does the next one", async ({ server, open }) => {
    const one = await server.session({ title: "The first", messages: [{ role: "user", content: "One" }] });
    const other = await server.session({ title: "The second", messages: [{ role: "user", content: "Two" }] });
    const page = await open(`/s/${other}`);
    await page.shows("Two", "message");
    await page.driver.click(`[data-session="${one}"] .row-link`);
    await page.shows("One", "message");
    await page.click("session-menu");
    await page.click("rename");
    await focused(page, "rename-field");
    await page.driver.goBack();
    await page.shows("Two", "message");
    await page.shows("The second", "title");
    for (const [id, title] of [[one, "The first"], [other, "The second"]] as const) {
      assert.equal((await server.call<{ metadata: { title: string } }>("GET", `/sessions/${id}`)).metadata.title, title);
    }
  }, chrome);

  check("settings, the list of shortcuts and the palette give the focus back", async ({ open }) => {
    const page = await open();
    await focused(page, "composer");
    await page.press("Control", ",");
    await page.at("theme");
    await tabTo(page, "theme");
    await page.driver.keyboard.type("d");
    await page.until("the dark theme", () => document.documentElement.dataset["theme"] === "dark");
    await page.press("Escape");
    await page.gone("theme");
    await focused(page, "composer");

    await page.press("Control", "k");
    await focused(page, "palette");
    await page.driver.keyboard.type("shortcuts");
    await page.until("one entry", () => document.querySelectorAll('[data-test="palette"] .menu-item').length === 1);
    await page.press("Enter");
    await focused(page, "shortcuts");
    await page.press("Escape");
    await page.gone("shortcuts");
    await focused(page, "composer");
  }, chrome);

  check("a message is edited and asked again", async ({ server, open }) => {
    const session = await server.session({ model: "echo", messages: [{ role: "user", content: "Frist" }, { role: "assistant", content: "Frist" }] });
    const page = await open(`/s/${session}`);
    await page.shows("Frist", "message");
    await tabTo(page, "copy");
    await page.press("ArrowRight");
    await page.press("Enter");
    await focused(page, "edit-box");
    await page.press("Control", "a");
    await page.driver.keyboard.type("First");
    await tabTo(page, "edit-ask");
    await page.press("Enter");
    await page.until("the new reply", () => [...document.querySelectorAll<HTMLElement>('[data-role="assistant"]')].some((one) => one.innerText.includes("First")));
    await server.settled(session);
    assert.deepEqual((await server.messages(session)).map((one) => one.content), ["First", "First"]);
  }, chrome);

  check("a key that belongs to an input method acts on nothing", async ({ server, open }) => {
    const session = await server.session({ title: "Old", messages: [{ role: "user", content: "Text" }, { role: "assistant", content: "Reply" }] });
    const page = await open(`/s/${session}`);
    await page.shows("Reply", "message");
    const nothing = async (part: string, ...keys: KeyboardEventInit[]): Promise<void> => {
      await focused(page, part);
      for (const key of keys) assert.equal(await composed(page, key), false, `${key.key} in ${part}`);
      await focused(page, part);
    };
    await page.type("composer", "half");
    await nothing("composer", { key: "Enter" }, { key: ",", ctrlKey: true });
    assert.equal(await page.count("theme"), 0, "a command has run");

    await page.click("session-menu");
    await page.click("rename");
    await nothing("rename-field", { key: "Enter" }, { key: "Escape" });
    await page.press("Escape");

    await page.driver.hover('[data-role="user"]');
    await page.click("edit");
    await nothing("edit-box", { key: "Enter", ctrlKey: true }, { key: "Escape" });
    await page.press("Escape");

    await page.press("Control", "k");
    await nothing("palette", { key: "Enter" }, { key: "Escape" }, { key: "ArrowDown" });
    await page.press("Escape");

    await page.click("model-picker");
    await page.at("model");
    await page.driver.keyboard.type("demo");
    await nothing("models", { key: "Enter" }, { key: "ArrowDown" });
    await page.press("Enter");
    await page.gone("models");
    assert.deepEqual((await server.messages(session)).map((one) => one.content), ["Text", "Reply"]);
  });
});
