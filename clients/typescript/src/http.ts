// One call of the HTTP API: its address, its repeats, its answer.

import { ConnectionError, ProblemError } from "./problem.ts"
import { backoff, parseRetryAfter, randomId, sleep } from "./time.ts"
import type { EventId } from "./types.ts"

/** Makes a call. `flows` may be called when bytes were sent, which shows that the call is not stuck. */
export type Fetch = (input: string, init: RequestInit, flows?: () => void) => Promise<Response>

export interface HttpOptions {
  /** The address of the server, such as `http://127.0.0.1:8787`. In a browser: the page's own origin. */
  baseURL?: string | URL | undefined
  /** The access token, or a function that returns it. Without one, a browser sends its cookie. */
  token?: string | (() => string | undefined | Promise<string | undefined>) | undefined
  /** What makes the calls. Default: the global fetch. */
  fetch?: Fetch | undefined
  /** Headers of every call. */
  headers?: Record<string, string> | undefined
  credentials?: RequestCredentials | undefined
  /** The milliseconds in which an answer must begin, and the longest pause in it. Default: 30,000. */
  timeout?: number | undefined
  /** How often a call is repeated that may be repeated. Default: 3. */
  retries?: number | undefined
  /** Calls are not repeated if the server asks for a longer wait than these milliseconds. Default: 15,000. */
  maxRetryDelay?: number | undefined
}

/** The options of a call that reads. */
export interface CallOptions {
  signal?: AbortSignal | undefined
  timeout?: number | undefined
  retries?: number | undefined
}

/** The options of a call that changes something. */
export interface ChangeOptions extends CallOptions {
  /** The key by which the server recognizes a repeat. Default: a new key for each call. */
  idempotencyKey?: string | undefined
  /** The session's newest checkpoint. If another change came first, the call fails with `precondition_failed`. */
  ifMatch?: EventId | undefined
}

export type Query = Record<string, string | number | boolean | readonly (string | number)[] | undefined>

export interface Call extends ChangeOptions {
  method: string
  path: string
  query?: Query | undefined
  /** A value that is sent as JSON. */
  json?: unknown
  /** A body that is sent as it is. */
  body?: Blob | ArrayBuffer | Uint8Array | string | undefined
  headers?: Record<string, string> | undefined
  /** Makes the call. Default: that of the client. */
  fetch?: Fetch | undefined
  /** Whether the route takes an Idempotency-Key. */
  keyed?: boolean | undefined
  /** Whether the answer gets its ETag, the newest checkpoint of the session, as `checkpoint`. */
  tagged?: boolean | undefined
}

/** Joins the parts of a path. Each value is encoded. */
export function pathOf(strings: TemplateStringsArray, ...values: (string | number)[]): string {
  return strings.reduce((path, text, i) => path + encodeURIComponent(String(values[i - 1])) + text)
}

export class Http {
  readonly #options: HttpOptions
  readonly #base: string
  #token: HttpOptions["token"]

  constructor(options: HttpOptions) {
    this.#options = options
    this.#token = options.token
    const own = typeof location === "object" && /^https?:/.test(location.origin) ? location.origin : undefined
    const base = options.baseURL ?? own
    if (base === undefined) throw new TypeError("baseURL is missing: the address of the server, such as http://127.0.0.1:8787")
    const url = new URL(base, own)
    if (!/^https?:$/.test(url.protocol)) throw new TypeError(`baseURL ${url.href} does not begin with http:// or https://`)
    url.search = url.hash = ""
    this.#base = url.href.replace(/\/+$/, "")
  }

