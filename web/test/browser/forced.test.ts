// How the page looks with forced colours, as in the contrast themes of Windows.
import assert from "node:assert/strict";
import type { Page } from "./browser.ts";
import { palettes, unseen } from "./forced.ts";
import { withWorkshop } from "./plugin/options.ts";
import { suite } from "./suite.ts";

const talk = [
  { role: "user", content: "A question" },
  { role: "assistant", content: "An answer with `code`.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nThe end of the answer.", metadata: { model: "demo" } },
];

/** inPalettes checks something with each palette. */
async function inPalettes(page: Page, run: (palette: string) => Promise<void>): Promise<void> {
  for (const palette of palettes(page)) {
    await page.look(palette);
    assert.ok(await page.driver.evaluate(() => matchMedia("(forced-colors: active)").matches), "colours are forced");
    await run(palette.theme!);
  }
}

/** looksOf returns, of each element of a selector, the outline and border, which forced colours leave to the page. */
const looksOf = (page: Page, selector: string): Promise<string[]> =>
  page.driver.$$eval(selector, (all) => all.map((one) => {
    const { outlineStyle, outlineWidth, outlineColor, borderTopStyle, borderTopWidth, borderTopColor } = getComputedStyle(one);
    return `outline ${outlineStyle === "none" ? "none" : `${outlineWidth} ${outlineStyle} ${outlineColor}`}, border ${borderTopStyle === "none" ? "none" : `${borderTopWidth} ${borderTopStyle} ${borderTopColor}`}`;
  }));

/** differs checks that the element that is chosen is marked by a line that the others do not have. */
async function differs(page: Page, what: string, chosen: string, others: string): Promise<void> {
  const [one, ...more] = await looksOf(page, chosen);
  const rest = await looksOf(page, others);
  assert.ok(one && !more.length && rest.length, `${what}: one is chosen among others`);
  assert.ok(!rest.includes(one), `${what}: the chosen one looks like the others: ${one}`);
}

/** focusLines presses Tab from the first stop of the page to its last one, and returns the stops that do not show that they have the focus. */
async function focusLines(page: Page): Promise<{ seen: number; faults: string[] }> {
  const seen = new Set<string>();
  const faults: string[] = [];
  await page.driver.$eval(".skip", (first) => (first as HTMLElement).focus());
  for (;;) {
    await page.press("Tab");
    const { name, line } = await page.driver.evaluate(() => {
      const at = document.activeElement as HTMLElement;
      const shown = at.closest(".composer-box:has(textarea:focus), .edit-box:has(textarea:focus), .chip:has(input:focus)") ?? at;
      const { outlineStyle, outlineWidth } = getComputedStyle(shown);
      return { name: `${at.tagName} ${Math.round(at.getBoundingClientRect().top)} ${at.dataset["test"] ?? at.className} ${at.textContent!.slice(0, 20)}`, line: outlineStyle !== "none" && parseFloat(outlineWidth) >= 1 };
    });
    if (name.startsWith("BODY") || seen.has(name)) return { seen: seen.size, faults };
    seen.add(name);
    if (!line) faults.push(name);
  }
}

suite("forced colours", (check) => {
  check("texts, icons, boxes and fields are seen", async ({ server, open }) => {
    const page = await open(`/s/${await server.session({ title: "Seen", messages: talk })}`);
    await page.shows("The end of the answer.");
    const all = async (state: string): Promise<void> => inPalettes(page, async (palette) => assert.deepEqual(await page.driver.evaluate(unseen), [], `${state}, ${palette}`));
    await all("conversation");
    await page.act(0, "menu-edit");
    await page.at("edit-box");
    await all("editing");
    await page.press("Escape");
    await page.click("chat-settings");
    await page.at("setting");
    await all("chat settings");
    await page.press("Control", "k");
    await page.at("palette");
    await all("palette");
    await page.press("Escape");
    await page.press("Control", ",");
    await page.at("theme");
    await all("settings");
    await page.press("Escape");
    await page.click("session-menu");
    await page.at("menu");
    await all("menu");
  });

  check("each stop of the Tab key shows that it has the focus", async ({ server, open }) => {
    const page = await open(`/s/${await server.session({ title: "Focus", messages: talk })}`);
    await page.shows("The end of the answer.");
    await page.click("chat-settings");
    await page.at("setting");
    await inPalettes(page, async (palette) => {
      const { seen, faults } = await focusLines(page);
      assert.ok(seen > 15, `${seen} stops`);
      assert.deepEqual(faults, [], palette);
    });
  });

  check("what is chosen differs from the rest by a line", async ({ server, open }) => {
    await server.session({ title: "Another" });
    const page = await open(`/s/${await server.session({ title: "Chosen", messages: talk })}`);
    await page.shows("The end of the answer.");
    await page.shows("Another", "session-row");
    await inPalettes(page, () => differs(page, "the open chat", ".row.current", ".row:not(.current)"));
    await page.press("Control", "k");
    await page.at("palette", ' [aria-selected="true"]');
    await inPalettes(page, () => differs(page, "the entry of the palette", '.palette-option[aria-selected="true"]', '.palette-option[aria-selected="false"]'));
    await page.press("Escape");
    await page.gone("palette");
    await page.click("session-menu");
    await page.at("menu");
    await page.press("ArrowDown");
    await inPalettes(page, () => differs(page, "the entry of a menu", ".menu-item:focus", ".menu-item:not(:focus)"));
    await inPalettes(page, () => differs(page, "the button of the open menu", '.header .icon-button[aria-expanded="true"]', ".header .icon-button:not([aria-expanded])"));
  });

  check("a message that a search found is marked by a line", async ({ server, open }) => {
    const page = await open(`/s/${await server.session({ messages: talk })}`);
    await page.shows("The end of the answer.");
    await page.driver.$eval(".message", (row) => row.setAttribute("data-marked", "")); // the page removes its mark after a moment
    await inPalettes(page, () => differs(page, "the hit", "[data-marked]", ".message:not([data-marked])"));
  });

  check("a lost connection looks different from a live one", async ({ server, open }) => {
    const page = await open("/", { tolerant: true });
    await page.until("live", () => document.querySelector('[data-test="connection"]')?.getAttribute("data-state") === "live");
    const mark = () => page.driver.$eval('[data-test="connection"]', (dot) => `${getComputedStyle(dot).backgroundColor} ${getComputedStyle(dot).borderTopWidth}`);
    const live: string[] = [];
    await inPalettes(page, async () => void live.push(await mark()));
    server.network.cut();
    await page.at("banner");
    await page.until("waiting", () => document.querySelector('[data-test="connection"]')?.getAttribute("data-state") !== "live");
    await inPalettes(page, async (palette) => {
      assert.notEqual(await mark(), live.shift(), palette);
      assert.deepEqual(await page.driver.evaluate(unseen), [], palette);
    });
  });
}, { config: withWorkshop, forced: true });
