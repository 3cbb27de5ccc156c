// Every state of the page, checked by the rules of axe: on a wide and on a narrow screen, light and dark, with more
// contrast and with forced colours.
import assert from "node:assert/strict";
import type { Look, Page } from "./browser.ts";
import { palettes, unseen } from "./forced.ts";
import { suite, type Check } from "./suite.ts";
import type { NewSession, Server } from "./program.ts";

const wide = { width: 1280, height: 800 };
const narrow = { width: 390, height: 844 };
const dot = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEklEQVR4nGNoaGjAihgGlwQA9QRgAQm9pRcAAAAASUVORK5CYII=";

const markdown = [
  "# Heading\n\nA paragraph with **strong**, *weak*, ~~old~~, `code` and [a link](https://example.com/).",
  "## Lists\n\n- one\n- two\n  1. three\n\n- [x] done\n- [ ] open",
  "> A quotation\n\n| left | right |\n|:---|---:|\n| 1 | 2 |",
  "```ts\nconst answer: number = 42; // a comment\nexport function say(text: string): void { console.log(`${text}`); }\n```",
  "Inline $a^2 + b^2$ and\n\n$$\\sum_{i=1}^n i = \\frac{n(n+1)}{2}$$",
  "A note.[^1]\n\n[^1]: The note.\n\n![remote](https://example.com/picture.png)\n\n---",
].join("\n\n");

/** conversation has everything that a transcript can show. */
const conversation = (title: string): NewSession => ({
  title,
  messages: [
    { role: "user", content: "Look at this", metadata: { attachments: [{ type: "image", data_url: dot }, { type: "image", url: "https://example.com/a.png" }] } },
    { role: "assistant", content: "", metadata: { reasoning_content: "First I look.\n\nThen I call.", tool_calls: [{ id: "c1", type: "function", function: { name: "weather", arguments: '{"city": "Ulm"}' } }, { id: "c2", type: "function", function: { name: "broken", arguments: "{}" } }] } },
    { role: "tool", content: '{"sky": "clear"}', metadata: { tool_call_id: "c1", tool_name: "weather" } },
    { role: "tool", content: "no such city", metadata: { tool_call_id: "c2", tool_name: "broken", is_error: true } },
    { role: "assistant", content: markdown, metadata: { model: "demo", incomplete: "cancelled" } },
    { role: "system", content: "A system message" },
  ],
});

/** The looks of each form. The first has all rules, the others only those of colours. */
const looks: Record<string, readonly Look[]> = {
  wide: [{ theme: "light" }, { theme: "dark" }, { theme: "dark", contrast: "more" }, { theme: "light", contrast: "more" }],
  narrow: [{ theme: "light" }, { theme: "dark" }],
};

/** clean checks a state of the page in every form and look. */
async function clean(page: Page, state: string): Promise<void> {
  const found: string[] = [];
  for (const [name, form] of Object.entries({ wide, narrow })) {
    await page.driver.setViewport(form);
    const all = page.forced ? palettes(page) : looks[name]!;
    for (const [i, look] of all.entries()) {
      await page.look(look, "reduce");
      await settle(page);
      const faults = [...(i ? [] : await page.driver.evaluate(brokenWords)), ...(await page.violations(...(i ? ["color-contrast"] : []))), ...(page.forced ? await page.driver.evaluate(unseen) : [])];
      found.push(...faults.map((fault) => `${state}, ${name}, ${Object.values(look).join(" ")}: ${fault}`));
    }
  }
  await page.driver.setViewport(wide);
  assert.deepEqual(found, []);
}

/** brokenWords returns the words of the page's own texts that continue on the next line. Long ones may. It runs in the page. */
function brokenWords(): string[] {
  const found: string[] = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT, (node) => (node.parentElement!.closest(".markdown, [data-test=message], script, style, code, kbd") ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT));
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    for (const { 0: word, index } of node.nodeValue!.matchAll(/[\p{L}\p{N}]{2,16}/gu)) {
      const range = document.createRange();
      range.setStart(node, index);
      range.setEnd(node, index + word.length);
      if (new Set([...range.getClientRects()].map(({ top }) => Math.round(top))).size > 1) found.push(`the word “${word}” is broken in “${node.nodeValue!.slice(0, 60)}”`);
    }
  }
  return found;
}

/** settle waits until no colour or place changes. */
const settle = (page: Page) => page.driver.evaluate(async () => {
  await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
  await Promise.allSettled(document.getAnimations().filter((one) => one.effect?.getComputedTiming().iterations !== Infinity).map((one) => one.finished));
});

const live = (page: Page) => page.until("live", () => document.querySelector('[data-test="connection"]')?.getAttribute("data-state") === "live");

async function someSessions(server: Server): Promise<void> {
  await server.session({ title: "Pinned", metadata: { pinned: true } });
  await server.session({ title: "Tagged", metadata: { tags: ["work", "home"] } });
  await server.session({ title: "A title that is much longer than the place that a list has for it, as titles are" });
  await server.session();
}

