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

/**
 * Keeps entries in a storage of texts, such as localStorage: each in a text of its own, so that tabs do not
 * overwrite those of others. It keeps no images.
 */
export function textStorage(name: string, texts: Pick<Storage, "getItem" | "setItem" | "removeItem" | "key" | "length">): OutboxStorage {
  const keyOf = (id: string) => `${name}:${id}`
  const read = (key: string): OutboxEntry | undefined => {
    try {
      return JSON.parse(texts.getItem(key) ?? "null") ?? undefined
    } catch { // something else wrote it
      return undefined
    }
  }
  return {
    durable: true, shared: true,
    all: async () => {
      const keys = Array.from({ length: texts.length }, (_, i) => texts.key(i) ?? "")
      return keys.filter((key) => key.slice(0, key.lastIndexOf(":")) === name).flatMap((key) => read(key) ?? [])
    },
    get: async (id) => read(keyOf(id)),
    put: async (entry) => {
      if (entry.files?.length) throw new TypeError("this storage keeps no images; use indexedDBStorage")
      texts.setItem(keyOf(entry.id), JSON.stringify(entry))
    },
    delete: async (id) => texts.removeItem(keyOf(id)),
  }
}

/**
 * Keeps entries in `storage`, which takes its time, and in `ahead` until it has them, so that a send waits for
 * nothing. An entry that `ahead` refuses waits.
 */
export function writeAhead(ahead: OutboxStorage, storage: OutboxStorage): OutboxStorage {
  const moved = async (entry: OutboxEntry) => {
    if (JSON.stringify(await ahead.get(entry.id)) === JSON.stringify(entry)) await ahead.delete(entry.id) // otherwise a newer one is on its way
  }
  return {
    ...storage,
    all: async () => { // meanwhile an entry can be written, and one can move
      const early = await ahead.all(), stored = await storage.all(), late = await ahead.all()
      return [...new Map([...early, ...stored, ...late].map((e) => [e.id, e])).values()]
    },
    get: async (id) => (await ahead.get(id)) ?? storage.get(id),
    put: async (entry) => {
      const stored = storage.put(entry)
      const written = await ahead.put(entry).then(() => true, () => false)
      if (!written) return stored
      void stored.then(() => moved(entry), () => {}) // if it is not stored, it stays where it is
    },
    delete: async (id) => { await Promise.all([ahead.delete(id), storage.delete(id)]) },
  }
}

/** IndexedDB where there is one, with localStorage ahead of it; otherwise memory. */
export function defaultStorage(name: string): OutboxStorage {
  if (typeof indexedDB !== "object" || !indexedDB) return memoryStorage()
  const storage = indexedDBStorage(name)
  try {
    return typeof localStorage === "object" && localStorage ? writeAhead(textStorage(name, localStorage), storage) : storage
  } catch { // the browser forbids it
    return storage
  }
}
