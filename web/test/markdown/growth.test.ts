import fc from "fast-check";
import assert from "node:assert/strict";
import { test } from "node:test";
import { MarkdownDocument } from "../../src/markdown/document.ts";
import { inlinesOf } from "../../src/markdown/walk.ts";
import { allExamples } from "./examples.ts";

/** grow updates a document with each prefix, and checks that finished blocks stay the same objects. */
function grow(text: string, cuts: Iterable<number>): MarkdownDocument {
  const document = new MarkdownDocument();
  for (const cut of [...cuts].sort((a, b) => a - b)) step(document, text.slice(0, cut));
  step(document, text);
  return document;
}

function step(document: MarkdownDocument, text: string): void {
  const before = document.blocks.slice(0, document.finished);
  document.update(text);
  assert.ok(document.finished >= before.length, "a finished block is open again");
  for (const [i, block] of before.entries()) {
    if (document.blocks[i]!.node === block.node) continue;
    const lookups = [...inlinesOf(block.node)].flatMap((inline) => inline.lookups);
    assert.ok(lookups.length > 0, `block ${i} was made again, although it refers to nothing`);
  }
}

function checkGrowth(text: string, cuts: Iterable<number>): void {
  const grown = grow(text, cuts);
  const whole = new MarkdownDocument();
  whole.update(text);
  assert.deepEqual(grown.blocks, whole.blocks);
  assert.deepEqual(grown.notes, whole.notes);
}

test("each example gives the same blocks at every split", () => {
  let splits = 0;
  for (const text of allExamples) {
    for (let cut = 0; cut < text.length; cut++, splits++) checkGrowth(text, [cut]);
    checkGrowth(text, Array(text.length).keys());
  }
  console.log(`${allExamples.length} texts, ${splits} splits`);
});

test("a large image in a text gives the same blocks at every split around it", () => {
  const image = `data:image/png;base64,${"ABcd".repeat(20_000)}==`;
  const text = `- See ![a](${image}) and ![b](<${image}> "c")\n\n![a](${image}) *end*\n\nlast`;
  const edges = [...text.matchAll(/data:|,A|=|\)|>|"|\*|\n/g)].flatMap(({ index }) => [index, index + 1]);
  checkGrowth(text, edges);
  for (const cut of edges) checkGrowth(text, [cut]);
});

const between = fc.constantFrom("", "\n", "\n\n", " ", "  ", "    ", "> ", "- ");
const examples = fc
  .array(fc.tuple(fc.constantFrom(...allExamples), between), { maxLength: 10 })
  .map((parts) => parts.flat().join(""));
const marks = fc
  .array(
    fc.constantFrom(
      ..."-*+>#|`~$\\[]()!:=_<&1 a\t".split(""),
      "\n", "\n", "\n", "\n\n", "  ", "    ", "```", "~~~", "---", "|-|", "|--|--|\n", "| a | b |\n", "- ", "1. ", "2) ", "> ", "[a]: /b\n", "[a]", "'t'",
      "[^a]", "[^a]: ", "$$", "\\[", "\\]", "<!--", "-->", "<div>", "</div>", "\r", "\0",
    ),
    { maxLength: 60 },
  )
  .map((parts) => parts.join(""));

function property(texts: fc.Arbitrary<string>, runs: number): void {
  fc.assert(
    fc.property(texts, fc.array(fc.nat(2_000), { maxLength: 12 }), fc.boolean(), (text, cuts, each) => {
      checkGrowth(text, each ? Array(text.length).keys() : cuts.map((cut) => cut % (text.length + 1)));
    }),
    { numRuns: runs },
  );
}

test("random joined examples give the same blocks at random splits", () => property(examples, Number(process.env["MARKDOWN_RUNS"] ?? 1_500)));

test("random marks give the same blocks at random splits", () => property(marks, Number(process.env["MARKDOWN_RUNS"] ?? 3_000)));

test("a replaced text gives the blocks of the new text", () => {
  fc.assert(
    fc.property(fc.array(examples, { minLength: 2, maxLength: 4 }), (texts) => {
      const document = new MarkdownDocument();
      for (const text of texts) document.update(text);
      const whole = new MarkdownDocument();
      whole.update(texts[texts.length - 1]!);
      assert.deepEqual(document.blocks, whole.blocks);
      assert.deepEqual(document.notes, whole.notes);
    }),
    { numRuns: 200 },
  );
});

test("the parts of an open list, table and fence stay the same objects", () => {
  const list = new MarkdownDocument();
  list.update("- one\n- two\n- three\n");
  const first = list.blocks[0]!.node;
  list.update("- one\n- two\n- three\n- four\n- fi");
  const second = list.blocks[0]!.node;
  assert.ok(first.type === "list" && second.type === "list");
  assert.equal(second.items.length, 5);
  assert.equal(second.items[0], first.items[0]);
  assert.equal(second.items[1], first.items[1]);

  const table = new MarkdownDocument();
  table.update("|a|\n|-|\n|1|\n|2|\n");
  const before = table.blocks[0]!.node;
  table.update("|a|\n|-|\n|1|\n|2|\n|3|\n");
  const after = table.blocks[0]!.node;
  assert.ok(before.type === "table" && after.type === "table");
  assert.equal(after.rows[0], before.rows[0]);
  assert.equal(after.rows[1], before.rows[1]);
});

test("a definition that comes later changes only the blocks that refer to it", () => {
  const document = new MarkdownDocument();
  const text = "plain\n\nsee [foo]\n\nother\n\nlast\n\n";
  document.update(text);
  const before = [...document.blocks];
  document.update(text + "[foo]: https://example.org\n\nend");
  assert.equal(document.blocks[0]!.node, before[0]!.node);
  assert.notEqual(document.blocks[1]!.node, before[1]!.node);
  assert.equal(document.blocks[2]!.node, before[2]!.node);
});
