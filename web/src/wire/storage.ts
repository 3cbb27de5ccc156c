import { memory, type Storage } from "../model/storage.ts";

const prefix = "loquat.";

/** browserStorage returns localStorage as a Storage. Values that it refuses, or all without it, live as long as the page. */
export function browserStorage(): Storage {
  const fallback = memory();
  return {
    get(key) {
      const kept = fallback.get(key);
      if (kept !== undefined) return kept;
      try {
        const text = localStorage.getItem(prefix + key);
        return text === null ? undefined : JSON.parse(text);
      } catch {
        return undefined;
      }
    },
    set(key, value) {
      try {
        if (value === undefined) localStorage.removeItem(prefix + key);
        else localStorage.setItem(prefix + key, JSON.stringify(value));
        fallback.set(key, undefined);
      } catch {
        fallback.set(key, value);
      }
    },
  };
}
