// Checks rules of the client that the compiler does not know: no text becomes markup, no
// view calls the SDK, and the model knows no DOM.
import { readFileSync, readdirSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const web = dirname(fileURLToPath(import.meta.url));
const source = join(web, "src");

const rules = [
  { in: /./, not: /\b(innerHTML|outerHTML|insertAdjacentHTML|dangerouslySetInnerHTML|createContextualFragment|document\.write|eval)\b|\bnew Function\b/, why: "turns text into markup or code" },
  { in: /^view\//, not: /from "@loquat\/client"/, except: /import type /, why: "a view calls the model, not the SDK" },
  { in: /^model\//, not: /\b(document|window|localStorage)\.|from "preact"|from "\.\.\/view\/(?!parts\/icons)/, why: "the model knows no page" },
];

let faults = 0;
for (const name of readdirSync(source, { recursive: true }).filter((name) => /\.tsx?$/.test(name))) {
  const lines = readFileSync(join(source, name), "utf8").split("\n");
  lines.forEach((line, i) => {
    if (/^\s*(\/\/|\*|\/\*)/.test(line)) return;
    for (const rule of rules) {
      if (!rule.in.test(name) || !rule.not.test(line) || rule.except?.test(line)) continue;
      console.error(`${relative(process.cwd(), join(source, name))}:${i + 1}: ${rule.why}: ${line.trim()}`);
      faults++;
    }
  });
}
process.exitCode = faults ? 1 : 0;
