// What followers need of the log. `Connection` gives it over the network, `shared` from another tab.

import type { Readable } from "./store.ts"
import type { EventId, LogEvent } from "./types.ts"
import type { LoquatError } from "./problem.ts"

/** What a follower follows: one session, or what changes the list of sessions. */
export type Topic = { readonly session: string } | { readonly list: true }

export interface Listener {
  /** An event of the topic. Each comes once, in the order of the log. */
  event(event: LogEvent): void
  /** The log no longer has the events after the position. The follower loads a snapshot and follows again. */
  gone(): void
}

export interface EventLog {
  readonly state: Readable<ConnectionState>
  /**
   * Follows a topic from the event after `since`, until the returned function is called.
   * `resume` says that `since` is an event that was followed, not the cursor of a snapshot.
   */
  follow(topic: Topic, since: EventId, listener: Listener, resume?: boolean): () => void
  /**
   * Says that a session is about to be created and followed. If a list is followed, too, its events then come without
   * another connection, which takes as long as a call. Until it is followed, some events may come that nothing follows.
   */
  expectSession(): void
  /**
   * Reports that a call of a follower failed. While nothing is followed, the state shows this:
   * `waiting` with the time of the next attempt, otherwise `stopped`.
   */
  report(error: LoquatError, retryAt?: number): void
  /** Connects at once instead of at the time of the next attempt; also after it has stopped. */
  retryNow(): void
  /** Ends the connection for good. */
  close(): void
}

export interface ConnectionState {
  /**
   * - `idle`: nothing is followed
   * - `connecting`: the first attempt, or one after a connection that broke
   * - `live`: events come as they happen
   * - `waiting`: an attempt has failed; the next is at `retryAt`
   * - `stopped`: `error` says why; `retryNow` tries again
   */
  readonly status: "idle" | "connecting" | "live" | "waiting" | "stopped"
  /** How events come: as a stream, or by polling where something holds streams back. */
  readonly transport: "stream" | "poll"
  /** The time since which the status holds, in milliseconds since 1970. */
  readonly since: number
  /** The time of the next attempt. */
  readonly retryAt: number | undefined
  /** The failures in a row. */
  readonly failures: number
  /** Why the last attempt failed. */
  readonly error: LoquatError | undefined
}
