/** Conversion of the parser's tokens to nodes. */
import { type Align, type BlockNode, type Inline, type InlineNode, type ListItem, codeRunLines } from "./nodes.ts";
import { dataImages } from "./url.ts";
import { type Definition, type Token, maxNesting, parseInline, unescapeText } from "./parser.ts";

/** Inline content longer than this is shown as plain text. Images whose bytes are in it do not count. */
const maxInline = 32_000;
/** Inline content with more characters that may open something is shown as plain text. Longer content may have fewer: each may cost its length. */
const maxDelimiters = 3_000;
const maxInlineDepth = 40;
const maxColumns = 100;

/** inlineOf parses one run of inline content. Its cost is bounded. */
export function inlineOf(content: string, definitions: ReadonlyMap<string, Definition>): Inline {
  const plain: Inline = { content, nodes: [{ type: "text", value: content }], lookups: [] };
  if (content.length > maxInline && content.replace(dataImages, "").length > maxInline) return plain;
  if (content.length > maxDelimiters && countDelimiters(content) * Math.max(content.length, maxInline) > maxDelimiters * maxInline) return plain;
  const { tokens, lookups } = parseInline(content, definitions);
  const nodes = inlineNodes(tokens);
  return nodes ? { content, nodes, lookups } : plain;
}

function countDelimiters(content: string): number {
  let count = 0;
  for (let i = 0; i < content.length; i++) if ("[]*_~`<!$\\&@".includes(content[i]!)) count++;
  return count;
}

/** inlineNodes returns null if the tokens nest too deeply. */
function inlineNodes(tokens: readonly Token[]): InlineNode[] | null {
  const root: InlineNode[] = [];
  const stack: InlineNode[][] = [root];
  for (const token of tokens) {
    const into = stack[stack.length - 1]!;
    if (token.nesting < 0) {
      stack.pop();
    } else if (token.nesting > 0) {
      if (stack.length > maxInlineDepth) return null;
      const children: InlineNode[] = [];
      into.push(openNode(token, children));
      stack.push(children);
    } else {
      const node = leafNode(token);
      if (node) into.push(node);
    }
  }
  return root;
}

function openNode(token: Token, children: InlineNode[]): InlineNode {
  switch (token.type) {
    case "em_open":
      return { type: "em", children };
    case "strong_open":
      return { type: "strong", children };
    case "s_open":
      return { type: "del", children };
    case "link_open":
      return {
        type: "link",
        href: attribute(token, "href"),
        title: attribute(token, "title"),
        auto: token.info === "auto",
        children,
      };
    default:
      throw new Error(`unknown token of the parser: ${token.type}`);
  }
}

function leafNode(token: Token): InlineNode | null {
  switch (token.type) {
    case "text":
      return token.content === "" ? null : { type: "text", value: token.content };
    case "code_inline":
      return { type: "code", value: token.content };
    case "softbreak":
      return { type: "softbreak" };
    case "hardbreak":
      return { type: "break" };
    case "html_inline":
      return { type: "html", value: token.content };
    case "image":
      return {
        type: "image",
        src: attribute(token, "src"),
        title: attribute(token, "title"),
        alt: textOf(token.children ?? []),
      };
    case "formula_inline":
    case "formula_display":
      return {
        type: "math",
        value: token.content,
        display: token.type === "formula_display",
        source: token.markup,
      };
    case "footnote_ref":
      return { type: "noteRef", label: (token.meta as { label: string }).label };
    default:
      throw new Error(`unknown token of the parser: ${token.type}`);
  }
}

function attribute(token: Token, name: string): string {
  const value = token.attrGet(name);
  return value === null || value === undefined ? "" : String(value);
}

/** textOf returns the text of an image's label. */
function textOf(tokens: readonly Token[]): string {
  let text = "";
  for (const token of tokens) {
    if (token.type === "softbreak" || token.type === "hardbreak") text += "\n";
    else if (token.type === "image") text += textOf(token.children ?? []);
    else text += token.content;
  }
  return text;
}

/** A Group is the tokens of one top-level block. */
export interface Group {
  readonly tokens: readonly Token[];
  /** The first line of the block, and the line after the last. */
  readonly start: number;
  readonly end: number;
}

export function groupsOf(tokens: readonly Token[]): Group[] {
  const groups: Group[] = [];
  let first = 0;
  let depth = 0;
  for (let i = 0; i < tokens.length; i++) {
    depth += tokens[i]!.nesting;
    if (depth > 0) continue;
    const lines = tokens[first]!.map;
    if (!lines) throw new Error(`the parser gave no lines for ${tokens[first]!.type}`);
    groups.push({ tokens: tokens.slice(first, i + 1), start: lines[0], end: lines[1] });
    first = i + 1;
  }
  return groups;
}

/** Source gives a converter the lines and the inline content of what is parsed. */
export interface Source {
  lines(start: number, end: number): string;
  inline(content: string): Inline;
}

/** blockOf returns the node of a top-level block, or null for one that shows nothing. */
export function blockOf(group: Group, source: Source): BlockNode | null {
  const converter = new Converter(group.tokens, source);
  const deep = !group.tokens[0]!.type.endsWith("list_open") && tooDeep(group.tokens);
  if (deep) return { type: "plain", value: source.lines(group.start, group.end) };
  return converter.block();
}

function tooDeep(tokens: readonly Token[]): boolean {
  return tokens.some((token) => token.level >= maxNesting - 2);
}

