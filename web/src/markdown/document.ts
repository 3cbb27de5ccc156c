/**
 * Parsing of a text that grows.
 *
 * A MarkdownDocument takes the text so far, again and again, and keeps the blocks. Only the tail is parsed again: what
 * follows the last place where the parse of earlier lines can no longer change. An open list, table or fence is cut as
 * well, so that the tail is its last item, its last row or its last lines.
 *
 * It promises: after update(text), blocks and notes equal those of a new document with the same text. A finished block
 * keeps its node (the same object), unless a definition that it refers to arrives or changes.
 */
import { type Group, type Source, blockOf, fenceClosed, groupsOf, hasParagraph, inlineOf } from "./convert.ts";
import { mayOpenFormula } from "./formula.ts";
import {
  type BlockNode,
  type CodeNode,
  type Inline,
  type ListItem,
  type ListNode,
  type NoteNode,
  type TableNode,
  codeRunLines,
} from "./nodes.ts";
import { type Definition, type Definitions, type Token, noteKey, parseBlocks } from "./parser.ts";
import { inlinesOf, notesOf, resolve } from "./walk.ts";

export interface Block {
  /** The position of the block in the document. It never changes. */
  readonly key: number;
  readonly node: BlockNode;
}

/** Note is a footnote with its number. */
export interface Note {
  readonly label: string;
  readonly number: number;
  /** How often the text refers to the note. */
  readonly references: number;
  readonly children: readonly BlockNode[];
}

/** An open list, table or fence whose first parts are done. The tail begins inside it. */
type Open =
  | { readonly type: "list"; readonly prefix: string; items: ListItem[]; loose: boolean; readonly first: ListNode }
  | { readonly type: "table"; readonly prefix: string; rows: TableNode["rows"][number][] }
  | { readonly type: "code"; readonly prefix: string; runs: string[] };

/** Nested is the result of one parse of the tail. */
interface Parsed {
  readonly src: string;
  readonly groups: Group[];
  readonly lineStarts: number[];
  /** Where src begins in the text, less the length of what was put before the tail. */
  readonly base: number;
  /** How many lines are complete. */
  readonly complete: number;
  /** The first line that may begin a formula which is not yet closed. */
  readonly formula: number;
}

export class MarkdownDocument {
  /** The blocks of the text. The array is replaced by each update that changes it. */
  blocks: readonly Block[] = [];
  /** The footnotes in the order of their numbers. */
  notes: readonly Note[] = [];
  /** How many blocks at the start of blocks are finished. */
  finished = 0;

  private raw = "";
  private text = "";
  private tailStart = 0;
  private done: Block[] = [];
  private open: Open | null = null;
  private readonly stable: Definitions = new Map();
  private definitions: Definitions = new Map();
  private tailLabels: string[] = [];
  /** Finished blocks by the labels that they looked up. */
  private readonly waiting = new Map<string, Set<number>>();
  private inlines = new Map<string, Inline>();

  /** update replaces the text. It is cheap if the new text begins with the old one. */
  update(text: string): void {
    if (text === this.raw) return;
    if (!text.startsWith(this.raw)) this.reset();
    this.append(text.slice(this.raw.length));
    this.raw = text;
  }

  private reset(): void {
    this.raw = this.text = "";
    this.tailStart = 0;
    this.done = [];
    this.open = null;
    this.stable.clear();
    this.definitions = new Map();
    this.tailLabels = [];
    this.waiting.clear();
    this.inlines = new Map();
  }

  private append(added: string): void {
    let rest = added;
    if (this.raw.endsWith("\r") && rest.startsWith("\n")) rest = rest.slice(1);
    this.text += rest.replace(/\r\n?/g, "\n").replace(/\0/g, "\uFFFD");
    const parsed = this.parse();
    this.define(parsed);
    const previous = this.inlines;
    this.inlines = new Map();
    const tail = this.convert(parsed, previous);
    this.advance(parsed, tail);
    this.number();
  }

  private parse(): Parsed & { references: Readonly<Record<string, Definition>>; tokens: Token[] } {
    const prefix = this.open?.prefix ?? "";
    const src = prefix + this.text.slice(this.tailStart);
    const { tokens, references } = parseBlocks(src);
    const lineStarts = [0];
    for (let at = src.indexOf("\n"); at >= 0; at = src.indexOf("\n", at + 1)) lineStarts.push(at + 1);
    const complete = lineStarts.length - 1;
    const base = this.tailStart - prefix.length;
    const formula = firstFormula({ src, lineStarts });
    return { src, groups: groupsOf(tokens), lineStarts, base, complete, formula, references, tokens };
  }

