import type { Readable } from "@loquat/client";
import { signal, type ReadonlySignal } from "@preact/signals";

/** signalOf returns a signal with the value of a store of the SDK. */
export function signalOf<T>(readable: Readable<T>): ReadonlySignal<T> {
  const made = signal(readable.get());
  readable.subscribe((value) => (made.value = value));
  return made;
}
