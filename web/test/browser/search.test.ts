// The search in all messages, and what the page does with a hit.
import assert from "node:assert/strict";
import type { Page } from "./browser.ts";
import { suite } from "./suite.ts";

const filler = (n: number) => Array.from({ length: n }, (_, i) => ({ role: i % 2 ? "assistant" : "user", content: `Filler ${i}. ${"Some more words. ".repeat(12)}` }));

/** inView waits until the marked message is in the visible part of the transcript. */
const inView = (page: Page, text: string): Promise<void> =>
  page.until(`${text} in view`, (what) => {
    const box = document.querySelector('[data-test="transcript"]')!.getBoundingClientRect();
    const row = [...document.querySelectorAll<HTMLElement>("[data-marked]")].find((one) => one.innerText.includes(what));
    if (!row) return false;
    const { top } = row.getBoundingClientRect();
    return top >= box.top - 1 && top < box.bottom - 40;
  }, text);

suite("search", (check) => {
  check("a message is found by its words and opened at its place, with the keyboard alone", async ({ server, open }) => {
    const messages = filler(120);
    messages[30] = { role: "user", content: "Where do kumquats grow <b>best</b>?" };
    await server.session({ id: "fruit", title: "Fruit", messages });
    const page = await open("/");
    await page.at("composer");
    await page.press("Control", "k");
    await page.type("palette-query", "kumqu");
    await page.shows("kumquats grow <b>best</b>?", "palette-hit");
    await page.shows("1 message found", "palette-hits");
    assert.equal(await page.driver.$eval('[data-test="palette-hit"] mark', (mark) => mark.textContent), "kumquats");
    assert.match((await page.texts("palette-hit"))[0]!, /^Fruit/);
    assert.equal(await page.driver.$eval('[data-test="palette-query"]', (field) => document.getElementById(field.getAttribute("aria-activedescendant")!)?.getAttribute("data-test")), "palette-hit");
    await page.press("Enter");
    await page.gone("palette");
    await inView(page, "kumquats");
    assert.equal(await page.driver.evaluate(() => location.pathname + location.hash), "/s/fruit#m30");
    // 5 rows before the hit and 20 from it on, and 20 more on each side where the edge is near; to the end there are 95.
    assert.ok((await page.count("message")) <= 65, "the rows between are not rendered");
    assert.ok(!(await page.texts("message")).some((text) => text.includes("Filler 119.")), "the end is not rendered");
    await page.until("the mark to fade", () => !document.querySelector("[data-marked]"));
    await page.click("to-latest");
    await page.shows("Filler 119.", "message");
  });

  check("the arrow keys choose among chats, messages and commands", async ({ server, open }) => {
    await server.session({ title: "Zebras of the plain", messages: [{ role: "user", content: "zebras one" }, { role: "assistant", content: "zebras two" }] });
    const page = await open("/");
    await page.shows("Zebras of the plain", "session-row");
    await page.press("Control", "k");
    await page.type("palette-query", "zebras");
    await page.shows("messages found", "palette-hits");
    const chosen = (): Promise<string> => page.driver.$eval('[role="option"][aria-selected="true"]', (one) => (one as HTMLElement).innerText);
    assert.equal(await chosen(), "Zebras of the plain");
    await page.press("ArrowDown");
    assert.match(await chosen(), /zebras (one|two)/);
    const first = await chosen();
    await page.press("ArrowDown");
    assert.notEqual(await chosen(), first);
    await page.press("ArrowDown");
    assert.equal(await chosen(), "Zebras of the plain", "after the last one comes the first");
    await page.press("Escape");
    await page.gone("palette");
    await page.press("Control", "k");
    await page.type("palette-query", "keyboard short");
    await page.press("Enter");
    await page.at("shortcuts");
  });

  check("a hit in the open session scrolls there, and back comes the place before", async ({ server, open }) => {
    const messages = filler(80);
    messages[4] = { role: "user", content: "Quinces at the beginning" };
    messages[78] = { role: "user", content: "Medlars near the end" };
    const session = await server.session({ messages });
    const page = await open(`/s/${session}#m4`);
    await inView(page, "Quinces");
    // The user may go back at once: the address must not wait until the page is idle.
    await page.driver.evaluate(() => (window.requestIdleCallback = () => 0));
    await page.press("Control", "k");
    await page.type("palette-query", "medlars");
    await page.shows("1 message found", "palette-hits");
    await page.press("Enter");
    await inView(page, "Medlars");
    await page.driver.goBack();
    await inView(page, "Quinces");
  });

  check("a search that fails says so and can be repeated", async ({ server, open }) => {
    await server.session({ messages: [{ role: "user", content: "Persimmons" }] });
    const page = await open("/", { tolerant: true });
    await page.at("composer");
    await page.press("Control", "k");
    await page.at("palette-query"); // its code is loaded on demand
    server.network.cut();
    await page.type("palette-query", "persimmons");
    await page.at("palette-failed");
    server.network.mend();
    await page.click("palette-failed", " button");
    await page.shows("Persimmons", "palette-hit");
  });
});