/** codeRuns splits code into runs of codeRunLines lines. */
function codeRuns(code: string): string[] {
  const runs: string[] = [];
  let start = 0;
  let lines = 0;
  for (let at = code.indexOf("\n"); at >= 0; at = code.indexOf("\n", at + 1)) {
    if (++lines % codeRunLines !== 0) continue;
    runs.push(code.slice(start, at + 1));
    start = at + 1;
  }
  if (start < code.length) runs.push(code.slice(start));
  return runs;
}

/** hasParagraph reports whether an item has a paragraph of its own. Only then does it matter whether a list is tight. */
export function hasParagraph(items: readonly ListItem[]): boolean {
  return items.some((item) => item.children.some((child) => child.type === "paragraph"));
}

/** fenceClosed reports whether a fence token has its closing line. */
export function fenceClosed(token: Token): boolean {
  const [start, end] = token.map!;
  let lines = token.content.endsWith("\n") || token.content === "" ? 0 : 1;
  for (let at = token.content.indexOf("\n"); at >= 0; at = token.content.indexOf("\n", at + 1)) lines++;
  return end - start - 1 - lines === 1;
}

class Converter {
  private at = 0;

  constructor(
    private readonly tokens: readonly Token[],
    private readonly source: Source,
  ) {}

  block(): BlockNode | null {
    const token = this.tokens[this.at++]!;
    switch (token.type) {
      case "paragraph_open":
        return { type: "paragraph", inline: this.inlineAndClose() };
      case "heading_open":
        return { type: "heading", level: Number(token.tag.slice(1)), inline: this.inlineAndClose() };
      case "blockquote_open":
        return { type: "quote", children: this.blocksUntil("blockquote_close") };
      case "footnote_reference_open":
        return {
          type: "note",
          label: (token.meta as { label: string }).label,
          children: this.blocksUntil("footnote_reference_close"),
        };
      case "bullet_list_open":
      case "ordered_list_open":
        return this.list(token);
      case "table_open":
        return this.table(token);
      case "fence":
        return { type: "code", info: unescapeText(token.info.trim()), runs: codeRuns(token.content), closed: fenceClosed(token) };
      case "code_block":
        return { type: "code", info: "", runs: codeRuns(token.content), closed: true };
      case "hr":
        return { type: "rule" };
      case "html_block":
        return { type: "html", value: token.content };
      case "formula_display":
        return { type: "math", value: token.content, source: token.markup };
      case "reference_definition":
        return null;
      default:
        throw new Error(`unknown token of the parser: ${token.type}`);
    }
  }

  private inlineAndClose(): Inline {
    const content = this.tokens[this.at]!.content;
    this.at += 2;
    return this.source.inline(content);
  }

  private blocksUntil(close: string): BlockNode[] {
    const level = this.tokens[this.at - 1]!.level;
    const nodes: BlockNode[] = [];
    while (!(this.tokens[this.at]!.type === close && this.tokens[this.at]!.level === level)) {
      const node = this.block();
      if (node) nodes.push(node);
    }
    this.at++;
    return nodes;
  }

  private list(open: Token): BlockNode {
    const items: ListItem[] = [];
    let tight = true;
    while (this.tokens[this.at]!.type === "list_item_open") {
      const first = this.at;
      const last = this.matching(first);
      if (this.tokens.slice(first, last).some((t) => t.type === "paragraph_open" && t.level === open.level + 2 && !t.hidden)) {
        tight = false;
      }
      items.push(open.level === 0 && tooDeep(this.tokens.slice(first, last)) ? this.plainItem(first, last) : this.item());
    }
    this.at++;
    const ordered = open.type === "ordered_list_open";
    const start = ordered ? Number(attribute(open, "start") || "1") : 1;
    return { type: "list", ordered, start, tight: tight || !hasParagraph(items), items };
  }

  private matching(first: number): number {
    const level = this.tokens[first]!.level;
    let at = first + 1;
    while (this.tokens[at]!.level !== level) at++;
    return at;
  }

  private plainItem(first: number, last: number): ListItem {
    this.at = last + 1;
    const [start, end] = this.tokens[first]!.map!;
    return { task: null, children: [{ type: "plain", value: this.source.lines(start, end) }] };
  }

  private item(): ListItem {
    this.at++;
    const open = this.tokens[this.at];
    const inline = this.tokens[this.at + 1];
    const task = open?.type === "paragraph_open" ? /^\[([ xX])\][ \t\n]+(?=\S)/.exec(inline!.content) : null;
    if (!task) return { task: null, children: this.blocksUntil("list_item_close") };
    this.at += 3;
    const first: BlockNode = { type: "paragraph", inline: this.source.inline(inline!.content.slice(task[0].length)) };
    const rest: BlockNode[] = [];
    const level = open!.level - 1;
    while (this.tokens[this.at]!.level !== level) {
      const node = this.block();
      if (node) rest.push(node);
    }
    this.at++;
    return { task: task[1] !== " ", children: [first, ...rest] };
  }

  private table(open: Token): BlockNode {
    const align: Align[] = [];
    const rows: Inline[][] = [];
    while (this.tokens[this.at]!.type !== "table_close") {
      const token = this.tokens[this.at++]!;
      if (token.type === "tr_open") rows.push([]);
      if (token.type === "th_open") align.push(alignOf(token));
      if (token.type === "inline") rows[rows.length - 1]!.push(this.source.inline(token.content));
    }
    this.at++;
    if (align.length > maxColumns) return { type: "plain", value: this.source.lines(open.map![0], open.map![1]) };
    const [head, ...body] = rows;
    return { type: "table", align, head: head ?? [], rows: body };
  }
}

function alignOf(token: Token): Align {
  const style = attribute(token, "style");
  return (["left", "center", "right"] as const).find((side) => style.endsWith(side)) ?? null;
}