  // Definitions

  /** define takes the definitions of the tail, and resolves finished blocks again whose labels changed. */
  private define(parsed: { tokens: Token[]; references: Readonly<Record<string, Definition>> }): void {
    const old = this.definitions;
    const found: Definitions = new Map();
    for (const token of parsed.tokens) {
      const [label, definition] = definitionOf(token, parsed.references);
      if (label !== null && !this.stable.has(label) && !found.has(label)) found.set(label, definition);
    }
    const changed = new Set<string>();
    for (const label of this.tailLabels) if (!same(old.get(label), found.get(label)) && !this.stable.has(label)) changed.add(label);
    for (const [label, definition] of found) if (!same(old.get(label), definition)) changed.add(label);
    for (const label of this.tailLabels) if (!this.stable.has(label)) old.delete(label);
    for (const [label, definition] of found) old.set(label, definition);
    this.tailLabels = [...found.keys()];
    if (changed.size === 0) return;
    for (const [content, inline] of this.inlines) if (inline.lookups.some((l) => changed.has(l))) this.inlines.delete(content);
    this.resolveFinished(changed);
  }

  private resolveFinished(changed: ReadonlySet<string>): void {
    const affected = new Set<number>();
    for (const label of changed) for (const key of this.waiting.get(label) ?? []) affected.add(key);
    const again = (inline: Inline) =>
      inline.lookups.some((l) => changed.has(l)) ? inlineOf(inline.content, this.definitions) : inline;
    for (const key of affected) {
      const block = this.done[key];
      if (block) this.done[key] = { key, node: resolve(block.node, again) };
      else this.resolveOpen(again);
    }
  }

  private resolveOpen(again: (inline: Inline) => Inline): void {
    const open = this.open;
    if (open?.type === "list") {
      const node = resolve({ ...open.first, items: open.items }, again) as ListNode;
      open.items = [...node.items];
    } else if (open?.type === "table") {
      const node = resolve({ type: "table", align: [], head: [], rows: open.rows }, again) as TableNode;
      open.rows = [...node.rows];
    }
  }

  // Conversion

  private convert(parsed: Parsed, previous: ReadonlyMap<string, Inline>): (BlockNode | null)[] {
    const source: Source = {
      lines: (start, end) => linesOf(parsed, start, end),
      inline: (content) => {
        const inline = this.inlines.get(content) ?? previous.get(content) ?? inlineOf(content, this.definitions);
        this.inlines.set(content, inline);
        return inline;
      },
    };
    const nodes = parsed.groups.map((group) => blockOf(group, source));
    if (this.open && nodes[0]) nodes[0] = join(this.open, nodes[0]);
    return nodes;
  }

  // Boundaries

  /** advance finishes what can no longer change, and moves the start of the tail. */
  private advance(parsed: Parsed, nodes: (BlockNode | null)[]): void {
    const boundary = boundaryOf(parsed);
    const finishedGroups = boundary.groups;
    for (const node of nodes.slice(0, finishedGroups)) if (node) this.finish(node);
    if (finishedGroups > 0) {
      this.settle(parsed, boundary.line);
      this.open = null;
      this.tailStart = parsed.base + parsed.lineStarts[boundary.line]!;
    }
    const tail = nodes.slice(finishedGroups).filter((node) => node !== null);
    const group = parsed.groups[finishedGroups];
    this.blocks = [...this.done, ...tail.map((node, i) => ({ key: this.done.length + i, node }))];
    this.finished = this.done.length;
    const node = nodes[finishedGroups];
    // What follows a list, a table or a fence may still belong to it, so only the last block is cut.
    if (group && node && parsed.groups.length === finishedGroups + 1) this.cut(parsed, group, node);
  }

  private finish(node: BlockNode): void {
    const key = this.done.length;
    this.done.push({ key, node });
    this.await(key, node);
  }

  private await(key: number, node: BlockNode): void {
    for (const inline of inlinesOf(node)) {
      for (const label of inline.lookups) {
        const keys = this.waiting.get(label);
        if (keys) keys.add(key);
        else this.waiting.set(label, new Set([key]));
      }
    }
  }

