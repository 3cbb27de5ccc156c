// Which items of a long list are drawn.
import type { Entry } from "../../model/list.ts";

export type Item = { readonly kind: "head"; readonly key: string; readonly text: string } | { readonly kind: "row"; readonly key: string; readonly entry: Entry };

interface Placed {
  readonly item: Item;
  readonly top: number;
}

const headHeight = 36;
const margin = 400;

/** visibleItems returns the items within a margin of the visible part, and the rows to keep, each with its place. */
export function visibleItems(items: readonly Item[], rowHeight: number, top: number, height: number, kept: ReadonlySet<string>): { shown: Placed[]; total: number } {
  const shown: Placed[] = [];
  let at = 0;
  for (const item of items) {
    const size = item.kind === "head" ? headHeight : rowHeight;
    if ((at + size > top - margin && at < top + height + margin) || (item.kind === "row" && kept.has(item.entry.id))) shown.push({ item, top: at });
    at += size;
  }
  return { shown, total: at };
}
