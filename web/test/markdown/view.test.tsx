import { container, settled, shape, sinks } from "./dom.ts";
import fc from "fast-check";
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { render } from "preact";
import { loadFormulas } from "../../src/markdown/formula-view.tsx";
import { Markdown, type MarkdownProps } from "../../src/markdown/markdown.tsx";
import { allExamples } from "./examples.ts";

await loadFormulas();
after(() => assert.deepEqual(sinks, [], "text was turned into markup"));

function show(text: string, props: Partial<MarkdownProps> = {}, into = container()): HTMLElement {
  render(<Markdown text={text} {...props} />, into);
  return into;
}

/** shown waits until the whole texts are shown, and returns their trees without the ids, which differ by message. */
async function shown(...into: HTMLElement[]): Promise<string[]> {
  await settled(1);
  return into.map((element) => JSON.stringify(shape(element)).replace(/P\d+-\d+/g, "id"));
}

test("a text that grew is shown as the same nodes as the whole text", async () => {
  let coloured = false;
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.constantFrom(...allExamples), { minLength: 1, maxLength: 6 }),
      fc.constantFrom("", "```js\nconst a = 1;\n```"),
      fc.array(fc.nat(1_000), { maxLength: 6 }),
      async (parts, code, cuts) => {
        const text = [...parts, code].join("\n");
        const grown = container();
        for (const cut of cuts.map((c) => c % (text.length + 1)).sort((a, b) => a - b)) show(text.slice(0, cut), {}, grown);
        show(text, {}, grown);
        const whole = show(text);
        // The colours of a language are loaded when its code is first shown, and come to both texts then.
        let [a, b] = await shown(grown, whole);
        for (let i = 0; i < 200 && a !== b; i++) [a, b] = await shown(grown, whole);
        assert.equal(a, b);
        coloured ||= a!.includes("class=hljs-");
        for (const element of [grown, whole]) render(null, element), element.remove();
      },
    ),
    { numRuns: 150 },
  );
  assert.ok(coloured, "no code had colours");
});

test("finished blocks keep their elements while the text grows", async () => {
  const text = "# Title\n\nfirst *paragraph*\n\n- one\n- two\n\n|a|\n|-|\n|1|\n\n```js\ncode()\n```\n\nlast";
  const into = show(text);
  await settled();
  const before = [...into.querySelectorAll("h3, p, ul, li, table, tr, pre, code")];
  for (let i = 1; i <= 50; i++) show(text + " word".repeat(i), {}, into);
  await settled();
  for (const element of before) assert.ok(into.contains(element), `${element.outerHTML} was replaced`);
  assert.match(into.textContent ?? "", /last( word){50}/);
});

test("an open list, table and fence keep the elements of their finished parts", async () => {
  for (const [start, more, selector] of [
    ["- one\n- two\n", "- more\n", "li"],
    ["|a|b|\n|-|-|\n|1|2|\n", "|3|4|\n", "tr"],
    ["```\n" + "line\n".repeat(130), "line\n", ".md-run"],
  ] as const) {
    const into = show(start);
    const before = [...into.querySelectorAll(selector)].slice(0, -1);
    assert.ok(before.length > 0);
    for (let i = 1; i <= 100; i++) show(start + more.repeat(i), {}, into);
    await settled();
    for (const element of before) assert.ok(into.contains(element), `${selector} was replaced`);
  }
});

test("headings move below those of the page", () => {
  assert.equal(show("# a").querySelector("h3")?.textContent, "a");
  assert.equal(show("# a", { headingShift: 0 }).querySelector("h1")?.textContent, "a");
  const deep = show("###### a").querySelector("h6");
  assert.equal(deep?.getAttribute("aria-level"), "8");
});

test("line ends are shown as such only on request", () => {
  assert.equal(show("a\nb").querySelectorAll("br").length, 0);
  assert.equal(show("a\nb", { lineEnds: true }).querySelectorAll("br").length, 1);
});