  /** settle makes the definitions before a line of the tail permanent. */
  private settle(parsed: Parsed, line: number): void {
    for (const group of parsed.groups) {
      for (const token of group.tokens) {
        if (!token.map || token.map[0] >= line) continue;
        const label = labelOf(token);
        const definition = label === null ? undefined : this.definitions.get(label);
        if (label !== null && definition && !this.stable.has(label)) this.stable.set(label, definition);
      }
    }
    this.tailLabels = this.tailLabels.filter((label) => !this.stable.has(label));
  }

  /** cut finishes the first parts of an open list, table or fence. */
  private cut(parsed: Parsed, group: Group, node: BlockNode): void {
    if (node.type === "list") this.cutList(parsed, group, node);
    else if (node.type === "table") this.cutTable(parsed, group, node);
    else if (node.type === "code" && !node.closed) this.cutFence(parsed, group, node);
  }

  /** cutList finishes all items but the last of which the first line is complete. */
  private cutList(parsed: Parsed, group: Group, node: ListNode): void {
    const items = group.tokens.filter((t) => t.type === "list_item_open" && t.level === 1);
    let last = items.length - 1;
    while (last > 0 && items[last]!.map![0] >= Math.min(parsed.complete, parsed.formula)) last--;
    const dummies = this.open?.type === "list" ? 1 : 0;
    if (last <= dummies) return;
    const line = items[last]!.map![0];
    const token = group.tokens[0]!;
    // The item that is put before the tail has the largest indentation, so that no item becomes part of it.
    const prefix = "   " + (node.ordered ? "1" : "") + token.markup + " x\n";
    const before = this.open?.type === "list" ? this.open : null;
    // Whether the finished items are loose follows from their lines and the first line of the next item.
    const own = linesOf(parsed, dummies > 0 ? dummyLines : group.start, line + 1);
    const loose = (before?.loose ?? false) || looseList(prefix + own);
    const count = (before?.items.length ?? 0) + last - dummies;
    const items_ = before?.items ?? [];
    for (const item of node.items.slice(items_.length, count)) {
      items_.push(item);
      this.await(this.done.length, { ...node, items: [item] });
    }
    this.settle(parsed, line);
    const first: ListNode = before?.first ?? { ...node, items: [] };
    this.open = { type: "list", prefix, items: items_, loose, first };
    this.tailStart = parsed.base + parsed.lineStarts[line]!;
  }

  /** cutTable finishes all complete rows. */
  private cutTable(parsed: Parsed, group: Group, node: TableNode): void {
    const done = this.open?.type === "table" ? this.open.rows : [];
    const first = group.start + 2;
    const end = Math.min(group.end, parsed.complete, parsed.formula);
    if (end <= first) return;
    for (const row of node.rows.slice(done.length, done.length + end - first)) {
      done.push(row);
      this.await(this.done.length, { ...node, head: [], rows: [row] });
    }
    if (this.open?.type !== "table") this.await(this.done.length, { ...node, rows: [] });
    this.open = { type: "table", prefix: linesOf(parsed, group.start, first), rows: done };
    this.tailStart = parsed.base + parsed.lineStarts[end]!;
  }

  /** cutFence finishes all complete runs of lines. */
  private cutFence(parsed: Parsed, group: Group, node: CodeNode): void {
    const token = group.tokens[0]!;
    if (token.type !== "fence") return;
    const done = this.open?.type === "code" ? this.open.runs : [];
    const content = group.start + 1;
    const runs = Math.floor(Math.max(0, parsed.complete - content) / codeRunLines);
    if (runs === 0) return;
    done.push(...node.runs.slice(done.length, done.length + runs));
    this.open = { type: "code", prefix: linesOf(parsed, group.start, content), runs: done };
    this.tailStart = parsed.base + parsed.lineStarts[content + runs * codeRunLines]!;
  }

  // Footnotes

  /** number gives the footnotes their numbers: in the order of the first reference, then those without one. */
  private number(): void {
    if (!this.text.includes("[^")) {
      if (this.notes.length > 0) this.notes = [];
      return;
    }
    const { defined, counts, order } = notesOf(this.blocks.map((block) => block.node));
    const notes: Note[] = [];
    for (const label of order) {
      const note: NoteNode | undefined = defined.get(label);
      if (!note) continue;
      notes.push({ label, number: notes.length + 1, references: counts.get(label) ?? 0, children: note.children });
    }
    this.notes = notes;
  }
}

