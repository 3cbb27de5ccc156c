/** Colours for code. Loaded when the first block of code in a known language is finished. */
import type { Root, RootContent } from "hast";
import { createLowlight } from "lowlight";
import type { Language } from "./languages.ts";

/** HighlightNode is text, or a part of the code with the classes of highlight.js. */
export type HighlightNode = string | { readonly classes: string; readonly children: readonly HighlightNode[] };

const lowlight = createLowlight();

/** highlight returns the coloured code. */
export function highlight({ name, grammar }: Language, code: string): readonly HighlightNode[] {
  if (!lowlight.registered(name)) lowlight.register(name, grammar);
  return nodesOf(lowlight.highlight(name, code));
}

function nodesOf(parent: Root | Extract<RootContent, { type: "element" }>): HighlightNode[] {
  const nodes: HighlightNode[] = [];
  for (const child of parent.children) {
    if (child.type === "text") nodes.push(child.value);
    else if (child.type === "element") nodes.push({ classes: classesOf(child.properties["className"]), children: nodesOf(child) });
  }
  return nodes;
}

function classesOf(names: unknown): string {
  return Array.isArray(names) ? names.join(" ") : "";
}
