// Sessions and what belongs to them.

import { type CallOptions, type ChangeOptions, type Fetch, type Http, type Query, pathOf } from "./http.ts"
import type {
  AlternativeList, AlternativeMessages, Asset, CancelResult, DeleteResult, EventId, ForkOptions, ImportReport, MessagePage, MessagePatch,
  MessageResult, NewMessage, NewSession, Queue as QueueList, QueuedPatch, QueuedSend, Request, Role, SearchHit, SearchResult, Send, SendResult,
  SessionList, SessionPatch, SessionSummary, Snapshot, SwitchResult,
} from "./types.ts"

export interface SessionQuery {
  /** Words that the title or a message has. */
  q?: string
  agent_id?: string
  /** Only sessions of this user. A token of scope `user` does not need it. */
  user?: string
  tag?: string | readonly string[]
  pinned?: boolean
  archived?: boolean | "any"
  /** How many sessions a page has: 1–200. */
  limit?: number
  page_token?: string
}

export interface SearchQuery {
  q: string
  in?: ("text" | "tool" | "reasoning") | readonly ("text" | "tool" | "reasoning")[]
  session_id?: string
  agent_id?: string
  /** Only sessions of this user. A token of scope `user` does not need it. */
  user?: string
  tag?: string | readonly string[]
  archived?: boolean | "any"
  role?: Role
  model?: string
  since?: string
  before?: string
  limit?: number
  page_token?: string
}

/** A file that is imported, or an image that is uploaded. */
export type Upload = Blob | ArrayBuffer | Uint8Array

export interface ImportOptions extends CallOptions {
  /** Called with the bytes that were sent. Only browsers report progress. */
  onProgress?: Progress | undefined
}

export class Sessions {
  constructor(private readonly http: Http) {}

  /** Loads one page of the list: pinned sessions first, then the newest change first. */
  page(query: SessionQuery = {}, options: CallOptions = {}): Promise<SessionList> {
    return this.http.json({ method: "GET", path: "/sessions", query: { ...query }, ...options })
  }

  /** Yields the sessions of all pages. The pages are loaded when they are needed. */
  async *list(query: SessionQuery = {}, options: CallOptions = {}): AsyncGenerator<SessionSummary, void, undefined> {
    for (let page = await this.page(query, options); ; page = await this.page({ ...query, page_token: page.next_page_token }, options)) {
      yield* page.sessions
      if (!page.next_page_token) return
    }
  }

  get(sessionId: string, options: CallOptions = {}): Promise<Snapshot> {
    return this.http.json({ method: "GET", path: pathOf`/sessions/${sessionId}`, tagged: true, ...options })
  }

  create(session: NewSession = {}, options: ChangeOptions = {}): Promise<Snapshot> {
    return this.http.json({ method: "POST", path: "/sessions", json: session, keyed: true, tagged: true, ...options })
  }

  /** Merges a patch of `agent_id` and `metadata`. A null in the metadata removes a key. */
  patch(sessionId: string, patch: SessionPatch, options: ChangeOptions = {}): Promise<Snapshot> {
    return this.http.json({ method: "PATCH", path: pathOf`/sessions/${sessionId}`, json: patch, keyed: true, ...options })
  }

  delete(sessionId: string, options: ChangeOptions = {}): Promise<void> {
    return this.http.json({ method: "DELETE", path: pathOf`/sessions/${sessionId}`, keyed: true, ...options })
  }

  /** Copies the messages up to and including `up_to_index` into a new session. */
  fork(sessionId: string, fork: ForkOptions = {}, options: ChangeOptions = {}): Promise<Snapshot> {
    return this.http.json({ method: "POST", path: pathOf`/sessions/${sessionId}/fork`, json: fork, keyed: true, tagged: true, ...options })
  }

  /** Returns the session as a file: the answer, whose body is the file. */
  export(sessionId: string, format: "json" | "markdown" | "html" = "json", options: CallOptions = {}): Promise<Response> {
    return this.http.response({ method: "GET", path: pathOf`/sessions/${sessionId}/export`, query: { format }, ...options })
  }