  get baseURL(): string { return this.#base }
  get token(): HttpOptions["token"] { return this.#token }
  set token(token: HttpOptions["token"]) { this.#token = token }

  url(path: string, query: Query = {}): string {
    const params = new URLSearchParams()
    for (const [name, value] of Object.entries(query)) {
      for (const one of Array.isArray(value) ? value : [value]) if (one !== undefined) params.append(name, String(one))
    }
    const text = params.toString()
    return this.#base + path + (text && `?${text}`)
  }

  /** Makes a call and returns the JSON of its answer; undefined for an answer without a body. */
  async json<T>(call: Call): Promise<T> {
    return this.#repeat(call, async (call, timer) => {
      const answer = await this.#once(call, timer)
      const text = new TextDecoder().decode(await readAll(answer, timer).catch((e) => { throw failed(call, e, timer) }))
      timer.end()
      if (text === "") return undefined as T
      const checkpoint = call.tagged && /"(\d+)"/.exec(answer.headers.get("ETag") ?? "")?.[1]
      try {
        const value = JSON.parse(text) as T
        return checkpoint ? { ...value, checkpoint } : value
      } catch {
        throw new ConnectionError(`${call.method} ${call.path}: the answer is not JSON; is a Loquat server at ${this.#base}?`, { mayBeDone: call.method !== "GET" })
      }
    })
  }

  /** Makes a call and returns its answer, whose body the caller reads. */
  async response(call: Call): Promise<Response> {
    return this.#repeat(call, async (call, timer) => released(await this.#once(call, timer), timer))
  }

  /** The headers of a call that changes nothing. */
  async headers(): Promise<Record<string, string>> {
    const token = typeof this.#token === "function" ? await this.#token() : this.#token
    return { ...this.#options.headers, ...(token ? { Authorization: `Bearer ${token}` } : {}) }
  }

  get fetch(): Fetch { return this.#options.fetch ?? ((input, init) => fetch(input, init)) }
  get credentials(): RequestCredentials { return this.#options.credentials ?? "same-origin" }

  async #repeat<T>(call: Call, once: (call: Call, timer: Timer) => Promise<T>): Promise<T> {
    if (call.keyed && call.idempotencyKey === undefined) call = { ...call, idempotencyKey: randomId() }
    const retries = call.retries ?? this.#options.retries ?? 3
    const longest = this.#options.maxRetryDelay ?? 15_000
    for (let attempt = 0; ; attempt++) {
      const timer = new Timer(call.timeout ?? this.#options.timeout ?? 30_000, call.signal)
      try {
        const result = await once(call, timer)
        timer.stop()
        return result
      } catch (error) {
        timer.end()
        if (call.signal?.aborted) throw call.signal.reason
        if (attempt >= retries || !mayRepeat(call, error)) throw error
        const asked = error instanceof ProblemError && error.retryAfter !== undefined ? error.retryAfter * 1000 : 0
        if (asked > longest) throw error
        await sleep(Math.max(asked, backoff(attempt)), call.signal)
      }
    }
  }

  async #once(call: Call, timer: Timer): Promise<Response> {
    const headers = { ...(await this.headers().catch((error: unknown) => { throw failed(call, error, timer) })), ...call.headers }
    if (call.json !== undefined) headers["Content-Type"] = "application/json"
    if (call.keyed && call.idempotencyKey !== undefined) headers["Idempotency-Key"] = call.idempotencyKey
    if (call.ifMatch !== undefined) headers["If-Match"] = `"${call.ifMatch}"`
    const body = call.json !== undefined ? JSON.stringify(call.json) : call.body
    let answer: Response
    try {
      answer = await (call.fetch ?? this.fetch)(this.url(call.path, call.query), {
        method: call.method, headers, signal: timer.signal, credentials: this.credentials, ...(body === undefined ? {} : { body: body as BodyInit }),
      }, () => timer.restart())
    } catch (error) {
      throw failed(call, error, timer)
    }
    timer.restart()
    if (answer.ok) return answer
    throw await readProblem(answer, call, timer)
  }
}

// mayRepeat reports whether another attempt may help and can do nothing twice. Without a key, only
// a refusal for the rate says that nothing was done: 503 may also come from a proxy whose server did it.
function mayRepeat(call: Call, error: unknown): boolean {
  const safe = call.method === "GET" || (call.keyed && call.idempotencyKey !== undefined)
  if (error instanceof ConnectionError) return Boolean(safe)
  if (!(error instanceof ProblemError)) return false
  if (error.code === "rate_limited") return error.retryAfter !== undefined
  return Boolean(safe) && error.code === "unavailable"
}

/** Aborts its signal after a time without a restart, or when the caller's signal is aborted. */
export class Timer {
  readonly #controller = new AbortController()
  readonly #outer: AbortSignal | undefined
  readonly #ms: number
  #timer: ReturnType<typeof setTimeout> | undefined
  expired = false

  constructor(ms: number, outer: AbortSignal | undefined) {
    this.#ms = ms
    this.#outer = outer
    if (outer?.aborted) this.#controller.abort(outer.reason)
    else outer?.addEventListener("abort", this.#abort)
    this.restart()
  }

  get signal(): AbortSignal { return this.#controller.signal }

  readonly #abort = () => this.#controller.abort(this.#outer?.reason)

  restart(): void {
    clearTimeout(this.#timer)
    if (!Number.isFinite(this.#ms)) return
    this.#timer = setTimeout(() => {
      this.expired = true
      this.#controller.abort(new DOMException(`nothing came for ${this.#ms / 1000} s`, "TimeoutError"))
    }, this.#ms)
  }

  /** Ends the timer. The signal still follows the caller's. */
  stop(): void {
    clearTimeout(this.#timer)
  }

  /** Ends the timer and the call. */
  end(): void {
    this.stop()
    this.#outer?.removeEventListener("abort", this.#abort)
    this.#controller.abort()
  }
}

function failed(call: Call, error: unknown, timer: Timer): unknown {
  if (error instanceof ProblemError || error instanceof ConnectionError) return error
  if (call.signal?.aborted) return call.signal.reason
  const why = timer.expired ? "the server did not answer in time" : "the server cannot be reached"
  return new ConnectionError(`${call.method} ${call.path}: ${why}`, { cause: error, mayBeDone: call.method !== "GET" })
}

// released returns an answer that lets go of the caller's signal when its body has been read or cancelled.
function released(answer: Response, timer: Timer): Response {
  const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>(), end = () => timer.end()
  if (!answer.body) {
    end()
    return answer
  }
  answer.body.pipeTo(writable).then(end, end)
  return Object.defineProperty(new Response(readable, answer), "url", { value: answer.url })
}

async function readAll(answer: Response, timer: Timer): Promise<Uint8Array> {
  const reader = answer.body?.getReader()
  if (!reader) return new Uint8Array(await answer.arrayBuffer())
  const parts: Uint8Array[] = []
  let size = 0
  for (;;) {
    const { done, value } = await reader.read()
    if (done) break
    timer.restart()
    parts.push(value)
    size += value.length
  }
  if (parts.length === 1) return parts[0]!
  const all = new Uint8Array(size)
  let at = 0
  for (const part of parts) {
    all.set(part, at)
    at += part.length
  }
  return all
}

const maxProblem = 1 << 20

/** Returns the error of an answer that is not a success. */
export async function readProblem(answer: Response, call: Pick<Call, "method" | "path" | "signal">, timer: Timer): Promise<unknown> {
  const context = { status: answer.status, call: `${call.method} ${call.path}`, retryAfter: parseRetryAfter(answer.headers.get("Retry-After")) }
  let bytes: Uint8Array
  try {
    bytes = await readAll(answer, timer)
  } catch (error) {
    return failed(call as Call, error, timer)
  }
  const text = new TextDecoder().decode(bytes.subarray(0, maxProblem))
  if (/^application\/problem\+json\b/.test(answer.headers.get("Content-Type") ?? "")) {
    try {
      return new ProblemError(JSON.parse(text), context)
    } catch { /* not a problem document */ }
  }
  return new ProblemError({ detail: `${context.call}: the answer ${answer.status} is not one of a Loquat server; check baseURL, and a proxy in front of the server` }, context)
}
