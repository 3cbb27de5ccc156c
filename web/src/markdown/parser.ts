/**
 * The Markdown parser: markdown-it with GitHub's tables, strikethrough and autolinks, footnotes, and formulas.
 *
 * The two phases are separate here. Blocks are found first, and the inline content of a block is parsed later, on its
 * own and only when it changed. That is what makes parsing of a growing text cheap.
 */
import MarkdownItConstructor, { type Env, type StateBlock, type Token } from "markdown-it";
import footnotePlugin from "markdown-it-footnote";
import { formulaPlugin } from "./formula.ts";

export type { Token };

/** Definition is the target of a link reference, or the sign that a footnote exists. */
export interface Definition {
  readonly href: string;
  readonly title: string;
}

export type Definitions = Map<string, Definition>;

/** Blocks nested deeper than this are shown as plain text. */
export const maxNesting = 60;

const md = makeParser();

type BlockRule = (state: StateBlock, start: number, end: number, silent: boolean) => boolean;

function makeParser() {
  const parser = new MarkdownItConstructor({ html: true, linkify: true, maxNesting });
  // The view decides which targets may become links, so that a refused link is still shown.
  parser.validateLink = () => true;
  // The text of an autolink stays what the author wrote. Decoding would show look-alike hosts.
  parser.normalizeLinkText = (text) => text;
  addFootnotes(parser);
  formulaPlugin(parser);
  parser.core.ruler.enableOnly(["inline", "linkify", "text_join"]);
  parser.linkify.add("ftp:", null).add("//", null);
  parser.linkify.add("www.", {
    validate(text, pos, self) {
      const host = new RegExp(self.re.get_url_host_port().source + self.re.get_path().source, "iy");
      host.lastIndex = pos;
      return host.exec(text)?.[0].length ?? 0;
    },
    normalize(match) {
      match.url = "http://" + match.url;
    },
  });
  return parser;
}

/** addFootnotes adds the footnote plugin, and records on which lines a definition stands. */
function addFootnotes(parser: typeof MarkdownItConstructor.prototype): void {
  const ruler = parser.block.ruler;
  const before = ruler.before.bind(ruler);
  ruler.before = (name, ruleName, rule, options) => before(name, ruleName, withLines(rule as BlockRule), options);
  footnotePlugin(parser);
  ruler.before = before;
  parser.inline.ruler.disable("footnote_inline");
}

function withLines(rule: BlockRule): BlockRule {
  return (state, start, end, silent) => {
    const first = state.tokens.length;
    if (!rule(state, start, end, silent)) return false;
    const token = state.tokens[first];
    if (!silent && token) token.map = [start, state.line];
    return true;
  };
}

/** noteKey returns the key of a footnote among the definitions. No link label has this form. */
export function noteKey(label: string): string {
  return "^:" + label;
}

/**
 * parseBlocks returns the tokens of the blocks of src, without inline content.
 * src has "\n" line ends and no NUL.
 */
export function parseBlocks(src: string): { tokens: Token[]; references: Readonly<Record<string, Definition>> } {
  const references = Object.create(null) as Record<string, Definition>;
  const tokens: Token[] = [];
  md.block.parse(src, md, { references } as Env, tokens);
  return { tokens, references };
}

/**
 * parseInline returns the tokens of one run of inline content, and the labels that it looked up.
 */
export function parseInline(content: string, definitions: ReadonlyMap<string, Definition>) {
  const lookups = new Set<string>();
  const find = (label: string) => {
    lookups.add(label);
    return definitions.get(label);
  };
  const references = new Proxy({}, { get: (_, label) => (typeof label === "string" ? find(label) : undefined) });
  const refs = new Proxy(
    {},
    {
      get: (_, key) => (typeof key === "string" && find("^" + key) ? -1 : undefined),
      set: () => true,
    },
  );
  const env = { references, footnotes: { refs, list: [] } } as unknown as Env;
  const state = new md.core.State("", md, env);
  const token = new state.Token("inline", "", 0);
  token.content = content;
  token.children = [];
  state.tokens = [token];
  md.core.process(state);
  return { tokens: token.children ?? [], lookups: [...lookups] };
}

/** unescapeText resolves backslash escapes and entities. */
export function unescapeText(text: string): string {
  return md.utils.unescapeAll(text);
}
