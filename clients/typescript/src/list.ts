// The fold of the list of sessions: loaded pages with the events after them applied.

import type { SessionQuery } from "./sessions.ts"
import type { EventId, LogEvent, SessionList, SessionSummary } from "./types.ts"

/** Which sessions a list has. Searches are not followed. */
export type ListFilter = Pick<SessionQuery, "agent_id" | "user" | "tag" | "pinned" | "archived">

export interface ListState {
  /** The sessions in the order of the list: pinned ones first, then the newest change first. */
  readonly sessions: readonly SessionSummary[]
  readonly filter: ListFilter
  /** The token of the next page; undefined if all sessions are loaded. */
  readonly next: string | undefined
  /** Sessions that changed and are not loaded, each with its last event. A first page that is newer has them. */
  readonly unknown: ReadonlyMap<string, EventId>
  readonly deleted: ReadonlySet<string>
  readonly cursor: EventId
}

/** Returns the state at the first page of a list. `cursor` is an event that is not newer than the page. */
export function fromPage(page: SessionList, filter: ListFilter, cursor: EventId): ListState {
  return { sessions: sorted(page.sessions), filter, next: page.next_page_token, unknown: new Map(), deleted: new Set(), cursor }
}

/** Returns the state with another page: the next one, or the first one again. Sessions that have changed since the page stay unknown. */
export function addPage(state: ListState, page: SessionList, first = false): ListState {
  const changed = (id: string) => page.cursor_event_id !== undefined && (state.unknown.get(id) ?? "") > page.cursor_event_id
  const byId = new Map(state.sessions.map((s) => [s.session_id, s]))
  for (const s of page.sessions) {
    const known = byId.get(s.session_id)
    if (!state.deleted.has(s.session_id) && !changed(s.session_id) && (!known || s.cursor_event_id > known.cursor_event_id)) byId.set(s.session_id, s)
  }
  const sessions = sorted([...byId.values()].filter((s) => matches(s, state.filter)))
  return { ...state, sessions, ...(first ? { unknown: new Map([...state.unknown].filter(([id]) => changed(id))) } : { next: page.next_page_token }) }
}

/** Returns the state after an event. */
export function foldList(state: ListState, event: LogEvent): ListState {
  if (event.event_id <= state.cursor) return state
  const next = apply(state, event)
  return { ...next, cursor: event.event_id }
}

function apply(state: ListState, e: LogEvent): ListState {
  const id = e.session_id
  const at = state.sessions.findIndex((s) => s.session_id === id), known = state.sessions[at]
  switch (e.type) {
    case "session_created": {
      if (known) return state
      const at = e.created_at ?? new Date().toISOString()
      return place(state, {
        session_id: id, agent_id: e.agent_id, ...(e.user === undefined ? {} : { user: e.user }), created_at: at, updated_at: at, metadata: {}, message_count: 0, cursor_event_id: e.event_id,
        ...(e.source_session_id ? { source_session_id: e.source_session_id } : {}),
      })
    }
    case "session_deleted": {
      const sessions = known ? state.sessions.filter((s) => s !== known) : state.sessions
      return { ...state, sessions, deleted: new Set(state.deleted).add(id) }
    }
    case "checkpoint": {
      if (!known) return withUnknown(state, e)
      if (e.event_id <= known.cursor_event_id) return state
      return place(state, {
        ...known, updated_at: e.updated_at ?? e.timestamp, cursor_event_id: e.event_id,
        ...(e.agent_id ? { agent_id: e.agent_id } : {}),
        ...(e.agent_id || e.metadata ? { metadata: e.metadata ?? {} } : {}),
        ...(e.message_count === undefined ? {} : { message_count: e.message_count }),
      })
    }
    case "request_started": {
      if (!known) return withUnknown(state, e)
      return e.steered_into ? state : replace(state, at, { ...known, active_request_id: e.request_id })
    }
    case "request_completed": {
      if (!known) return withUnknown(state, e)
      if (known.active_request_id !== e.request_id) return state
      const { active_request_id: _, ...ended } = known
      return replace(state, at, ended)
    }
    default: return state
  }
}

function withUnknown(state: ListState, e: LogEvent): ListState {
  return { ...state, unknown: new Map(state.unknown).set(e.session_id, e.event_id) }
}

function replace(state: ListState, index: number, session: SessionSummary): ListState {
  const sessions = state.sessions.slice()
  sessions[index] = session
  return { ...state, sessions }
}

// place puts a session where it belongs now, or takes it out if the filter does not select it any more.
function place(state: ListState, session: SessionSummary): ListState {
  const sessions = state.sessions.filter((s) => s.session_id !== session.session_id)
  if (!matches(session, state.filter)) return { ...state, sessions }
  let low = 0, high = sessions.length
  while (low < high) {
    const middle = (low + high) >> 1
    if (compare(sessions[middle]!, session) < 0) low = middle + 1
    else high = middle
  }
  sessions.splice(low, 0, session)
  return { ...state, sessions }
}

function matches({ agent_id, user, metadata }: SessionSummary, filter: ListFilter): boolean {
  const wanted = typeof filter.tag === "string" ? [filter.tag] : (filter.tag ?? [])
  const tags = Array.isArray(metadata.tags) ? metadata.tags : []
  return (filter.agent_id === undefined || agent_id === filter.agent_id)
    && (filter.user === undefined || user === filter.user)
    && (filter.pinned === undefined || (metadata.pinned === true) === filter.pinned)
    && (filter.archived === "any" || (metadata.archived === true) === (filter.archived ?? false))
    && wanted.every((tag) => tags.includes(tag))
}

const sorted = (sessions: readonly SessionSummary[]): SessionSummary[] => [...sessions].sort(compare)

/** Compares sessions as lists sort them. Changes of the same time are in the order of their events. */
export function compare(a: SessionSummary, b: SessionSummary): number {
  const pinned = Number(b.metadata.pinned === true) - Number(a.metadata.pinned === true)
  return pinned || compareTimes(b.updated_at, a.updated_at) || compareTexts(b.cursor_event_id, a.cursor_event_id) || compareTexts(b.session_id, a.session_id)
}

// compareTimes compares times in UTC to the last digit, which Date cannot hold.
function compareTimes(a: string, b: string): number {
  const [first, second] = [a, b].map((t) => t.slice(0, 19) + t.slice(20, -1).padEnd(9, "0"))
  return compareTexts(first!, second!)
}

const compareTexts = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0)
