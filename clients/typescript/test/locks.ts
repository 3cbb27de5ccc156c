// Web Locks for tests: exclusive ones, with abort and steal.

interface Waiting {
  run: () => Promise<unknown>
  resolve: (value: unknown) => void
  reject: (error: unknown) => void
}

export class Locks {
  readonly #held = new Map<string, Waiting>()
  readonly #queues = new Map<string, Waiting[]>()

  request = ((name: string, options: LockOptions, run: () => Promise<unknown>): Promise<unknown> => new Promise((resolve, reject) => {
    const waiting = { run, resolve, reject }
    const queue = this.#queues.get(name) ?? []
    this.#queues.set(name, queue)
    options.signal?.addEventListener("abort", () => {
      const at = queue.indexOf(waiting)
      if (at >= 0) {
        queue.splice(at, 1)
        reject(options.signal!.reason)
      }
    })
    if (options.steal) {
      this.#held.get(name)?.reject(new DOMException("the lock was stolen", "AbortError"))
      this.#held.delete(name)
      queue.unshift(waiting)
    } else queue.push(waiting)
    this.#next(name)
  })) as LockManager["request"]

  #next(name: string): void {
    if (this.#held.has(name)) return
    const next = this.#queues.get(name)?.shift()
    if (!next) return
    this.#held.set(name, next)
    void next.run().then(next.resolve, next.reject).finally(() => {
      if (this.#held.get(name) !== next) return
      this.#held.delete(name)
      this.#next(name)
    })
  }
}
