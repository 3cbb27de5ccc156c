// What the model needs from the wire. wire/client.ts implements it with the SDK; tests
// implement it in memory.
import {
  ConnectionError, ProblemError,
  type ConnectionState, type FollowedList, type FollowedSession, type ListFilter, type Loquat, type LoquatError, type Outbox, type Readable, type Send as WireSend, type Snapshot,
} from "@loquat/client";

export interface CallOptions {
  readonly query?: Readonly<Record<string, string | number | boolean | undefined>>;
  readonly body?: unknown;
  /** The Idempotency-Key, which makes a repeat of the call safe. */
  readonly key?: string;
}

/** Problem is an error answer of the server, or a call without an answer, which has the code "connection". */
export type Problem = LoquatError;

export type Send = Omit<WireSend, "request_id">;
export type BusyMode = NonNullable<Send["on_busy"]>;

/** asProblem returns any thrown value as a Problem. */
export const asProblem = (thrown: unknown): Problem =>
  thrown instanceof ProblemError || thrown instanceof ConnectionError ? thrown : new ProblemError({ code: "internal", detail: thrown instanceof Error ? thrown.message : String(thrown) }, { status: 0 });

export interface Followed<T> extends Readable<T> {
  reload(): void;
  close(): void;
}

export interface FollowedPages extends Followed<FollowedList> {
  loadMore(): Promise<void>;
}

export interface Wire {
  /** The SDK, for typed calls. */
  readonly sdk: Loquat;
  readonly connection: Readable<ConnectionState>;
  readonly outbox: Pick<Outbox, "ready" | "get" | "subscribe" | "of" | "created" | "add" | "edit" | "withdraw" | "retry" | "retryNow" | "settle" | "clear">;
  /** Calls the API. It throws a Problem. */
  call<T>(method: string, path: string, options?: CallOptions): Promise<T>;
  /** Lets the outbox send: it is known whose messages it has. */
  begin(): void;
  /** hold sends nothing more until begin: another user may sign in. */
  hold(): void;
  /** Says that a session is about to be created and followed, so that its events come sooner. */
  expectSession(): void;
  /** Connects at once instead of after the pause, also after sign-in. */
  retryNow(): void;
  /** Follows a session, from a snapshot that a call has just returned if there is one. */
  session(id: string, snapshot?: Snapshot): Followed<FollowedSession>;
  sessions(filter: ListFilter): FollowedPages;
}

/** sessionPath returns the path of a session, or of something in it. */
export const sessionPath = (id: string, rest = ""): string => `/sessions/${encodeURIComponent(id)}${rest}`;
