// Texts of the page by key, in the language of the user.
import { batch, signal } from "@preact/signals";
import { en } from "./en.ts";

export type Key = keyof typeof en & string;
/** Text is one text, or one text for each plural category of the number n. */
export type Text = string | ({ readonly other: string } & { readonly [category in Intl.LDMLPluralRule]?: string });
export type Catalogue = Readonly<Record<Key, Text>>;
export type Language = "en" | "de" | "fr" | "es" | "zh";

/** languages has the name of each language in that language. */
export const languages: Readonly<Record<Language, string>> = { en: "English", de: "Deutsch", fr: "Français", es: "Español", zh: "中文" };

const loaders: { readonly [language in Language]: () => Promise<Catalogue> } = {
  en: async () => en,
  de: async () => (await import("./de.ts")).de,
  fr: async () => (await import("./fr.ts")).fr,
  es: async () => (await import("./es.ts")).es,
  zh: async () => (await import("./zh.ts")).zh,
};

export const language = signal<Language>("en");
const catalogue = signal<Catalogue>(en);

type Values = Readonly<Record<string, string | number>>;

/** t returns the text of a key. Each {name} in it is replaced by the value of this name; {n} also chooses the plural category. */
export function t(key: Key, values?: Values): string {
  const text = catalogue.value[key] ?? en[key];
  const chosen = typeof text === "string" ? text : (text[plurals().select(Number(values?.n ?? 0))] ?? text.other);
  if (!values) return chosen;
  return chosen.replace(/\{(\w+)\}/g, (whole: string, name: string) => {
    const value = values[name];
    return value === undefined ? whole : typeof value === "number" ? numbers().format(value) : value;
  });
}

/** has reports whether a text is a key, for texts that the server chooses, such as the codes of problems. */
export const has = (key: string): key is Key => Object.hasOwn(en, key);

/** preferred returns the first of the user's languages that the page has. */
export function preferred(wanted: readonly string[]): Language {
  for (const tag of wanted) {
    const short = tag.toLowerCase().split("-")[0] as Language;
    if (Object.hasOwn(languages, short)) return short;
  }
  return "en";
}

let wantedLast: Language = "en";

/**
 * useLanguage loads the catalogue of a language and shows the page in it. If it cannot be
 * loaded, the page stays as it is, and the result is false. If another language is wanted
 * meanwhile, that one wins.
 */
export async function useLanguage(wanted: Language): Promise<boolean> {
  if (!Object.hasOwn(loaders, wanted)) wanted = "en";
  wantedLast = wanted;
  const loaded = await loaders[wanted]().catch(() => undefined);
  if (wantedLast !== wanted) return true;
  if (!loaded) return false;
  batch(() => {
    catalogue.value = loaded;
    language.value = wanted;
  });
  return true;
}

function cached<T>(make: (locale: string) => T): () => T {
  const made = new Map<string, T>();
  return () => {
    const locale = localeOf(language.value);
    let found = made.get(locale);
    if (!found) made.set(locale, (found = make(locale)));
    return found;
  };
}

/** localeOf returns the user's own locale of a language, such as en-GB for en, for dates and numbers. */
function localeOf(language: Language): string {
  const own = globalThis.navigator?.languages ?? [];
  return own.find((tag) => tag.toLowerCase().split("-")[0] === language) ?? language;
}

const plurals = cached((locale) => new Intl.PluralRules(locale));
export const numbers = cached((locale) => new Intl.NumberFormat(locale));
export const clockTime = cached((locale) => new Intl.DateTimeFormat(locale, { hour: "2-digit", minute: "2-digit" }));
export const fullTime = cached((locale) => new Intl.DateTimeFormat(locale, { dateStyle: "full", timeStyle: "medium" }));
export const shortDate = cached((locale) => new Intl.DateTimeFormat(locale, { day: "numeric", month: "short" }));
export const monthName = cached((locale) => new Intl.DateTimeFormat(locale, { month: "long", year: "numeric" }));
const sizes = (unit: "byte" | "kilobyte" | "megabyte") => cached((locale) => new Intl.NumberFormat(locale, { style: "unit", unit, unitDisplay: unit === "byte" ? "long" : "short", maximumFractionDigits: unit === "megabyte" ? 1 : 0 }));
const [bytes, kilobytes, megabytes] = [sizes("byte"), sizes("kilobyte"), sizes("megabyte")];

/** fileSize returns a size such as 3.4 MB. */
export const fileSize = (n: number): string => (n < 1000 ? bytes().format(n) : n < 1_000_000 ? kilobytes().format(n / 1000) : megabytes().format(n / 1_000_000));
