/** Colours for code. Loaded when the first block of code in a known language is finished. */
import type { Root, RootContent } from "hast";
import { createLowlight } from "lowlight";
import { loadLanguage } from "./languages.ts";

/** HighlightNode is text, or a part of the code with the classes of highlight.js. */
export type HighlightNode = string | { readonly classes: string; readonly children: readonly HighlightNode[] };

const lowlight = createLowlight();

/** highlight returns the coloured code, or null for an unknown language. */
export async function highlight(language: string, code: string): Promise<readonly HighlightNode[] | null> {
  const loaded = await loadLanguage(language);
  if (!loaded) return null;
  if (!lowlight.registered(loaded.name)) lowlight.register(loaded.name, loaded.grammar);
  return nodesOf(lowlight.highlight(loaded.name, code));
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
