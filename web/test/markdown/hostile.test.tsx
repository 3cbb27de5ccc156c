import { container, settled, sinks } from "./dom.ts";
import assert from "node:assert/strict";
import { test } from "node:test";
import { render } from "preact";
import { MarkdownDocument } from "../../src/markdown/document.ts";
import { loadFormulas } from "../../src/markdown/formula-view.tsx";
import { Markdown } from "../../src/markdown/markdown.tsx";
import { largePayloads, payloads } from "./payloads.ts";

await loadFormulas();

const forbidden = "script, style, link, meta, base, iframe, frame, object, embed, form, svg, video, audio, picture, source, template, input:not([type=checkbox])";

/** check fails if an element could run or request something. */
function check(root: HTMLElement, name: string): void {
  assert.equal(root.querySelector(forbidden), null, name);
  for (const element of root.querySelectorAll("*")) {
    for (const attribute of element.getAttributeNames()) {
      const value = element.getAttribute(attribute)!;
      assert.doesNotMatch(attribute, /^on|^srcdoc$|^srcset$|^xlink|^formaction$|^action$/, name);
      if (attribute === "href") assert.match(value, /^(https?:\/\/|mailto:|#)/, name);
      if (attribute === "src") assert.match(value, /^data:image\/(png|jpeg|gif|webp);base64,[\w+/=]*$/, name);
      if (attribute === "style") assert.doesNotMatch(value, /url|image|expression/i, name);
      if (attribute === "id") assert.match(value, /^P\d+-\d+-note-\d+$/, name);
    }
  }
}

test("no payload runs or requests anything", async () => {
  assert.ok(payloads.length + largePayloads.length >= 50);
  for (const { name, text } of payloads) {
    const root = container();
    render(<Markdown text={text} />, root);
    await settled();
    check(root, name);
    // The same while it arrives, in every state that a reader may see.
    const growing = container();
    for (let end = 1; end <= Math.min(text.length, 300); end++) {
      render(<Markdown text={text.slice(0, end)} />, growing);
      check(growing, name);
    }
    for (const element of [root, growing]) render(null, element), element.remove();
  }
  assert.deepEqual(sinks, []);
  console.log(`${payloads.length} payloads: 0 executions, 0 requests`);
});

test("no payload takes long", () => {
  const slow: [number, string][] = [];
  for (const { name, text } of [...payloads, ...largePayloads]) {
    const start = performance.now();
    new MarkdownDocument().update(text);
    const once = performance.now() - start;
    const document = new MarkdownDocument();
    const growing = performance.now();
    for (let i = 1; i <= 20; i++) document.update(text.slice(0, Math.floor((text.length * i) / 20)));
    slow.push([once, name], [(performance.now() - growing) / 20, name + ", in 20 steps, each"]);
  }
  slow.sort((a, b) => b[0] - a[0]);
  for (const [ms, name] of slow.slice(0, 8)) console.log(`${ms.toFixed(0).padStart(6)} ms  ${name}`);
  // Generous, because the machine may be busy: what is quadratic here takes minutes.
  assert.ok(slow[0]![0] < 5_000, `${slow[0]![1]} took ${slow[0]![0].toFixed(0)} ms`);
});

test("all of a hostile text is shown", async () => {
  for (const { name, text } of largePayloads) {
    const document = new MarkdownDocument();
    document.update(text);
    assert.ok(document.blocks.length > 0 || document.notes.length > 0, name);
  }
  const root = container();
  render(<Markdown text={"> ".repeat(200) + "deep\n\n" + "- ".repeat(200) + "deeper"} />, root);
  await settled();
  assert.match(root.textContent ?? "", /deep.*deeper/s);
});
