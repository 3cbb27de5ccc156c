/** Node types of parsed Markdown. Nodes are never changed after they are made, so a view may compare them by identity. */

export type InlineNode =
  | { readonly type: "text"; readonly value: string }
  | { readonly type: "code"; readonly value: string }
  | { readonly type: "html"; readonly value: string }
  | { readonly type: "break" }
  | { readonly type: "softbreak" }
  | { readonly type: "em" | "strong" | "del"; readonly children: readonly InlineNode[] }
  | {
      readonly type: "link";
      readonly href: string;
      readonly title: string;
      /** True for a URL or an address that is its own text. */
      readonly auto: boolean;
      readonly children: readonly InlineNode[];
    }
  | { readonly type: "image"; readonly src: string; readonly title: string; readonly alt: string }
  | { readonly type: "math"; readonly value: string; readonly display: boolean; readonly source: string }
  | { readonly type: "noteRef"; readonly label: string };

/** Inline is a run of inline content: its source, its nodes, and the labels of definitions its nodes depend on. */
export interface Inline {
  readonly content: string;
  readonly nodes: readonly InlineNode[];
  /** Labels of link definitions and footnotes that were looked up, found or not. */
  readonly lookups: readonly string[];
}

export type Align = "left" | "center" | "right" | null;

export interface ListItem {
  /** Null unless the item is a task. */
  readonly task: boolean | null;
  readonly children: readonly BlockNode[];
}

export type BlockNode =
  | { readonly type: "paragraph"; readonly inline: Inline }
  | { readonly type: "heading"; readonly level: number; readonly inline: Inline }
  | CodeNode
  | { readonly type: "quote"; readonly children: readonly BlockNode[] }
  | ListNode
  | TableNode
  | { readonly type: "rule" }
  | { readonly type: "html"; readonly value: string }
  | { readonly type: "math"; readonly value: string; readonly source: string }
  | NoteNode
  /** Source that is shown as it is, because it nests too deeply or is too large. */
  | { readonly type: "plain"; readonly value: string };

export interface CodeNode {
  readonly type: "code";
  readonly info: string;
  /** The code in runs of lines; joined they are the whole. Every run but the last has codeRunLines lines. */
  readonly runs: readonly string[];
  /** False while a fence is not yet closed. */
  readonly closed: boolean;
}

export interface ListNode {
  readonly type: "list";
  readonly ordered: boolean;
  readonly start: number;
  readonly tight: boolean;
  readonly items: readonly ListItem[];
}

export interface TableNode {
  readonly type: "table";
  readonly align: readonly Align[];
  readonly head: readonly Inline[];
  readonly rows: readonly (readonly Inline[])[];
}

/** NoteNode is the definition of a footnote. It shows nothing where it stands. */
export interface NoteNode {
  readonly type: "note";
  readonly label: string;
  readonly children: readonly BlockNode[];
}

export const codeRunLines = 64;

/** languageOf returns the first word of a fence's info string in lower case. */
export function languageOf(info: string): string {
  return (/^[^\s{,]*/.exec(info.trim())?.[0] ?? "").toLowerCase().slice(0, 40);
}
