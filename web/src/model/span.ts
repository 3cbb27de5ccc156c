// Which rows of a long transcript are rendered.
import type { Row } from "./transcript.ts";

/** Span names the first and the last rendered row by their keys. Without a first one, the last page is rendered; without a last one, all rows to the end are. */
export interface Span {
  readonly first: string | null;
  readonly last: string | null;
}

/** Rows from `from` to before `to` are rendered. */
interface Limits {
  readonly from: number;
  readonly to: number;
}

/** The rows that are rendered at first, and those that are added when the user scrolls. */
export const page = 20;
/** How many rows are rendered at most, once the user has scrolled. */
export const most = 120;
/** The rows before one that the page jumps to. */
const before = 5;

export const atEnd: Span = { first: null, last: null };

export function limitsOf(rows: readonly Row[], span: Span): Limits {
  const last = span.last === null ? -1 : rows.findIndex((row) => row.key === span.last);
  const to = last < 0 ? rows.length : last + 1;
  const first = span.first === null ? -1 : rows.findIndex((row) => row.key === span.first);
  return { from: first >= 0 && first < to ? first : Math.max(0, to - page), to };
}

const spanOf = (rows: readonly Row[], from: number, to: number): Span => ({ first: rows[from]?.key ?? null, last: to >= rows.length ? null : rows[to - 1]!.key });

/** earlierSpan adds a page in front, and drops rows at the end that are too many. */
export function earlierSpan(rows: readonly Row[], { from, to }: Limits): Span {
  const next = Math.max(0, from - page);
  return spanOf(rows, next, Math.min(to, next + most));
}

/** laterSpan adds a page at the end, and drops rows in front that are too many. */
export function laterSpan(rows: readonly Row[], { from, to }: Limits): Span {
  const next = Math.min(rows.length, to + page);
  return spanOf(rows, Math.max(from, next - most), next);
}

/** spanAround returns the rows around one. */
export const spanAround = (rows: readonly Row[], at: number): Span => spanOf(rows, Math.max(0, at - before), Math.min(rows.length, at + page));

/** rowAt returns the position of the row that has the message at an index, or -1. */
export const rowAt = (rows: readonly Row[], index: number): number => rows.findIndex((row) => (row.kind === "message" ? row.index === index : row.from <= index && index <= row.to));
