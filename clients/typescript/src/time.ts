/** Waits. It rejects with the reason of the signal as soon as the signal is aborted. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason)
    const end = () => {
      clearTimeout(timer)
      reject(signal!.reason)
    }
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", end)
      resolve()
    }, ms)
    signal?.addEventListener("abort", end, { once: true })
  })
}

/** Returns the milliseconds before an attempt. They double from `first` up to `max`; half of them are random. */
export function backoff(attempt: number, { first = 250, max = 10_000 } = {}): number {
  const full = Math.min(max, first * 2 ** Math.min(attempt, 30))
  return full / 2 + Math.random() * (full / 2)
}

/** Returns the seconds that a Retry-After header names, as a number or as a date. */
export function parseRetryAfter(value: string | null, now = Date.now()): number | undefined {
  if (!value) return undefined
  if (/^\s*\d+(\.\d+)?\s*$/.test(value)) return Number(value)
  const at = Date.parse(value)
  return Number.isNaN(at) ? undefined : Math.max(0, (at - now) / 1000)
}

/** Returns a random id that is safe in URLs: 128 bits. */
export function randomId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16))
  return Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("")
}

let previous = 0

/** Returns a new id for a session or a request. Ids that one client makes sort by time. */
export function newId(): string {
  previous = Math.max(Date.now(), previous + 1)
  return previous.toString(16).padStart(12, "0") + randomId().slice(0, 20)
}
