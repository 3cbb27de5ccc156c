import assert from "node:assert/strict";
import { test } from "node:test";
import { MarkdownDocument } from "../../src/markdown/document.ts";
import * as deviations from "./deviations.ts";
import { type Example, commonMarkExamples, gfmExamples } from "./examples.ts";
import { htmlOf } from "./html.ts";

function passes(example: Example): boolean {
  const document = new MarkdownDocument();
  document.update(example.markdown);
  return htmlOf(document.blocks.map((block) => block.node)) === example.html;
}

function check(name: string, examples: readonly Example[], allowed: Readonly<Record<number, string>>): void {
  const failed = examples.filter((example) => !passes(example)).map((example) => example.number);
  const passed = examples.length - failed.length;
  console.log(`${name}: ${passed} of ${examples.length} examples (${((100 * passed) / examples.length).toFixed(1)} %)`);
  for (const number of failed) console.log(`  ${number}: ${allowed[number] ?? "NOT LISTED"}`);
  assert.deepEqual(failed, Object.keys(allowed).map(Number));
}

test("the examples of CommonMark 0.31 give its HTML", () => {
  assert.ok(commonMarkExamples.length > 600);
  check("CommonMark 0.31", commonMarkExamples, deviations.commonMark);
});

test("the examples of GitHub Flavored Markdown give its HTML", () => {
  assert.ok(gfmExamples.length > 600);
  check("GitHub Flavored Markdown 0.29", gfmExamples, deviations.gfm);
});
