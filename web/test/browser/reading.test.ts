// What users see and hear of replies, and what the page says when something is wrong.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { after } from "node:test";
import { suite } from "./suite.ts";

const everywhere = { looks: true } as const;

/** A server whose models say how long their context may be. The scripted backend's do not. */
const sized = createServer((_, answer) => void answer.setHeader("content-type", "application/json").end(JSON.stringify({ object: "list", data: [{ id: "demo", object: "model", context_length: 1000 }] })));
sized.listen(0, "127.0.0.1");
await once(sized, "listening");
after(() => sized.close());

const config = {
  providers: { sized: { provider: "reference_generic_compatible", model: "demo", base_url: `http://127.0.0.1:${(sized.address() as AddressInfo).port}/v1` } },
  agents: { default: { provider: "main" }, sized: { provider: "sized" } },
};

suite("reading", (check) => {
  check("a reply is announced block by block, and each block once", async ({ server, open }) => {
    const blocks = ["The first block has a few words.", "The second block is said after it.", "The third block ends the reply."];
    const session = await server.session({ script: { text: blocks.map((one) => one.replace("block", "**block**")).join("\n\n"), rate: 8 } });
    const page = await open(`/s/${session}`);
    await page.at("composer");
    assert.equal(await page.driver.$eval('[data-test="transcript"]', (box) => box.getAttribute("role")), "log");
    await page.driver.$eval('[data-test="announcer"]', (announcer) => {
      const heard: { text: string; running: boolean }[] = [];
      Object.assign(globalThis, { heard });
      new MutationObserver((all) => all.forEach(({ addedNodes }) => addedNodes.forEach((node) => heard.push({ text: node.textContent ?? "", running: document.querySelector('[aria-busy="true"]') !== null })))).observe(announcer, { childList: true });
    });
    assert.equal(await page.driver.$eval('[data-test="announcer"]', (box) => box.getAttribute("aria-live")), "polite");
    await page.send("Speak");
    await page.until("the last block", () => (globalThis as unknown as { heard: { text: string }[] }).heard.some(({ text }) => text.includes("ends the reply")));
    const heard = await page.driver.evaluate(() => (globalThis as unknown as { heard: { text: string; running: boolean }[] }).heard);
    assert.equal(heard.map(({ text }) => text).join("\n"), blocks.join("\n"));
    assert.ok(heard[0]!.running, "the first block is heard while the reply is written");
    assert.ok(heard.length > 1);
  }, everywhere);

  check("Arabic and Hebrew run from right to left, next to English", async ({ server, open }) => {
    const page = await open(`/s/${await server.session({ title: "שיחה על תה", messages: [{ role: "user", content: "كيف أصنع الشاي؟" }, { role: "assistant", content: "اغلِ الماء أولاً.\n\n- ماء\n- شاي\n\n```sh\nboil water\n```" }, { role: "user", content: "And in English?" }] })}`);
    await page.shows("And in English?", "message");
    const directions = await page.driver.evaluate(() => ({
      title: getComputedStyle(document.querySelector('[data-test="title"]')!).direction,
      question: getComputedStyle(document.querySelector('[data-index="0"] .text p')!).direction,
      item: getComputedStyle(document.querySelector('[data-index="1"] li p')!).direction,
      code: getComputedStyle(document.querySelector('[data-index="1"] pre')!).direction,
      english: getComputedStyle(document.querySelector('[data-index="2"] .text p')!).direction,
    }));
    assert.deepEqual(directions, { title: "rtl", question: "rtl", item: "rtl", code: "ltr", english: "ltr" });
    await page.type("composer", "شكراً");
    assert.equal(await page.driver.$eval('[data-test="composer"]', (box) => getComputedStyle(box).direction), "rtl");
  }, everywhere);

  check("the markers of a list are on the side where its text begins", async ({ server, open }) => {
    const content = "- ماء\n- English, in the same list\n- 42\n\n1. `sh`\n2. שלום\n\n> اقتباس\n\n- [ ] مهمة\n\n* left\n* عربي\n\nنص[^1]\n\n[^1]: حاشية";
    const page = await open(`/s/${await server.session({ messages: [{ role: "user", content: "؟" }, { role: "assistant", content }] })}`);
    await page.shows("English, in the same list", "message");
    const sides = await page.driver.$$eval('[data-index="1"] :is(ul, ol, blockquote)', (all) => all.map((box) => {
      const [first, last] = [box.firstElementChild!, box.lastElementChild!].map((item) => item.getBoundingClientRect());
      const { left, right } = box.getBoundingClientRect();
      const texts = [...box.querySelectorAll("p")].map((text) => {
        const range = document.createRange();
        range.selectNodeContents(text);
        const at = range.getBoundingClientRect();
        return at.left - left < right - at.right ? "left" : "right";
      });
      return { marker: first!.left - left > right - first!.right ? "left" : "right", even: first!.left === last!.left, texts: [...new Set(texts)].join() };
    }));
    const right = { marker: "right", even: true, texts: "right" };
    assert.deepEqual(sides, [right, right, right, right, { marker: "left", even: true, texts: "left" }, right]);
  }, everywhere);

  check("a diagram is drawn in its frame", async ({ server, open }) => {
    const page = await open(`/s/${await server.session({ messages: [{ role: "user", content: "Draw" }, { role: "assistant", content: "```mermaid\ngraph TD\n  A[One] --> B[Two]\n  B --> C[Three]\n  C --> D[Four]\n```" }] })}`);
    await page.driver.locator(".md-code-bar button[aria-expanded]").click();
    await page.until("the size of the drawing", () => Number(document.querySelector<HTMLIFrameElement>("iframe.md-diagram")?.height) > 200);
  });

  check("a gauge shows how full the context of the model is", async ({ server, open }) => {
    const metadata = { model: "demo", usage_prompt_tokens: 700, usage_completion_tokens: 150, usage_total_tokens: 850 };
    const { session_id: session } = await server.call<{ session_id: string }>("POST", "/sessions", { agent_id: "sized", messages: [{ role: "user", content: "Fill" }, { role: "assistant", content: "Filled", metadata }] });
    const page = await open(`/s/${session}`);
    const gauge = await page.at("gauge", ".full");
    assert.equal(await gauge.evaluate((one) => one.getAttribute("aria-label")), "Context filled: 850 of 1,000 tokens (85%)");
    await page.act(1, "details");
    await page.shows("850 of 1,000 tokens (85%)", "details-dialog");
    await page.shows("150", "details-dialog");
  }, everywhere);

  check("the next attempt is counted down, and the notice goes when it succeeds", async ({ server, open }) => {
    const session = await server.session({ script: { id: randomUUID(), text: "Now it answers.", attempts: [{ status: 503, body: "The model is loading." }, {}] } });
    const page = await open(`/s/${session}`);
    await page.send("Hello");
    await page.shows("Next attempt in 2 seconds", "retry");
    await page.shows("Next attempt in 1 second.", "retry");
    await page.shows("Now it answers.", "message");
    await page.gone("retry");
    await page.gone("stop");
    assert.equal(await page.count("failure"), 0);
  }, everywhere);

  check("a chat that is deleted elsewhere is left, and the page says why", async ({ server, open }) => {
    const session = await server.session({ title: "Goes", messages: [{ role: "user", content: "Soon gone" }] });
    const page = await open(`/s/${session}`);
    await page.shows("Soon gone", "message");
    await page.until("live", () => document.querySelector('[data-test="connection"]')?.getAttribute("data-state") === "live");
    await server.call("DELETE", `/sessions/${session}`);
    await page.shows("This chat was deleted in another place.", "toast");
    await page.at("empty");
    assert.equal(new URL(page.driver.url()).pathname, "/");
    await page.until("no row", (id) => !document.querySelector(`[data-session="${id}"]`), session);
  }, everywhere);
}, { config, provider: { retry_on_status: { 503: [2] } } });
