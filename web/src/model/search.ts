// The search in the texts of all sessions, while the user types.
import type { SearchHit } from "@loquat/client";
import { signal, type Signal } from "@preact/signals";
import { asProblem, type Problem, type Wire } from "./wire.ts";

export const debounceMs = 150;
const pageSize = 20;
/** The server's bound on the length of a query. */
export const maxQuery = 1000;

export interface Found {
  readonly status: "idle" | "searching" | "done" | "failed";
  readonly hits: readonly SearchHit[];
  /** The server has not indexed all messages yet. */
  readonly incomplete: boolean;
  /** There are further hits. */
  readonly more: boolean;
  readonly error?: Problem;
}

const nothing: Found = { status: "idle", hits: [], incomplete: false, more: false };

/** Search finds messages. A new query cancels the one before. */
export class Search {
  readonly found: Signal<Found> = signal(nothing);
  private query = "";
  private timer: ReturnType<typeof setTimeout> | undefined;
  private call: AbortController | undefined;

  /** session is the only session of the caller's token, or "". */
  constructor(
    private readonly wire: Wire,
    private readonly session: () => string,
  ) {}

  /** find searches for a query once the user pauses. The hits before stay until then. */
  find(text: string): void {
    const query = queryOf(text);
    if (query === this.query) return;
    this.close();
    this.query = query;
    if (!query) return void (this.found.value = nothing);
    const { error: _, ...before } = this.found.peek();
    this.found.value = { ...before, status: "searching" };
    this.timer = setTimeout(() => void this.load(query), debounceMs);
  }

  /** again repeats a search that failed. */
  again(): void {
    const query = this.query;
    this.query = "";
    this.find(query);
  }

  /** close ends the search. Its answer is not shown. */
  close(): void {
    clearTimeout(this.timer);
    this.call?.abort();
    this.query = "";
  }

  private async load(query: string): Promise<void> {
    const call = (this.call = new AbortController());
    const only = this.session();
    try {
      const { hits, incomplete, next_page_token } = await this.wire.sdk.search({ q: query, limit: pageSize, ...(only ? { session_id: only } : { archived: "any" }) }, { signal: call.signal });
      if (call.signal.aborted) return;
      this.found.value = { status: "done", hits: hits.filter((hit) => hit.index !== undefined), incomplete: incomplete === true, more: next_page_token !== undefined };
    } catch (thrown) {
      if (!call.signal.aborted) this.found.value = { ...nothing, status: "failed", error: asProblem(thrown) };
    }
  }
}

/** queryOf returns the query for what the user has typed so far. A word that may still grow finds all words that begin with it. */
export function queryOf(text: string): string {
  const query = text.trim().slice(0, maxQuery - 1);
  const quoted = (query.match(/"/g)?.length ?? 0) % 2 === 1;
  const growing = !quoted && /[\p{Script=Latin}\p{Script=Greek}\p{Script=Cyrillic}\p{N}]$/u.test(query) && !/\s$/.test(text);
  return growing ? `${query}*` : query;
}
