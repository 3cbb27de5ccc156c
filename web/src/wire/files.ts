import type { Files } from "../model/files.ts";

const store = "images";

/** browserFiles keeps the images of drafts in IndexedDB. Its methods fail where there is none, for example in some private windows. */
export function browserFiles(name = "loquat-drafts"): Files {
  let opened: Promise<IDBDatabase> | undefined;
  const open = (): Promise<IDBDatabase> =>
    (opened ??= new Promise<IDBDatabase>((resolve, reject) => {
      const request = indexedDB.open(name, 1);
      request.onupgradeneeded = () => request.result.createObjectStore(store);
      request.onerror = () => reject(request.error);
      request.onsuccess = () => {
        const forget = (): void => {
          request.result.close();
          opened = undefined;
        };
        request.result.onclose = request.result.onversionchange = forget;
        resolve(request.result);
      };
    }).catch((thrown: unknown) => {
      opened = undefined;
      throw thrown;
    }));
  const run = async <T>(mode: IDBTransactionMode, act: (images: IDBObjectStore) => IDBRequest<T> | undefined): Promise<T | undefined> => {
    const database = await open();
    return new Promise((resolve, reject) => {
      const transaction = database.transaction(store, mode);
      const request = act(transaction.objectStore(store));
      transaction.oncomplete = () => resolve(request?.result);
      transaction.onabort = transaction.onerror = () => reject(transaction.error);
    });
  };
  return {
    get: (key) => run<Blob | undefined>("readonly", (images) => images.get(key) as IDBRequest<Blob | undefined>),
    set: async (key, image) => void (await run("readwrite", (images) => images.put(image, key))),
    delete: async (keys) => void (await run("readwrite", (images) => void keys.forEach((key) => images.delete(key)))),
  };
}
