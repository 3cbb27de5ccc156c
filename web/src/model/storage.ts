// What the page keeps in the browser: small JSON values by key.

/** Storage keeps values over a reload. A value that cannot be stored is kept until then. */
export interface Storage {
  get(key: string): unknown;
  set(key: string, value: unknown): void;
}

/** memory returns a storage that lives as long as the page. */
export function memory(values = new Map<string, unknown>()): Storage {
  return { get: (key) => values.get(key), set: (key, value) => void (value === undefined ? values.delete(key) : values.set(key, value)) };
}
