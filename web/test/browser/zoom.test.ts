// The page in windows that are as small as with a high zoom: nothing is cut off, and everything can be clicked.
import assert from "node:assert/strict";
import type { Form, Page } from "./browser.ts";
import { withWorkshop } from "./plugin/options.ts";
import { suite } from "./suite.ts";

const words = (n: number): string => Array.from({ length: n }, (_, i) => `word${i}`).join(" ");
const talk = [
  { role: "user", content: "A question" },
  { role: "assistant", content: `An answer with \`code\`.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n${words(300)}\n\nThe end of the answer.`, metadata: { model: "demo" } },
];

/** The windows: half of 1280x1024 in each direction, as with a zoom of 200 %, and a quarter, the least that WCAG 1.4.10 names. */
const windows: readonly (Form & { transcript: number })[] = [
  { name: "zoom 200 %", width: 640, height: 512, touch: false, transcript: 0.6 },
  { name: "zoom 400 %", width: 320, height: 256, touch: false, transcript: 0.5 },
];

/**
 * unreachable scrolls to each control of the page, or of the dialog on top of it. It returns the controls that are cut
 * off, and those that a click at their middle does not hit. It runs in the page.
 */
function unreachable(): string[] {
  const found: string[] = [];
  const nameOf = (element: Element): string => `<${element.tagName.toLowerCase()} ${element.getAttribute("data-test") ?? element.className}> ${(element.getAttribute("aria-label") ?? element.textContent ?? "").trim().slice(0, 40)}`;
  const wide = document.documentElement.scrollWidth;
  if (wide > innerWidth) found.push(`the page is ${wide - innerWidth} px wider than the window`);
  const top = [...document.querySelectorAll("dialog[open]")].at(-1) ?? document.querySelector(".with-drawer > .sidebar") ?? document.body;
  for (const one of top.querySelectorAll<HTMLElement>("button, a[href], input:not([type=file]), select, textarea, summary, [role=option]")) {
    const control = one.matches(".sr-only") ? one.closest("label")! : one;
    if (!control.checkVisibility({ visibilityProperty: true }) || control.matches(".skip, :disabled")) continue;
    control.scrollIntoView({ block: "nearest", inline: "nearest" });
    // A script can scroll what users cannot.
    for (let at = control.parentElement; at; at = at.parentElement) {
      const { overflowX, overflowY } = getComputedStyle(at);
      if ((at.scrollTop && overflowY === "hidden") || (at.scrollLeft && overflowX === "hidden")) found.push(`${nameOf(control)} is cut off by ${nameOf(at)}`);
      if (overflowY === "hidden") at.scrollTop = 0;
      if (overflowX === "hidden") at.scrollLeft = 0;
    }
    const { left, top: above, width, height, right, bottom } = control.getBoundingClientRect();
    if (left < -1 || right > innerWidth + 1) found.push(`${nameOf(control)} sticks out of the window, from ${Math.round(left)} to ${Math.round(right)}`);
    if (control.tagName !== "TEXTAREA" && (above < -1 || bottom > innerHeight + 1)) found.push(`${nameOf(control)} is not wholly in the window, from ${Math.round(above)} to ${Math.round(bottom)}`);
    const hit = document.elementFromPoint(left + width / 2, above + height / 2);
    if (!hit || !(control.contains(hit) || hit.closest("label")?.contains(control))) found.push(`a click at ${nameOf(control)} hits ${hit ? nameOf(hit) : "nothing"}`);
  }
  return found;
}

