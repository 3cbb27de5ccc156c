/**
 * Rules of the parser for LaTeX: $…$, $$…$$, \(…\) and \[…\].
 *
 * A formula never contains a blank line, has bounded size, and a dollar sign that may be a price is not a delimiter.
 */
import type { MarkdownIt, StateBlock, StateInline } from "markdown-it";

const maxFormula = 10_000;
const maxFormulaLines = 200;
const dollar = 0x24;
const backslash = 0x5c;

export function formulaPlugin(md: MarkdownIt): void {
  md.inline.ruler.before("escape", "formula", inlineFormula);
  md.block.ruler.before("fence", "formula", blockFormula, { alt: ["paragraph", "reference", "blockquote", "list"] });
}

/** mayOpenFormula reports whether a line of text may be the first of a display formula. */
export function mayOpenFormula(text: string): boolean {
  return /\$\$|\\\[/.test(text);
}

interface Delimiters {
  readonly open: string;
  readonly close: string;
  readonly display: boolean;
}

const delimiters: readonly Delimiters[] = [
  { open: "$$", close: "$$", display: true },
  { open: "\\[", close: "\\]", display: true },
  { open: "\\(", close: "\\)", display: false },
  { open: "$", close: "$", display: false },
];

function delimitersAt(src: string, pos: number): Delimiters | undefined {
  const code = src.charCodeAt(pos);
  if (code !== dollar && code !== backslash) return undefined;
  return delimiters.find((d) => src.startsWith(d.open, pos));
}

function escaped(src: string, pos: number): boolean {
  let count = 0;
  while (src.charCodeAt(pos - 1 - count) === backslash) count++;
  return count % 2 === 1;
}

/** Closers that a run of inline content is known not to have after a position, so that a search is not repeated. */
const missing = new WeakMap<StateInline, Map<string, number>>();

function findCloser(state: StateInline, close: string, from: number): number {
  const known = missing.get(state)?.get(close);
  if (known !== undefined && from >= known) return -1;
  const limit = Math.min(state.posMax, from + maxFormula);
  let at = state.src.indexOf(close, from);
  while (at >= 0 && at < limit && escaped(state.src, at)) at = state.src.indexOf(close, at + 1);
  if (at >= 0 && at + close.length <= limit) return at;
  if (at < 0) {
    const map = missing.get(state) ?? new Map<string, number>();
    missing.set(state, map.set(close, from));
  }
  return -1;
}

function inlineFormula(state: StateInline, silent: boolean): boolean {
  const { src, pos } = state;
  const d = delimitersAt(src, pos);
  if (!d) return false;
  const start = pos + d.open.length;
  const end = findCloser(state, d.close, start);
  if (end < 0) return false;
  const value = src.slice(start, end);
  // Without a letter or a digit it is more likely an escaped bracket.
  if (!/[\p{L}\p{N}]/u.test(value)) return false;
  if (d.open === "$" && !isDollarFormula(src, pos, end, value)) return false;
  if (!silent) push(state, value, d, src.slice(pos, end + d.close.length));
  state.pos = end + d.close.length;
  return true;
}

/** isDollarFormula separates formulas from prices, such as "$5 and $10", and from shell variables. */
function isDollarFormula(src: string, open: number, close: number, value: string): boolean {
  if (/\s/.test(value[0] ?? " ") || /\s/.test(value[value.length - 1] ?? " ")) return false;
  if (/[\p{L}\p{N}]/u.test(src[open - 1] ?? "")) return false;
  if (/[\p{L}\p{N}$]/u.test(src[close + 1] ?? "")) return false;
  return !(/^\d/.test(value) && /\s/.test(value) && !/[\\^_=+*/<>{}]/.test(value));
}

function push(state: StateInline | StateBlock, value: string, d: Delimiters, source: string): void {
  const token = state.push(d.display ? "formula_display" : "formula_inline", "math", 0);
  token.content = value;
  token.markup = source;
}

function blockFormula(state: StateBlock, startLine: number, endLine: number, silent: boolean): boolean {
  const start = state.bMarks[startLine]! + state.tShift[startLine]!;
  if (state.sCount[startLine]! - state.blkIndent >= 4) return false;
  const d = delimitersAt(state.src, start);
  if (!d?.display) return false;
  const bound = Math.min(endLine, startLine + maxFormulaLines);
  for (let line = startLine; line < bound; line++) {
    if (line > startLine && (state.isEmpty(line) || state.sCount[line]! < state.blkIndent)) return false;
    const from = line === startLine ? start + d.open.length : state.bMarks[line]! + state.tShift[line]!;
    const end = state.src.slice(from, state.eMarks[line]!).trimEnd();
    const at = end.indexOf(d.close);
    if (at < 0) continue;
    if (at !== end.length - d.close.length || escaped(end, at)) return false;
    return closeBlock(state, startLine, line, start, from + at, d, silent);
  }
  return false;
}

function closeBlock(
  state: StateBlock,
  startLine: number,
  line: number,
  start: number,
  end: number,
  d: Delimiters,
  silent: boolean,
): boolean {
  const first = start + d.open.length;
  const value =
    line === startLine
      ? state.src.slice(first, end)
      : state.src.slice(first, state.eMarks[startLine]!) +
        "\n" +
        state.getLines(startLine + 1, line, state.blkIndent, true) +
        state.src.slice(state.bMarks[line]! + state.tShift[line]!, end);
  if (value.trim() === "" || value.length > maxFormula) return false;
  if (silent) return true;
  push(state, value.trim(), d, d.open + value + d.close);
  const token = state.tokens[state.tokens.length - 1]!;
  token.block = true;
  token.map = [startLine, line + 1];
  state.line = line + 1;
  return true;
}
