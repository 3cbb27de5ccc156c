// The user's preferences in this browser.
import { signal, type Signal } from "@preact/signals";
import type { Language } from "../i18n/index.ts";
import type { Storage } from "./storage.ts";

export type Theme = "system" | "light" | "dark";
type Contrast = "system" | "more";
type Motion = "system" | "none";
type EnterKey = "send" | "newline";

interface Values {
  theme: Theme;
  contrast: Contrast;
  motion: Motion;
  language: Language | "";
  enter: EnterKey;
  /** What a send does while a reply is written. */
  busy: "queue" | "steer" | "interrupt";
  notify: boolean;
  sidebar: boolean;
}

const key = "preferences";
const defaults: Values = { theme: "system", contrast: "system", motion: "system", language: "", enter: "send", busy: "queue", notify: false, sidebar: true };

export class Preferences {
  private readonly values: Signal<Values>;

  constructor(private readonly storage: Storage) {
    this.values = signal(this.stored());
  }

  private stored(): Values {
    return { ...defaults, ...(this.storage.get(key) as Partial<Values> | undefined) };
  }

  get<K extends keyof Values>(name: K): Values[K] {
    return this.values.value[name];
  }

  set<K extends keyof Values>(name: K, value: Values[K]): void {
    this.values.value = { ...this.stored(), [name]: value }; // another tab may have set others
    this.storage.set(key, this.values.peek());
  }
}
