// Where the images of drafts are kept until they are sent.

/** Files keeps images by key. Each method fails if the browser refuses. */
export interface Files {
  get(key: string): Promise<Blob | undefined>;
  set(key: string, image: Blob): Promise<void>;
  delete(keys: readonly string[]): Promise<void>;
}

/** memoryFiles returns files that live as long as the page. */
export function memoryFiles(images = new Map<string, Blob>()): Files {
  return {
    get: async (key) => images.get(key),
    set: async (key, image) => void images.set(key, image),
    delete: async (keys) => keys.forEach((key) => images.delete(key)),
  };
}
