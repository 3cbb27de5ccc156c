// The catalogues: complete, with the placeholders and the plural categories that they need.
import assert from "node:assert/strict";
import { test } from "node:test";
import { en } from "../src/i18n/en.ts";
import { language, languages, preferred, t, useLanguage, type Catalogue, type Key, type Language, type Text } from "../src/i18n/index.ts";

const all = Object.keys(languages) as Language[];
const keys = Object.keys(en) as Key[];

/** sameWords has the texts that are the same in English and in the other language. */
const sameWords: Readonly<Record<Exclude<Language, "en">, readonly string[]>> = {
  de: ["Loquat", "optional", "Chats", "Tags", "System", "Tool", "Details", "Code", "Code in {language}", "Agent"],
  fr: ["Loquat", "Page", "Arguments", "Image", "Image {n}", "Code", "Message", "Messages", "image", "Agent"],
  es: ["Loquat", "Chats"],
  zh: ["Loquat"],
};

/** names are never translated: a text has those that the English one has. */
const names = ["`loquat token new NAME`", "OPENAI_API_KEY", "loquat.json", "Loquat", "Ollama", "llama.cpp", "LM Studio", "vLLM", "Python"];

/** partsOf returns the texts of a key by plural category; a text without categories is "other". */
const partsOf = (text: Text): Readonly<Record<string, string>> => (typeof text === "string" ? { other: text } : (text as Record<string, string>));
const placeholdersOf = (text: string): string[] => [...new Set(text.match(/\{\w+\}/g))].sort();
const categoriesOf = (of: Language): string[] => new Intl.PluralRules(of).resolvedOptions().pluralCategories;

async function catalogueOf(of: Language): Promise<Catalogue> {
  const module = (await import(`../src/i18n/${of}.ts`)) as Record<string, Catalogue>;
  return module[of]!;
}

for (const of of all) {
  test(`${of} has exactly the keys of English`, async () => {
    assert.deepEqual(Object.keys(await catalogueOf(of)).sort(), [...keys].sort());
  });

  test(`${of} has no empty text, and the placeholders and names of English`, async () => {
    const catalogue = await catalogueOf(of);
    for (const key of keys) {
      const english = partsOf(en[key])["other"]!;
      for (const [category, text] of Object.entries(partsOf(catalogue[key]))) {
        const place = `${of}: ${key} (${category})`;
        assert.ok(text.trim() === text && text !== "", `${place} is empty or has space around it`);
        assert.deepEqual(placeholdersOf(text), placeholdersOf(english), place);
        for (const name of names) if (english.includes(name)) assert.ok(text.includes(name), `${place} lacks ${name}`);
      }
    }
  });

  test(`${of} has the plural categories of the language`, async () => {
    const catalogue = await catalogueOf(of);
    const known = categoriesOf(of);
    for (const key of keys) {
      const place = `${of}: ${key}`;
      const has = Object.keys(partsOf(catalogue[key]));
      assert.deepEqual(has.filter((category) => !known.includes(category)), [], `${place} has categories that the language lacks`);
      assert.ok(has.includes("other"), `${place} lacks "other"`);
      // "many" of French and Spanish is for whole millions; where it is absent, "other" is used.
      const needed = typeof en[key] === "string" ? [] : known.filter((category) => category !== "many");
      assert.deepEqual(needed.filter((category) => !has.includes(category)), [], `${place} lacks categories`);
    }
  });

  test(`${of} has the quotes, dots and spaces of the language`, async () => {
    const catalogue = await catalogueOf(of);
    for (const key of keys) {
      for (const whole of Object.values(partsOf(catalogue[key]))) {
        const place = `${of}: ${key}: ${whole}`;
        const text = whole.replace(/https?:\/\//g, ""); // its colon is not punctuation
        assert.doesNotMatch(text, /["']|\.\.\./, place);
        if (of === "de") assert.doesNotMatch(text, /”|[^\u00a0]…/, place);
        if (of === "fr") assert.doesNotMatch(text, /[^\u202f][;?!»]|[^\u202f]:|«[^\u202f]/, place);
        if (of === "es") assert.equal(text.match(/[?!]/g)?.length ?? 0, text.match(/[¿¡]/g)?.length ?? 0, place);
        if (of === "zh") assert.doesNotMatch(text, /[,;:?!()](?!\w)|\p{Script=Han}[a-z0-9{`]|[a-z0-9}`]\p{Script=Han}/iu, place);
      }
    }
  });
}

for (const of of all.filter((l) => l !== "en")) {
  test(`${of} has no text left in English`, async () => {
    const catalogue = await catalogueOf(of);
    const same = keys.filter((key) => partsOf(catalogue[key])["other"] === partsOf(en[key])["other"]).map((key) => partsOf(en[key])["other"]!);
    assert.deepEqual([...new Set(same)].sort(), [...sameWords[of]].sort());
  });
}

test("t chooses the plural category of the language", async () => {
  const shown: Record<Language, readonly string[]> = {
    en: ["0 new messages", "1 new message", "2 new messages"],
    de: ["0 neue Nachrichten", "1 neue Nachricht", "2 neue Nachrichten"],
    fr: ["0 nouveau message", "1 nouveau message", "2 nouveaux messages"],
    es: ["0 mensajes nuevos", "1 mensaje nuevo", "2 mensajes nuevos"],
    zh: ["0 条新消息", "1 条新消息", "2 条新消息"],
  };
  for (const of of all) {
    await useLanguage(of);
    assert.equal(language.value, of);
    assert.deepEqual([0, 1, 2].map((n) => t("transcript.new_messages", { n })), shown[of]);
  }
  await useLanguage("fr");
  assert.match(t("transcript.show_all", { n: 2_000_000 }), /de caractères/);
});

test("the language that is wanted last is shown, and an unknown one is English", async () => {
  await Promise.all([useLanguage("de"), useLanguage("en")]);
  assert.equal(language.value, "en");
  assert.equal(t("close"), "Close");
  await useLanguage("de");
  assert.equal(t("close"), "Schließen");
  for (const unknown of ["xx", "constructor", "__proto__"]) {
    await useLanguage(unknown as Language);
    assert.equal(language.value, "en");
    assert.equal(t("close"), "Close");
  }
});

test("the first language of the user that the page has is preferred", () => {
  assert.equal(preferred(["pt-BR", "zh-Hans-CN", "de"]), "zh");
  assert.equal(preferred(["DE-at"]), "de");
  assert.equal(preferred(["xx", "constructor"]), "en");
  assert.equal(preferred([]), "en");
});
