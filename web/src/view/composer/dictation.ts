// Dictation by the browser, where it can.
import { signal } from "@preact/signals";
import { language, t } from "../../i18n/index.ts";
import type { App } from "../../model/app.ts";
import type { Composer } from "../../model/composer.ts";

interface Result {
  readonly isFinal: boolean;
  readonly [0]: { readonly transcript: string };
}

/** The part of SpeechRecognition that is used; TypeScript does not know it. */
interface Recognition {
  lang: string;
  continuous: boolean;
  interimResults: boolean;
  onresult: ((e: { readonly resultIndex: number; readonly results: ArrayLike<Result> }) => void) | null;
  onerror: ((e: { readonly error: string }) => void) | null;
  onend: (() => void) | null;
  start(): void;
  abort(): void;
}

type Maker = new () => Recognition;

const maker = (): Maker | undefined => {
  const { SpeechRecognition, webkitSpeechRecognition } = globalThis as { SpeechRecognition?: Maker; webkitSpeechRecognition?: Maker };
  return SpeechRecognition ?? webkitSpeechRecognition;
};

export const canDictate = (): boolean => maker() !== undefined;

/** Whether the browser listens. */
export const listening = signal(false);
/** What it heard and may still change its mind about. */
export const heard = signal("");

let running: { readonly recognition: Recognition; readonly composer: Composer } | undefined;

/** dictate writes what the user says at the end of the draft, until finish. */
export function dictate(app: App): void {
  const Recognizer = maker();
  if (!Recognizer || running) return;
  const composer = app.composer.peek();
  const recognition = new Recognizer();
  running = { recognition, composer };
  recognition.lang = navigator.languages.find((tag) => tag.startsWith(language.peek())) ?? language.peek();
  recognition.continuous = true;
  recognition.interimResults = true;
  recognition.onresult = ({ resultIndex, results }) => {
    if (running?.recognition !== recognition) return;
    const fresh = Array.from(results).slice(resultIndex);
    add(composer, fresh.filter((result) => result.isFinal).map((result) => result[0].transcript).join(" "));
    heard.value = fresh.filter((result) => !result.isFinal).map((result) => result[0].transcript).join(" ").trim();
  };
  recognition.onerror = ({ error }) => {
    if (error !== "aborted" && error !== "no-speech") app.notices.add({ kind: "error", text: t("composer.dictate_failed") });
  };
  recognition.onend = () => running?.recognition === recognition && finish();
  try {
    recognition.start();
    listening.value = true;
  } catch {
    running = undefined;
    app.notices.add({ kind: "error", text: t("composer.dictate_failed") });
  }
}

/** finish stops to listen. What was heard last is written, too. */
export function finish(): void {
  const ended = running;
  if (!ended) return;
  running = undefined;
  add(ended.composer, heard.peek());
  heard.value = "";
  listening.value = false;
  ended.recognition.abort();
}

function add(composer: Composer, words: string): void {
  const before = composer.text.peek();
  if (words.trim()) composer.write(before + (before && !/\s$/.test(before) ? " " : "") + words.trim());
}