  /** The address of an export, for a link that downloads it. */
  exportURL(sessionId: string, format: "json" | "markdown" | "html" = "json"): string {
    return this.http.url(pathOf`/sessions/${sessionId}/export`, { format })
  }

  /** Imports the sessions in a file. The call is not repeated. */
  async import(file: Upload | string, query: { new_ids?: boolean; agent_id?: string } = {}, options: ImportOptions = {}): Promise<ImportReport> {
    const { onProgress, ...rest } = options
    const path = "/sessions/import", headers = { "Content-Type": "application/octet-stream" }
    return this.http.json({ method: "POST", path, query, body: file, headers, timeout: 600_000, ...rest, ...(await withProgress(onProgress)) })
  }
}

export class Messages {
  constructor(private readonly http: Http) {}

  /** Loads messages of one snapshot: `from` and `limit`, or the `last` ones. `at` is the `cursor_event_id` of the first page. */
  page(sessionId: string, query: { from?: number; limit?: number; last?: number; at?: EventId } = {}, options: CallOptions = {}): Promise<MessagePage> {
    return this.http.json({ method: "GET", path: pathOf`/sessions/${sessionId}/messages`, query, ...options })
  }

  /** Appends a message. No reply is requested: see `send`. */
  append(sessionId: string, message: NewMessage, options: ChangeOptions = {}): Promise<MessageResult> {
    return this.http.json({ method: "POST", path: pathOf`/sessions/${sessionId}/messages`, json: message, keyed: true, ...options })
  }

  modify(sessionId: string, index: number, patch: MessagePatch, options: ChangeOptions = {}): Promise<MessageResult> {
    return this.http.json({ method: "PATCH", path: pathOf`/sessions/${sessionId}/messages/${index}`, json: patch, keyed: true, ...options })
  }

  /** Deletes all of these messages, or none. */
  delete(sessionId: string, indices: readonly number[], options: ChangeOptions = {}): Promise<DeleteResult> {
    return this.http.json({ method: "DELETE", path: pathOf`/sessions/${sessionId}/messages`, json: { indices }, keyed: true, ...options })
  }
}

export class Requests {
  constructor(private readonly http: Http) {}

  /** Requests a reply. A `request_id` of your own makes it safe to repeat for as long as the session exists. */
  send(sessionId: string, send: Send = {}, options: ChangeOptions = {}): Promise<SendResult> {
    return this.http.json({ method: "POST", path: pathOf`/sessions/${sessionId}/send`, json: send, keyed: true, ...options })
  }

  get(requestId: string, options: CallOptions = {}): Promise<Request> {
    return this.http.json({ method: "GET", path: pathOf`/requests/${requestId}`, ...options })
  }

  /** Stops a request that runs or waits. On one that has ended it has no effect. */
  cancel(requestId: string, options: CallOptions = {}): Promise<CancelResult> {
    return this.http.json({ method: "POST", path: pathOf`/requests/${requestId}/cancel`, keyed: true, ...options })
  }
}

/** The sends that wait on a session. */
export class Queue {
  constructor(private readonly http: Http) {}

  get(sessionId: string, options: CallOptions = {}): Promise<QueueList> {
    return this.http.json({ method: "GET", path: pathOf`/sessions/${sessionId}/queue`, ...options })
  }

  /** Gives all that wait another order. */
  order(sessionId: string, requestIds: readonly string[], options: ChangeOptions = {}): Promise<QueueList> {
    return this.http.json({ method: "PUT", path: pathOf`/sessions/${sessionId}/queue`, json: { request_ids: requestIds }, keyed: true, ...options })
  }

  patch(sessionId: string, requestId: string, patch: QueuedPatch, options: ChangeOptions = {}): Promise<QueuedSend> {
    return this.http.json({ method: "PATCH", path: pathOf`/sessions/${sessionId}/queue/${requestId}`, json: patch, keyed: true, ...options })
  }
}

/** What regenerated and edited messages were. */
export class Alternatives {
  constructor(private readonly http: Http) {}