const states = (check: Check): void => {
  check("the first page, empty and with a list in groups", async ({ server, open }) => {
    const page = await open();
    await live(page);
    await clean(page, "no sessions");
    await someSessions(server);
    await page.shows("Pinned", "session-row");
    await page.until("all rows", () => document.querySelectorAll('[data-test="session-row"]').length >= 4);
    await clean(page, "sessions");
    await page.driver.setViewport(narrow);
    await page.click("drawer");
    await clean(page, "drawer");
  });

  check("a conversation with everything that it can show", async ({ server, open }) => {
    const page = await open(`/s/${await server.session(conversation("Everything"))}`, { tolerant: true });
    await page.shows("A system message");
    await page.driver.evaluate(() => document.querySelectorAll<HTMLElement>('[data-test="tool"] summary, [data-test="reasoning"] summary, [data-test="reasoning"] button[aria-expanded]').forEach((one) => one.click()));
    await page.shows("clear");
    await page.until("the formulas", () => document.querySelectorAll("math").length >= 2);
    await clean(page, "conversation");
  });

  check("a reply that streams, and messages that wait", async ({ server, open }) => {
    const session = await server.session({ script: { reasoning: "I think. ".repeat(20), text: markdown + " word".repeat(3000), chunks: 3000, rate: 30 } });
    const page = await open(`/s/${session}`);
    await page.send("Begin");
    await page.at("stop");
    await page.send("Waits");
    await page.at("queued");
    await clean(page, "streaming");
  });

  check("a reply that failed, and one that is tried again", async ({ server, open }) => {
    const failed = await server.session({ script: { status: 400, body: "The key is wrong." } });
    const page = await open(`/s/${failed}`);
    await page.send("Fail");
    await page.at("failure");
    await clean(page, "failure");
    const again = await server.session({ script: { status: 503 } });
    const other = await open(`/s/${again}`);
    await other.send("Try");
    await other.at("retry");
    await clean(other, "waiting for the next attempt");
    await server.cancel(again);
  });

  check("dialogs and menus", async ({ server, open }) => {
    await someSessions(server);
    const page = await open(`/s/${await server.session(conversation("Dialogs"))}`, { tolerant: true });
    await page.shows("A system message");
    for (const [keys, name] of [[["Control", "k"], "palette"], [["Control", ","], "theme"]] as const) {
      await page.press(...keys);
      await page.at(name);
      await clean(page, name);
      await page.press("Escape");
      await page.gone(name);
    }
    await page.click("page-menu");
    await page.at("menu");
    await page.press("Enter");
    await page.at("shortcuts");
    await clean(page, "shortcuts");
    await page.press("Escape");
    await page.click("session-menu");
    await page.at("menu");
    await clean(page, "session menu");
    await page.press("Escape");
  });

  check("choosing a model, and the settings of a chat", async ({ server, open }) => {
    const page = await open(`/s/${await server.session(conversation("Settings"))}`, { tolerant: true });
    await page.shows("A system message");
    await page.click("model-picker");
    await page.at("models");
    await page.at("model");
    await clean(page, "models");
    await page.press("Escape");
    await page.gone("models");
    await page.click("chat-settings");
    await page.at("chat-settings-panel");
    await page.at("setting");
    await clean(page, "chat settings");
  });

  check("a session that can be brought back after its deletion", async ({ server, open }) => {
    const page = await open(`/s/${await server.session({ title: "A chat about the weather in Ulm" })}`);
    await page.click("session-menu");
    await page.click("delete");
    await page.at("toast-action");
    await clean(page, "undo");
  });

  check("a page without its server", async ({ server, open }) => {
    const page = await open("/", { tolerant: true });
    await live(page);
    server.network.cut();
    await page.at("banner");
    await clean(page, "offline");
  });
};

const statesWithTokens = (check: Check): void => {
  check("signing in, and a token that may only read", async ({ server, open }) => {
    const { session_id: session } = await server.call<{ session_id: string }>("POST", "/sessions", { metadata: { title: "Shared" }, messages: conversation("").messages }, "open-sesame");
    const page = await open(`/s/${session}`, { tolerant: true });
    await page.at("token");
    await clean(page, "sign-in");
    await page.type("token", "wrong");
    await page.press("Enter");
    await page.until("the fault", () => document.querySelector('[data-test="sign-in"] [role="alert"], [data-test="sign-in"] .field-error'));
    await clean(page, "wrong token");
    await page.press("Escape");
    await page.at("sign-in-again");
    await clean(page, "signed out");
    await page.click("sign-in-again");
    await page.type("token", "look-only");
    await page.press("Enter");
    await page.shows("A system message");
    await page.at("banner");
    await clean(page, "read only");
  });
};

for (const forced of [false, true]) {
  const what = `accessibility${forced ? ", forced colours" : ""}`;
  suite(what, states, { forced, provider: { retry_on_status: { 503: [600] } } });
  suite(`${what}, with tokens`, statesWithTokens, { forced, config: { server: { auth_tokens: [{ name: "full", token: "open-sesame", scope: "full" }, { name: "read", token: "look-only", scope: "read" }] } } });
}
