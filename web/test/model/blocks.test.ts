import assert from "node:assert/strict";
import test from "node:test";
import { finishedUpTo, quoted, spoken } from "../../src/model/blocks.ts";

test("a block is finished by a blank line, but not inside of code", () => {
  assert.equal(finishedUpTo("one\n\ntwo"), 5);
  assert.equal(finishedUpTo("one\ntwo"), 0);
  assert.equal(finishedUpTo("```\na\n\nb"), 0);
  assert.equal(finishedUpTo("```\na\n\nb\n```\n\nend"), 14);
  assert.equal(finishedUpTo("````\n```\n\n````\n\nx"), "````\n```\n\n````\n\n".length);
});

test("each prefix finishes no more than the whole", () => {
  const text = "# A\n\npara\nmore\n\n~~~\ncode\n\ncode\n~~~\n\n- a\n- b\n\nend\n\n";
  let before = 0;
  for (let n = 0; n <= text.length; n++) {
    const end = finishedUpTo(text.slice(0, n), before);
    assert.equal(end, finishedUpTo(text.slice(0, n)), `prefix of ${n}`);
    assert.ok(end >= before);
    before = end;
  }
  assert.equal(before, text.length);
});

test("spoken leaves out the marks", () => {
  assert.equal(spoken("## Head\n\n**Bold** and `code`, [a link](https://example.com)\n\n- one\n- two\n\n```js\nlet a;\n```"), "Head\nBold and code, a link\none\ntwo\nlet a;");
});

test("spoken leaves out rules and the addresses of links and images", () => {
  for (const [text, said] of [
    ["a\n---\nb", "a\nb"], ["a\n \t|:-|-:| \nb", "a\nb"], ["a\n--\nb", "a\n--\nb"],
    ["![a *cat*](https://x.example/c.png) sat", "a *cat* sat"], ["[Tree](https://x.example/Tree_(plant)), [b](c)", "Tree, b"], ["[one\nword](x \"t\")", "one\nword"], ["a[0](b", "a[0](b"],
  ] as const) assert.equal(spoken(text), said);
});

test("spoken takes no longer for hostile texts than their length is worth", () => {
  const texts = [" ".repeat(20_000) + "x", "[".repeat(100_000), "[a](".repeat(25_000), "[a](b(c)".repeat(15_000), "![".repeat(50_000) + "](", "|".repeat(100_000) + "x", "[" + "a".repeat(100_000) + "]", "`".repeat(100_000), "1".repeat(100_000)];
  const began = process.cpuUsage();
  for (const text of texts) spoken(text);
  const { user } = process.cpuUsage(began);
  assert.ok(user < 2_000_000, `${user / 1000} ms of the processor`);
});

test("quoted marks each line", () => {
  assert.equal(quoted("a\n\nb\n"), "> a\n>\n> b\n\n");
});
