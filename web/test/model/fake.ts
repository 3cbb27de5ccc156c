// A wire in memory, for tests of the model.
import { ConnectionError, type ConnectionState, type FollowedList, type FollowedSession, Loquat, type OutboxEntry, ProblemError, type Readable } from "@loquat/client";
import type { CallOptions, Followed, FollowedPages, Wire } from "../../src/model/wire.ts";

export class Value<T> implements Readable<T> {
  private readonly listeners = new Set<(value: T) => void>();
  constructor(private value: T) {}
  get = (): T => this.value;
  subscribe = (listener: (value: T) => void): (() => void) => {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  };
  set(value: T): void {
    this.value = value;
    for (const listener of [...this.listeners]) listener(value);
  }
}

export interface Call {
  readonly method: string;
  readonly path: string;
  readonly body: unknown;
  /** The state that the session must have. */
  readonly match?: string | null;
}

export class FakeWire {
  readonly connection = new Value<ConnectionState>({ status: "live", transport: "stream", since: 0, retryAt: undefined, failures: 0, error: undefined });
  readonly calls: Call[] = [];
  readonly added: { sessionId: string; send: unknown; create: unknown; files: unknown; ifMatch: unknown }[] = [];
  /** Whether the outbox may send. */
  begun = false;
  /** How often a session was expected. */
  expected = 0;
  /** What adding to the outbox fails with. */
  full: Error | undefined;
  readonly entries = new Value<readonly OutboxEntry[]>([]);
  readonly lists: Value<FollowedList>[] = [];
  readonly sessionsOf = new Map<string, Value<FollowedSession>>();
  readonly closed: string[] = [];
  /** The calls of the SDK go through the same answers. */
  readonly sdk = new Loquat({ fetch: async (url, init) => {
    const { pathname } = new URL(String(url), "http://test");
    const answer = await this.call(init?.method ?? "GET", pathname, { body: JSON.parse(String(init?.body ?? "null")) as unknown }, new Headers(init?.headers).get("If-Match")).catch((thrown: unknown) => thrown);
    if (answer instanceof ConnectionError) throw new TypeError("lost");
    return answer instanceof ProblemError ? Response.json({ code: answer.code, detail: answer.message }, { status: answer.status }) : Response.json(answer);
  }, retries: 0, baseURL: "http://test" });
  answers: Record<string, unknown> = {};

  readonly outbox = {
    ready: Promise.resolve(),
    get: this.entries.get,
    subscribe: this.entries.subscribe,
    created: () => undefined,
    of: (sessionId: string) => this.entries.get().filter((entry) => entry.sessionId === sessionId),
    add: async (sessionId: string, send: unknown, options: { create?: unknown; files?: unknown; ifMatch?: unknown } = {}) => {
      if (this.full) throw this.full;
      this.added.push({ sessionId, send, create: options.create, files: options.files, ifMatch: options.ifMatch });
      return { id: "r", sessionId } as OutboxEntry;
    },
    withdraw: async () => true,
    settle: () => {},
    clear: async () => {},
  };

  async call(method: string, path: string, { body }: CallOptions = {}, match: string | null = null): Promise<unknown> {
    this.calls.push({ method, path, body, match });
    const answer = this.answers[`${method} ${path}`];
    if (answer === undefined) throw new ProblemError({ code: "not_found", detail: `no answer to ${method} ${path}` }, { status: 404 });
    if (answer instanceof Error) throw answer;
    return typeof answer === "function" ? (answer as (body: unknown) => unknown)(body) : answer;
  }

  hold(): void {
    this.begun = false;
  }

  begin(): void {
    this.begun = true;
  }

  expectSession(): void {
    this.expected++;
  }

  retryNow(): void {
    this.calls.push({ method: "RETRY", path: "", body: undefined });
  }

  session(id: string): Followed<FollowedSession> {
    const value = new Value<FollowedSession>({ status: "loading", state: undefined, error: undefined });
    this.sessionsOf.set(id, value);
    return Object.assign(value, { reload: () => {}, close: () => void this.closed.push(id) });
  }

  sessions(): FollowedPages {
    const value = new Value<FollowedList>({ status: "loading", list: undefined, more: false, error: undefined });
    this.lists.push(value);
    return Object.assign(value, { reload: () => {}, close: () => {}, loadMore: async () => {} });
  }

  get wire(): Wire {
    return this as unknown as Wire;
  }
}