test("tables have a name, can be scrolled by keyboard, and keep their alignment without style attributes", () => {
  const into = show("| Name | Price |\n|:-----|------:|\n| a | 1 |");
  const region = into.querySelector("[role=region]");
  assert.equal(region?.getAttribute("aria-label"), "Table with the columns Name, Price");
  assert.equal(region?.getAttribute("tabindex"), "0");
  assert.equal(into.querySelectorAll("td")[1]?.className, "md-right");
  assert.equal(into.querySelectorAll("[style]").length, 0);
});

test("tasks are disabled checkboxes with a name", () => {
  const boxes = [...show("- [ ] open\n- [x] closed").querySelectorAll("input")];
  assert.deepEqual(boxes.map((box) => [box.checked, box.disabled, box.getAttribute("aria-label")]), [[false, true, "Not done"], [true, true, "Done"]]);
});

test("links lead only to http, https and mailto, in a new tab, and show where", () => {
  const into = show("[a](https://example.org/x \"t\") <me@example.org> www.example.org [b](/local) [c](ftp://example.org) [d](#x)");
  const links = [...into.querySelectorAll("a")];
  assert.deepEqual(links.map((link) => link.getAttribute("href")), ["https://example.org/x", "mailto:me@example.org", "http://www.example.org/"]);
  for (const link of links) {
    assert.equal(link.getAttribute("rel"), "noopener noreferrer nofollow");
    assert.equal(link.getAttribute("target"), "_blank");
  }
  assert.equal(links[0]!.getAttribute("title"), "t\nhttps://example.org/x");
  assert.equal(into.querySelectorAll(".md-blocked").length, 3);
});

test("a link whose text names another place says where it leads", () => {
  for (const [text, place] of [
    ["[https://bank.example](https://evil.example/)", "evil.example"],
    ["[bank.example](https://evil.example/)", "evil.example"],
    ["[www.bank.example/login](https://bank.example.evil.example)", "bank.example.evil.example"],
    ["[sign in](https://b\u0430nk.example)", "xn--bnk-6cd.example"],
    ["[https://bank.example](https://bank.example@evil.example/)", "evil.example"],
    ["[\u202Eelpmaxe.knab](https://evil.example)", "evil.example"],
    ["[me@bank.example](mailto:you@evil.example)", "you@evil.example"],
  ] as const) {
    assert.match(show(text).querySelector(".md-target")?.textContent ?? "none", new RegExp(`leads to ${place.replace(/\./g, "\\.")}\\)`), text);
  }
  for (const text of ["[docs](https://example.org)", "https://www.example.org/a", "[www.example.org](https://example.org)", "me@example.org"]) {
    assert.equal(show(text).querySelector(".md-target"), null, text);
  }
});

test("following a link asks first", () => {
  const asked: string[] = [];
  const into = show("[a](https://example.org/)", { onLeave: (url) => asked.push(url) > 0 });
  const click = new MouseEvent("click", { bubbles: true, cancelable: true });
  into.querySelector("a")!.dispatchEvent(click);
  assert.deepEqual(asked, ["https://example.org/"]);
  assert.equal(click.defaultPrevented, true);
});

test("images from elsewhere load only after a click", async () => {
  const into = show("![a cat](https://img.example/cat.png)");
  assert.equal(into.querySelector("img"), null);
  const button = into.querySelector("button")!;
  assert.equal(button.textContent, "a catLoad image from img.example");
  button.click();
  await settled();
  const image = into.querySelector("img")!;
  assert.equal(image.getAttribute("src"), "https://img.example/cat.png");
  assert.equal(image.getAttribute("referrerpolicy"), "no-referrer");
  assert.equal(image.alt, "a cat");
  show("![a cat](https://other.example/cat.png)", {}, into);
  await settled();
  assert.equal(into.querySelector("img"), null, "consent for one image was taken for another");
});

