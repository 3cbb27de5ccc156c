// The log: windows by polling, and one connection of Server-Sent Events.

import { type CallOptions, type Http, type Query, Timer, readProblem } from "./http.ts"
import { ConnectionError } from "./problem.ts"
import { type SseEvent, SseParser } from "./sse.ts"
import type { EventId, EventList } from "./types.ts"

export interface EventQuery {
  /** Only events after this one. */
  since_id?: EventId | undefined
  /** Only events of this session, or of these. */
  session_id?: string | readonly string[] | undefined
  /** Also, of all other sessions, the events that change the list of sessions. */
  list?: boolean | undefined
  /** Only events of the sessions of this user; of the list alone if there is one. */
  user?: string | undefined
  request_id?: string | undefined
  /** Leaves the session out of events that carry one. */
  session?: "omit" | undefined
}

export interface WindowQuery extends EventQuery {
  /** How many events that match, before compaction: 1–5000. */
  limit?: number | undefined
  /** How many seconds to wait for the first event: 0–60. */
  wait?: number | undefined
}

export class Events {
  constructor(private readonly http: Http) {}

  /** Reads a window of the log. The id of its last event is the `since_id` of the next window. */
  poll(query: WindowQuery, options: CallOptions = {}): Promise<EventList> {
    const wait = (query.wait ?? 0) * 1000
    return this.http.json({ method: "GET", path: "/events", query: parameters(query), timeout: 30_000 + wait, ...options })
  }

  /** Returns the id of the newest event. */
  async latest(options: CallOptions = {}): Promise<EventId> {
    const { latest_event_id } = await this.http.json<EventList>({ method: "GET", path: "/events", ...options })
    if (latest_event_id === undefined) throw new ConnectionError("GET /events: the answer has no latest_event_id; is a Loquat server there?")
    return latest_event_id
  }

  /**
   * Opens one connection of Server-Sent Events and yields what comes, heartbeats included. It
   * ends when the connection does. `Feed` follows the log over any number of connections.
   * The time of the options is the longest silence. `onOpen` is called when the answer has begun.
   */
  async *stream(query: EventQuery, options: CallOptions & { onOpen?: () => void } = {}): AsyncGenerator<SseEvent, void, undefined> {
    const timer = new Timer(options.timeout ?? 45_000, options.signal)
    const call = { method: "GET", path: "/events/stream", signal: options.signal }
    try {
      const answer = await this.http.fetch(this.http.url(call.path, parameters(query)), {
        method: "GET", headers: { ...(await this.http.headers()), Accept: "text/event-stream" }, signal: timer.signal, credentials: this.http.credentials, cache: "no-store",
      })
      timer.restart()
      if (!answer.ok) throw await readProblem(answer, call, timer)
      if (!answer.body || !/^text\/event-stream\b/i.test(answer.headers.get("Content-Type") ?? "")) throw new NoStream()
      options.onOpen?.()
      const parser = new SseParser(), reader = answer.body.getReader()
      for (;;) {
        const { done, value } = await reader.read()
        if (done) return
        timer.restart()
        yield* parser.push(value)
      }
    } finally {
      timer.end()
    }
  }
}

/** The answer is not a stream: the server or a proxy does not support streams. */
export class NoStream extends ConnectionError {
  constructor() {
    super("GET /events/stream: the answer is not a stream")
  }
}

export function parameters(query: WindowQuery): Query {
  const { session_id, list, ...rest } = query
  return { ...rest, session_id: typeof session_id === "object" ? session_id.join(",") : session_id, list: list || undefined }
}
