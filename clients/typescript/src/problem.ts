import type { FieldError, ProblemDocument } from "./types.ts"

/** The stable names of failures. A later server may add others. */
export type ProblemCode =
  | "invalid" | "unauthorized" | "forbidden" | "not_found" | "method_not_allowed" | "conflict" | "busy"
  | "precondition_failed" | "gone" | "too_large" | "unsupported_media" | "rate_limited" | "backend_error"
  | "unavailable" | "internal"

/** The server refused a call, or failed. `code` says why; `message` says it for a person. */
export class ProblemError extends Error {
  override readonly name = "ProblemError"
  readonly code: ProblemCode
  readonly status: number
  /** Every fault of the input, each with its place. */
  readonly errors: readonly FieldError[]
  /** With `busy`: the request that runs or waits. */
  readonly requestId: string | undefined
  /** The seconds after which the server suggests another attempt. */
  readonly retryAfter: number | undefined
  /** The call, such as `POST /sessions`. It is empty for a `gone` of a stream. */
  readonly call: string

  constructor(problem: Partial<ProblemDocument>, context: { status: number; call?: string; retryAfter?: number | undefined }) {
    super(problem.detail || problem.title || `the server answered ${context.status}`)
    this.code = (problem.code as ProblemCode | undefined) ?? codeOfStatus(context.status)
    this.status = context.status
    this.errors = problem.errors ?? []
    this.requestId = problem.request_id
    this.retryAfter = context.retryAfter
    this.call = context.call ?? ""
  }

  /** The fault at a place of the input, such as `body.metadata.title`. */
  at(location: string): FieldError | undefined {
    return this.errors.find((e) => e.location === location)
  }
}

/** No complete answer came: the network or the server is away, or something other than a Loquat server answered. */
export class ConnectionError extends Error {
  override readonly name = "ConnectionError"
  readonly code = "connection"
  /** Whether the server may have done what was asked. False if the call changes nothing. */
  readonly mayBeDone: boolean

  constructor(message: string, options: { cause?: unknown; mayBeDone?: boolean } = {}) {
    super(message, { cause: options.cause })
    this.mayBeDone = options.mayBeDone ?? false
  }
}

export type LoquatError = ProblemError | ConnectionError

/** Reports whether an error is a problem, with one of the codes if any are given. */
export function isProblem<C extends ProblemCode = ProblemCode>(error: unknown, ...codes: C[]): error is ProblemError & { readonly code: C } {
  return error instanceof ProblemError && (codes.length === 0 || (codes as ProblemCode[]).includes(error.code))
}

/** The code of an answer that has no problem document, as a proxy may give it. */
function codeOfStatus(status: number): ProblemCode {
  switch (status) {
    case 400: case 422: return "invalid"
    case 401: return "unauthorized"
    case 403: return "forbidden"
    case 404: return "not_found"
    case 405: return "method_not_allowed"
    case 409: return "conflict"
    case 410: return "gone"
    case 412: return "precondition_failed"
    case 413: return "too_large"
    case 415: return "unsupported_media"
    case 429: return "rate_limited"
    case 502: case 503: case 504: return "unavailable"
  }
  return "internal"
}
