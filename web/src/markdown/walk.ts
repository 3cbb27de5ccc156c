/** Walks over nodes. */
import type { BlockNode, Inline, InlineNode, ListItem, NoteNode } from "./nodes.ts";

/** inlinesOf yields the runs of inline content of a block, in the order of the text. */
export function* inlinesOf(node: BlockNode): Generator<Inline> {
  switch (node.type) {
    case "paragraph":
    case "heading":
      yield node.inline;
      break;
    case "quote":
    case "note":
      for (const child of node.children) yield* inlinesOf(child);
      break;
    case "list":
      for (const item of node.items) for (const child of item.children) yield* inlinesOf(child);
      break;
    case "table":
      yield* node.head;
      for (const row of node.rows) yield* row;
      break;
    default:
  }
}

type Again = (inline: Inline) => Inline;

/** resolve returns the node with each run of inline content replaced by again's. What does not change stays the same object. */
export function resolve(node: BlockNode, again: Again): BlockNode {
  switch (node.type) {
    case "paragraph":
    case "heading": {
      const inline = again(node.inline);
      return inline === node.inline ? node : { ...node, inline };
    }
    case "quote":
    case "note": {
      const children = resolveAll(node.children, (child) => resolve(child, again));
      return children === node.children ? node : { ...node, children };
    }
    case "list": {
      const items = resolveAll(node.items, (item) => resolveItem(item, again));
      return items === node.items ? node : { ...node, items };
    }
    case "table": {
      const head = resolveAll(node.head, again);
      const rows = resolveAll(node.rows, (row) => resolveAll(row, again));
      return head === node.head && rows === node.rows ? node : { ...node, head, rows };
    }
    default:
      return node;
  }
}

function resolveItem(item: ListItem, again: Again): ListItem {
  const children = resolveAll(item.children, (child) => resolve(child, again));
  return children === item.children ? item : { ...item, children };
}

function resolveAll<T>(list: readonly T[], change: (value: T) => T): readonly T[] {
  let changed = false;
  const result = list.map((value) => {
    const next = change(value);
    changed ||= next !== value;
    return next;
  });
  return changed ? result : list;
}

export interface Notes {
  readonly defined: ReadonlyMap<string, NoteNode>;
  readonly counts: ReadonlyMap<string, number>;
  /** Labels in the order of the numbers. */
  readonly order: readonly string[];
}

/** notesOf collects the footnotes of blocks. References inside notes come after those of the text. */
export function notesOf(blocks: readonly BlockNode[]): Notes {
  const defined = new Map<string, NoteNode>();
  for (const block of blocks) for (const note of definitionsIn(block)) if (!defined.has(note.label)) defined.set(note.label, note);
  const counts = new Map<string, number>();
  const order: string[] = [];
  const listed = new Set<string>();
  const list = (label: string) => {
    if (!listed.has(label)) order.push(label);
    listed.add(label);
  };
  const count = (label: string) => {
    list(label);
    counts.set(label, (counts.get(label) ?? 0) + 1);
  };
  for (const block of blocks) for (const label of referencesIn(block)) count(label);
  const followed = new Set<string>();
  const follow = () => {
    for (let i = 0; i < order.length; i++) {
      const label = order[i]!;
      if (followed.has(label)) continue;
      followed.add(label);
      for (const child of defined.get(label)?.children ?? []) for (const inner of referencesIn(child)) count(inner);
    }
  };
  follow();
  for (const label of defined.keys()) list(label);
  follow();
  return { defined, counts, order };
}

function* definitionsIn(node: BlockNode): Generator<NoteNode> {
  if (node.type === "note") yield node;
  if (node.type === "quote" || node.type === "note") for (const child of node.children) yield* definitionsIn(child);
  if (node.type === "list") for (const item of node.items) for (const child of item.children) yield* definitionsIn(child);
}

/** referencesIn yields the labels that a block refers to outside of definitions. */
function* referencesIn(node: BlockNode): Generator<string> {
  switch (node.type) {
    case "note":
      break;
    case "quote":
      for (const child of node.children) yield* referencesIn(child);
      break;
    case "list":
      for (const item of node.items) for (const child of item.children) yield* referencesIn(child);
      break;
    default:
      for (const inline of inlinesOf(node)) if (inline.lookups.length > 0) yield* labelsIn(inline.nodes);
  }
}

function* labelsIn(nodes: readonly InlineNode[]): Generator<string> {
  for (const node of nodes) {
    if (node.type === "noteRef") yield node.label;
    else if ("children" in node) yield* labelsIn(node.children);
  }
}
