/** A value that changes, in the form that `useSyncExternalStore` and signals take. */
export interface Readable<T> {
  get(): T
  /** Calls the listener after each change. Returns a function that ends this. */
  subscribe(listener: (value: T) => void): () => void
}

export class Store<T> implements Readable<T> {
  #value: T
  readonly #listeners = new Set<(value: T) => void>()

  constructor(value: T) {
    this.#value = value
  }

  get = (): T => this.#value

  set(value: T): void {
    if (value === this.#value) return
    this.#value = value
    emit(this.#listeners, value)
  }

  subscribe = (listener: (value: T) => void): (() => void) => {
    this.#listeners.add(listener)
    return () => { this.#listeners.delete(listener) }
  }
}

/** Calls every listener. An error of one is reported and does not keep the others from being called. */
export function emit<T>(listeners: Iterable<(value: T) => void>, value: T): void {
  for (const listener of [...listeners]) {
    try {
      listener(value)
    } catch (error) {
      report(error)
    }
  }
}

// report throws an error where nobody catches it, so that it is logged like any other.
const report = (error: unknown): void => queueMicrotask(() => { throw error })