/** Lines of the item that is put before the tail of a list. */
const dummyLines = 1;

function linesOf(parsed: Pick<Parsed, "src" | "lineStarts">, start: number, end: number): string {
  return parsed.src.slice(parsed.lineStarts[start] ?? parsed.src.length, parsed.lineStarts[end] ?? parsed.src.length);
}

function looseList(src: string): boolean {
  const paragraph = parseBlocks(src).tokens.find((token) => token.type === "paragraph_open");
  return paragraph !== undefined && !paragraph.hidden;
}

/** join puts the finished parts of an open block before the node of its tail. */
function join(open: Open, tail: BlockNode): BlockNode {
  if (open.type === "list" && tail.type === "list") {
    const items = [...open.items, ...tail.items.slice(1)];
    return { ...open.first, tight: (!open.loose && tail.tight) || !hasParagraph(items), items };
  }
  if (open.type === "table" && tail.type === "table") return { ...tail, rows: [...open.rows, ...tail.rows] };
  if (open.type === "code" && tail.type === "code") return { ...tail, runs: [...open.runs, ...tail.runs] };
  throw new Error(`the tail of an open ${open.type} became a ${tail.type}`);
}

interface Boundary {
  readonly groups: number;
  readonly line: number;
}

const interrupting = /^(fence|bullet_list_open|ordered_list_open|blockquote_open|table_open|hr|html_block|heading_open)$/;

/**
 * boundaryOf returns how many blocks of the tail are finished, and the line at which the next begins.
 *
 * A block is finished when the next block has begun on a complete line, after a blank line. Without the blank line, the
 * next block must be of a kind that ends a paragraph, its second line must be complete too (it may make the first the
 * head of a table), and no formula may have begun (it may still swallow the lines up to a blank one).
 */
function boundaryOf(parsed: Parsed): Boundary {
  const { groups, complete, formula } = parsed;
  const last = groups[groups.length - 1];
  if (last && last.end <= complete && ends(last) && last.start < formula) return { groups: groups.length, line: last.end };
  for (let i = groups.length - 1; i > 0; i--) {
    const { start } = groups[i]!;
    if (start < complete && blank(parsed, start - 1)) return { groups: i, line: start };
    if (start + 1 < complete && start < formula && interrupts(groups[i]!)) return { groups: i, line: start };
  }
  return { groups: 0, line: 0 };
}

/** ends reports whether the last line of a block ends it, whatever follows. */
function ends({ tokens: [token] }: Group): boolean {
  if (token!.type === "fence") return fenceClosed(token!);
  return token!.type === "hr" || (token!.type === "heading_open" && token!.markup.startsWith("#"));
}

function interrupts({ tokens: [token] }: Group): boolean {
  if (token!.type === "heading_open") return token!.markup.startsWith("#");
  return interrupting.test(token!.type);
}

function blank(parsed: Pick<Parsed, "src" | "lineStarts">, line: number): boolean {
  return /^[ \t]*\n$/.test(linesOf(parsed, line, line + 1));
}

/** firstFormula returns the first line after the last blank line that may open a formula, or Infinity. */
function firstFormula(parsed: Pick<Parsed, "src" | "lineStarts">): number {
  if (!mayOpenFormula(parsed.src)) return Infinity;
  let first = Infinity;
  for (let line = parsed.lineStarts.length - 1; line >= 0; line--) {
    if (blank(parsed, line)) break;
    if (mayOpenFormula(linesOf(parsed, line, line + 1))) first = line;
  }
  return first;
}

function labelOf(token: Token): string | null {
  if (token.type === "reference_definition") return (token.meta as { label: string }).label;
  if (token.type === "footnote_reference_open") return noteKey((token.meta as { label: string }).label);
  return null;
}

const noteDefinition: Definition = { href: "", title: "" };

function definitionOf(token: Token, references: Readonly<Record<string, Definition>>): [string | null, Definition] {
  const label = labelOf(token);
  const target = label !== null && token.type === "reference_definition" ? references[label] : undefined;
  return [label, target ?? noteDefinition];
}

function same(a: Definition | undefined, b: Definition | undefined): boolean {
  return a?.href === b?.href && a?.title === b?.title;
}