test("images in the text and of the session are shown", () => {
  assert.ok(show("![x](data:image/png;base64,iVBORw0KGgo=)").querySelector("img"));
  assert.equal(show("![x](data:image/svg+xml;base64,PHN2Zz4=)").querySelector("img"), null);
  const asset = (src: string) => (src.startsWith("asset:") ? "/assets/" + src.slice(6) : null);
  assert.equal(show("![x](asset:1)", { asset }).querySelector("img")?.getAttribute("src"), "/assets/1");
});

test("a large image in a text is shown, and long text with it is still plain", () => {
  const src = `data:image/png;base64,${"ABcd+/09".repeat(200_000)}==`;
  for (const text of [`![x](${src})`, `See ![x](<${src}> "a title") here`, `[![x](${src})](https://example.com)`]) {
    const into = show(text);
    assert.equal(into.querySelector("img")?.getAttribute("src"), src);
    assert.ok(into.textContent!.length < 100, "no base64 is shown");
  }
  const plain = show(`![x](${src}) ` + "word ".repeat(7_000));
  assert.equal(plain.querySelector("img"), null);
});

test("code shows its language, can be copied, wrapped, and gets colours when it is finished", async () => {
  const copied: string[] = [];
  Object.defineProperty(navigator, "clipboard", { value: { writeText: async (text: string) => void copied.push(text) }, configurable: true });
  const into = show("```js\nconst a = 1;\n```\n");
  assert.equal(into.querySelector(".md-code-language")?.textContent, "js");
  into.querySelector<HTMLElement>(".md-copy")!.click();
  await settled();
  assert.deepEqual(copied, ["const a = 1;\n"]);
  assert.equal(into.querySelector("[role=status]")?.textContent, "Copied");
  into.querySelector<HTMLElement>("[aria-pressed]")!.click();
  await settled();
  assert.ok(into.querySelector("pre.md-wrap"));
  for (let i = 0; i < 100 && !into.querySelector(".hljs-keyword"); i++) await settled();
  assert.equal(into.querySelector(".hljs-keyword")?.textContent, "const");
  assert.equal(into.querySelector("code")?.textContent, "const a = 1;\n");
});

test("formulas become MathML, prices stay text, and a wrong formula shows its source", async () => {
  const into = show("Price $5 and $10. Euler: $e^{i\\pi} = -1$ and \\(x\\)\n\n$$\n\\frac{1}{2}\n$$\n\nwrong: $\\frac{1$");
  await settled();
  assert.equal(into.querySelectorAll("math").length, 3);
  assert.match(into.textContent ?? "", /Price \$5 and \$10\./);
  assert.equal(into.querySelector(".md-failed")?.textContent, "$\\frac{1$");
  assert.ok(into.querySelector("mfrac"));
});

test("footnotes are numbered by their first reference, and ids differ by message", async () => {
  const text = "x[^b] y[^a] z[^b]\n\n[^a]: first\n[^b]: second\n[^c]: never";
  const into = show(text);
  await settled();
  assert.deepEqual([...into.querySelectorAll("sup")].map((sup) => sup.textContent), ["1", "2", "1"]);
  const notes = [...into.querySelectorAll(".md-notes li")];
  assert.deepEqual(notes.map((note) => note.querySelector("p")?.textContent), ["second", "first", "never"]);
  const both = container();
  render([<Markdown key={1} text={text} />, <Markdown key={2} text={text} />], both);
  const ids = [...both.querySelectorAll("[id]")].map((element) => element.id);
  assert.equal(ids.length, 6);
  assert.equal(new Set(ids).size, 6);
});

test("a diagram is drawn in a sandboxed frame, on request", async () => {
  const into = show("```mermaid\ngraph TD; A-->B\n```\n");
  assert.equal(into.querySelector("iframe"), null);
  into.querySelector<HTMLElement>("[aria-expanded]")!.click();
  await settled();
  const frame = into.querySelector("iframe")!;
  assert.equal(frame.getAttribute("sandbox"), "allow-scripts");
  assert.equal(frame.getAttribute("src"), "/frame/mermaid.html");
});