  list(sessionId: string, query: { index?: number } = {}, options: CallOptions = {}): Promise<AlternativeList> {
    return this.http.json({ method: "GET", path: pathOf`/sessions/${sessionId}/alternatives`, query, ...options })
  }

  get(sessionId: string, alternativeId: string, options: CallOptions = {}): Promise<AlternativeMessages> {
    return this.http.json({ method: "GET", path: pathOf`/sessions/${sessionId}/alternatives/${alternativeId}`, ...options })
  }

  /** Puts an alternative in place. */
  switch(sessionId: string, alternativeId: string, options: ChangeOptions = {}): Promise<SwitchResult> {
    return this.http.json({ method: "POST", path: pathOf`/sessions/${sessionId}/alternatives/${alternativeId}/switch`, keyed: true, ...options })
  }

  delete(sessionId: string, alternativeId: string, options: ChangeOptions = {}): Promise<void> {
    return this.http.json({ method: "DELETE", path: pathOf`/sessions/${sessionId}/alternatives/${alternativeId}`, keyed: true, ...options })
  }
}

export interface UploadOptions extends ChangeOptions {
  name?: string | undefined
  /** Called with the bytes that were sent. Only browsers report progress. */
  onProgress?: Progress | undefined
}

export class Assets {
  constructor(private readonly http: Http) {}

  /** Stores an image. The type of a Blob has to be that of its bytes, or empty. */
  async upload(sessionId: string, image: Upload, options: UploadOptions = {}): Promise<Asset> {
    const { name = (image as { name?: string }).name, onProgress, ...rest } = options
    const path = pathOf`/sessions/${sessionId}/assets`, query: Query = { name: name || undefined }
    const headers = { "Content-Type": (image instanceof Blob && image.type) || "application/octet-stream" }
    return this.http.json({ method: "POST", path, query, headers, body: image, keyed: true, timeout: 600_000, ...rest, ...(await withProgress(onProgress)) })
  }

  /** The address of an image. A browser that signed in with a cookie loads it; see `get` for others. */
  url(sessionId: string, assetId: string): string {
    return this.http.url(pathOf`/sessions/${sessionId}/assets/${assetId}`)
  }

  /** Loads an image, or a range of its bytes. */
  get(sessionId: string, assetId: string, options: CallOptions & { range?: string } = {}): Promise<Response> {
    const { range, ...rest } = options
    return this.http.response({
      method: "GET", path: pathOf`/sessions/${sessionId}/assets/${assetId}`, ...(range === undefined ? {} : { headers: { Range: range } }), ...rest,
    })
  }

  /** Deletes an image that no message uses. */
  delete(sessionId: string, assetId: string, options: ChangeOptions = {}): Promise<void> {
    return this.http.json({ method: "DELETE", path: pathOf`/sessions/${sessionId}/assets/${assetId}`, keyed: true, ...options })
  }
}

export class Search {
  constructor(private readonly http: Http) {}

  /** Finds messages. `next_page_token` of the answer is the `page_token` of the next page. */
  find(query: SearchQuery | string, options: CallOptions = {}): Promise<SearchResult> {
    return this.http.json({ method: "GET", path: "/search", query: typeof query === "string" ? { q: query } : { ...query }, ...options })
  }

  /** Yields the hits of all pages. */
  async *hits(query: SearchQuery | string, options: CallOptions = {}): AsyncGenerator<SearchHit, void, undefined> {
    const given = typeof query === "string" ? { q: query } : query
    for (let page = await this.find(given, options); ; page = await this.find({ ...given, page_token: page.next_page_token }, options)) {
      yield* page.hits
      if (!page.next_page_token) return
    }
  }
}

/** The progress of an upload: the bytes that were sent, of all, or of 0 if that is not known. */
export type Progress = (sent: number, total: number) => void

/** Returns what makes a call with progress, which fetch does not report. */
const withProgress = async (onProgress: Progress | undefined): Promise<{ fetch?: Fetch }> =>
  onProgress && typeof XMLHttpRequest === "function" ? { fetch: (await import("./progress.ts")).fetchWithProgress(onProgress) } : {}
