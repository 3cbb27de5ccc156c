// Where an outbox keeps its entries.

import type { OutboxEntry } from "./outbox.ts"

/** Calls take effect in their order, also those that are not awaited. */
export interface OutboxStorage {
  /** Whether entries survive a reload. */
  readonly durable: boolean
  /** Whether other tabs see the same entries. */
  readonly shared: boolean
  all(): Promise<OutboxEntry[]>
  get(id: string): Promise<OutboxEntry | undefined>
  put(entry: OutboxEntry): Promise<void>
  delete(id: string): Promise<void>
}

/** Keeps entries for as long as the page. */
export function memoryStorage(): OutboxStorage {
  const entries = new Map<string, OutboxEntry>()
  return {
    durable: false, shared: false,
    all: async () => [...entries.values()],
    get: async (id) => entries.get(id),
    put: async (entry) => { entries.set(entry.id, entry) },
    delete: async (id) => { entries.delete(id) },
  }
}

/** Keeps entries in IndexedDB, images included. */
export function indexedDBStorage(name: string, factory: IDBFactory = indexedDB): OutboxStorage {
  let opened: Promise<IDBDatabase> | undefined
  const open = () => (opened ??= new Promise<IDBDatabase>((resolve, reject) => {
    const request = factory.open(name, 1)
    request.onupgradeneeded = () => request.result.createObjectStore("entries", { keyPath: "id" })
    request.onsuccess = () => {
      request.result.onclose = request.result.onversionchange = () => {
        request.result.close()
        opened = undefined
      }
      resolve(request.result)
    }
    request.onerror = () => reject(request.error)
  }).catch((error) => {
    opened = undefined
    throw error
  }))
  const run = async <T>(mode: IDBTransactionMode, act: (store: IDBObjectStore) => IDBRequest<T>): Promise<T> => {
    const db = await open()
    return new Promise((resolve, reject) => {
      const tx = db.transaction("entries", mode)
      const request = act(tx.objectStore("entries"))
      tx.oncomplete = () => resolve(request.result) // only now it is stored
      tx.onabort = tx.onerror = () => reject(tx.error ?? request.error)
    })
  }
  return {
    durable: true, shared: true,
    all: () => run("readonly", (s) => s.getAll()),
    get: (id) => run("readonly", (s) => s.get(id)),
    put: async (entry) => { await run("readwrite", (s) => s.put(entry)) },
    delete: async (id) => { await run("readwrite", (s) => s.delete(id)) },
  }
}

/** Keeps entries in a storage of texts, such as localStorage. It keeps no images. */
export function textStorage(name: string, storage: Pick<Storage, "getItem" | "setItem">): OutboxStorage {
  const load = (): Record<string, OutboxEntry> => JSON.parse(storage.getItem(name) ?? "{}")
  const save = (entries: Record<string, OutboxEntry>) => storage.setItem(name, JSON.stringify(entries))
  return {
    durable: true, shared: true,
    all: async () => Object.values(load()),
    get: async (id) => load()[id],
    put: async (entry) => {
      if (entry.files?.length) throw new TypeError("this storage keeps no images; use indexedDBStorage")
      save({ ...load(), [entry.id]: entry })
    },
    delete: async (id) => {
      const { [id]: _, ...others } = load()
      save(others)
    },
  }
}

/** The longest text that `noted` writes while the page waits. */
const longestNote = 100_000

/**
 * Writes each entry without images to a storage of texts, until `inner`, which takes longer, has it. So a send
 * waits for nothing, and survives a reload from then on.
 */
export function noted(inner: OutboxStorage, name: string, texts: Storage): OutboxStorage {
  const keyOf = (id: string) => `${name}:${id}`
  const note = (key: string): OutboxEntry | undefined => {
    try {
      return JSON.parse(texts.getItem(key) ?? "null") ?? undefined
    } catch { // something else wrote it
      return undefined
    }
  }
  const notes = () => Object.keys(texts).filter((key) => key.slice(0, key.lastIndexOf(":")) === name).flatMap((key) => note(key) ?? [])
  return {
    ...inner,
    all: async () => { // meanwhile a note can be written, and one can move into the other storage
      const early = notes(), stored = await inner.all()
      return [...new Map([...early, ...stored, ...notes()].map((e) => [e.id, e])).values()]
    },
    get: async (id) => note(keyOf(id)) ?? inner.get(id),
    put: async (entry) => {
      const key = keyOf(entry.id), text = entry.files?.length ? "" : JSON.stringify(entry)
      const stored = inner.put(entry)
      if (!text || text.length > longestNote) return stored
      try {
        texts.setItem(key, text)
      } catch { // it is full
        return stored
      }
      stored.then(() => {
        if (texts.getItem(key) === text) texts.removeItem(key)
      }, () => {}) // the note stays
    },
    delete: async (id) => {
      texts.removeItem(keyOf(id))
      await inner.delete(id)
    },
  }
}

/** IndexedDB where there is one, with localStorage before it; otherwise memory. */
export function defaultStorage(name: string): OutboxStorage {
  if (typeof indexedDB !== "object" || !indexedDB) return memoryStorage()
  const storage = indexedDBStorage(name)
  try {
    return typeof localStorage === "object" && localStorage ? noted(storage, name, localStorage) : storage
  } catch { // the browser forbids it
    return storage
  }
}
