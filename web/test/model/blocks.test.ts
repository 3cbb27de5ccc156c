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

test("quoted marks each line", () => {
  assert.equal(quoted("a\n\nb\n"), "> a\n>\n> b\n\n");
});
