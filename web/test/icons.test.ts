// The names of icons, which plugins use.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { icons } from "../src/view/parts/icons.ts";

test("docs/ui.md names the icons", () => {
  const page = readFileSync(new URL("../../docs/ui.md", import.meta.url), "utf8");
  const named = /The page has ([^.]*)\./.exec(page.replaceAll("\n", " "))?.[1] ?? "";
  assert.deepEqual([...named.matchAll(/`([\w-]+)`/g)].map(([, name]) => name), Object.keys(icons).sort());
});