for (const form of windows) suite(`a window with ${form.name}`, (check) => {
  const reached = async (page: Page, state: string): Promise<void> => {
    await page.driver.evaluate(() => Promise.allSettled(document.getAnimations().filter((one) => one.effect?.getComputedTiming().iterations !== Infinity).map((one) => one.finished)));
    assert.deepEqual(await page.driver.evaluate(unreachable), [], state);
  };

  check("the first page and the list of chats", async ({ server, open }) => {
    for (const title of ["One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight"]) await server.session({ title, metadata: { tags: ["home"] } });
    const page = await open("/", { form });
    await page.at("prompt");
    await reached(page, "first page");
    await page.click("prompt", " strong");
    await page.until("the reply", () => document.querySelectorAll('[data-test="message"]').length === 2 && !document.querySelector('[data-test="stop"]'));
    await page.list();
    await page.shows("Eight", "session-row");
    await reached(page, "drawer");
    await page.click("page-menu");
    await page.at("menu");
    await reached(page, "menu of the page");
    await page.click("import-open");
    await page.gone("menu");
    await page.at("import-files"); // its code is loaded when it is opened first
    await reached(page, "import");
    await page.press("Escape");
    await page.list();
    await page.click("archived");
    await page.list();
    await page.click("list-back");
  });

  check("a chat: reading, writing, and the menus of messages", async ({ server, open }) => {
    const page = await open(`/s/${await server.session({ title: "A chat with a title that is longer than the window is wide", messages: talk })}`, { form });
    await page.shows("The end of the answer.");
    const { share, column } = await page.driver.$eval('[data-test="transcript"]', (box) => ({ share: box.clientHeight / innerHeight, column: box.querySelector(".message.assistant .text")!.clientWidth }));
    assert.ok(share >= form.transcript, `the transcript has ${Math.round(share * 100)} % of the height`);
    assert.ok(column >= 250, `the text is ${column} px wide`);
    await reached(page, "chat");
    await page.act(1, "details");
    await page.at("details-dialog");
    await reached(page, "details");
    await page.press("Escape");
    await page.act(0, "menu-edit");
    await page.at("edit-box");
    await reached(page, "editing");
    await page.press("Escape");
    await page.gone("edit-box");
    await page.type("composer", "A long draft. ".repeat(40));
    await reached(page, "a long draft");
    assert.ok(await page.driver.$eval('[data-test="transcript"]', (box) => box.clientHeight >= 80), "the transcript keeps its place above a long draft");
    await page.click("send");
    await page.shows("A long draft.", "message");
  });

  check("a reply that streams, with messages that wait", async ({ server, open }) => {
    const page = await open(`/s/${await server.session({ script: { text: words(3000), chunks: 3000, rate: 30 } })}`, { form });
    await page.send("Begin");
    await page.shows("word5", "message");
    await page.send("Waits");
    await page.at("queued");
    await page.type("composer", "Another");
    await reached(page, "streaming");
    await page.click("queued", ' [data-test="withdraw"]');
    await page.gone("queued");
    await page.click("stop");
    await page.gone("stop");
  });

  check("dialogs, settings and the form of a plugin", async ({ server, open }) => {
    const page = await open(`/s/${await server.session({ messages: talk })}`, { form });
    await page.shows("The end of the answer.");
    const closes = async (state: string, name: string): Promise<void> => {
      await page.at(name);
      await reached(page, state);
      await page.press("Escape");
      await page.gone(name);
    };
    await page.press("Control", "k");
    await closes("palette", "palette");
    await page.press("Control", ",");
    await closes("settings", "theme");
    await page.click("model-picker");
    await page.at("model");
    await closes("models", "models");
    await page.click("session-menu");
    await page.at("menu");
    await reached(page, "menu");
    await page.click("plugin-action");
    await page.click("action-run");
    await page.shows("This is required.");
    await reached(page, "form");
    await page.press("Escape");
    await page.gone("action-run");
    await page.click("chat-settings");
    await page.at("setting");
    await reached(page, "chat settings");
  });

  check("a connection that is lost", async ({ server, open }) => {
    const page = await open(`/s/${await server.session({ messages: talk })}`, { form, tolerant: true });
    await page.shows("The end of the answer.");
    server.network.cut();
    await page.at("banner");
    await reached(page, "banner");
    server.network.mend();
    await page.driver.evaluate(() => document.querySelector<HTMLElement>('[data-test="reconnect"]')?.click()); // unless it has connected already
    await page.gone("banner");
  });
}, { config: withWorkshop });
