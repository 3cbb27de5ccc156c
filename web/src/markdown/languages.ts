/** The languages that can be coloured. Each is loaded when it is first needed. */
import type { LanguageFn } from "highlight.js";

type Load = () => Promise<{ default: LanguageFn }>;

const loaders: Readonly<Record<string, Load>> = {
  bash: () => import("highlight.js/lib/languages/bash"),
  c: () => import("highlight.js/lib/languages/c"),
  cpp: () => import("highlight.js/lib/languages/cpp"),
  csharp: () => import("highlight.js/lib/languages/csharp"),
  css: () => import("highlight.js/lib/languages/css"),
  dart: () => import("highlight.js/lib/languages/dart"),
  diff: () => import("highlight.js/lib/languages/diff"),
  dockerfile: () => import("highlight.js/lib/languages/dockerfile"),
  elixir: () => import("highlight.js/lib/languages/elixir"),
  erlang: () => import("highlight.js/lib/languages/erlang"),
  go: () => import("highlight.js/lib/languages/go"),
  graphql: () => import("highlight.js/lib/languages/graphql"),
  haskell: () => import("highlight.js/lib/languages/haskell"),
  ini: () => import("highlight.js/lib/languages/ini"),
  java: () => import("highlight.js/lib/languages/java"),
  javascript: () => import("highlight.js/lib/languages/javascript"),
  json: () => import("highlight.js/lib/languages/json"),
  julia: () => import("highlight.js/lib/languages/julia"),
  kotlin: () => import("highlight.js/lib/languages/kotlin"),
  latex: () => import("highlight.js/lib/languages/latex"),
  less: () => import("highlight.js/lib/languages/less"),
  lua: () => import("highlight.js/lib/languages/lua"),
  makefile: () => import("highlight.js/lib/languages/makefile"),
  markdown: () => import("highlight.js/lib/languages/markdown"),
  nginx: () => import("highlight.js/lib/languages/nginx"),
  nix: () => import("highlight.js/lib/languages/nix"),
  objectivec: () => import("highlight.js/lib/languages/objectivec"),
  perl: () => import("highlight.js/lib/languages/perl"),
  php: () => import("highlight.js/lib/languages/php"),
  powershell: () => import("highlight.js/lib/languages/powershell"),
  protobuf: () => import("highlight.js/lib/languages/protobuf"),
  python: () => import("highlight.js/lib/languages/python"),
  r: () => import("highlight.js/lib/languages/r"),
  ruby: () => import("highlight.js/lib/languages/ruby"),
  rust: () => import("highlight.js/lib/languages/rust"),
  scala: () => import("highlight.js/lib/languages/scala"),
  scss: () => import("highlight.js/lib/languages/scss"),
  sql: () => import("highlight.js/lib/languages/sql"),
  swift: () => import("highlight.js/lib/languages/swift"),
  typescript: () => import("highlight.js/lib/languages/typescript"),
  vim: () => import("highlight.js/lib/languages/vim"),
  xml: () => import("highlight.js/lib/languages/xml"),
  yaml: () => import("highlight.js/lib/languages/yaml"),
};

const aliases: Readonly<Record<string, string>> = Object.fromEntries(
  Object.entries({
    bash: "sh shell zsh console shellsession",
    c: "h",
    cpp: "c++ cc hpp cxx",
    csharp: "cs c#",
    diff: "patch",
    dockerfile: "docker",
    elixir: "ex exs",
    erlang: "erl",
    go: "golang",
    graphql: "gql",
    haskell: "hs",
    ini: "toml conf",
    javascript: "js jsx mjs cjs",
    json: "jsonc json5",
    julia: "jl",
    kotlin: "kt",
    latex: "tex",
    makefile: "make mk",
    markdown: "md",
    objectivec: "objc",
    perl: "pl",
    powershell: "ps1 pwsh",
    protobuf: "proto",
    python: "py python3",
    ruby: "rb",
    rust: "rs",
    sql: "postgresql mysql sqlite",
    typescript: "ts tsx mts",
    vim: "viml",
    xml: "html xhtml svg vue svelte",
    yaml: "yml",
  }).flatMap(([name, others]) => others.split(" ").map((other) => [other, name])),
);

function nameOf(language: string): string | null {
  const name = Object.hasOwn(aliases, language) ? aliases[language]! : language;
  return Object.hasOwn(loaders, name) ? name : null;
}

/** canHighlight reports whether code in a language can be coloured. */
export function canHighlight(language: string): boolean {
  return nameOf(language) !== null;
}

export interface Language {
  readonly name: string;
  readonly grammar: LanguageFn;
}

/** loadLanguage returns the grammar of a language, or null for an unknown one. */
export async function loadLanguage(language: string): Promise<Language | null> {
  const name = nameOf(language);
  return name === null ? null : { name, grammar: (await loaders[name]!()).default };
}
