// Reading aloud, by the browser where it can.
import { signal } from "@preact/signals";
import { spoken } from "../../model/blocks.ts";

/** The id of the message that is read. */
export const reading = signal("");

export const canRead = (): boolean => typeof speechSynthesis !== "undefined" && typeof SpeechSynthesisUtterance !== "undefined";

/** read begins to read a message, or stops if it is the one that is read. */
export function read(id: string, markdown: string): void {
  const stop = reading.peek() === id;
  speechSynthesis.cancel();
  reading.value = "";
  if (stop) return;
  // Browsers stop in long utterances, so each paragraph is one.
  const paragraphs = spoken(markdown).split("\n").filter((text) => text.trim());
  paragraphs.forEach((text, i) => {
    const utterance = new SpeechSynthesisUtterance(text);
    const last = i === paragraphs.length - 1;
    utterance.onend = () => void (last && reading.peek() === id && (reading.value = ""));
    utterance.onerror = () => void (reading.peek() === id && (reading.value = ""));
    speechSynthesis.speak(utterance);
  });
  if (paragraphs.length) reading.value = id;
}
