/**
 * LaTeX to MathML. Loaded when the first formula is shown.
 *
 * Temml builds nodes in an element that is never part of the page. They are copied here by a list of what is allowed,
 * so that no command of LaTeX can make a link, an image, an id or a style of the page.
 */
import { type ComponentChild, type VNode, h } from "preact";
import temml from "temml";

const elements = new Set(
  (
    "math semantics mrow mi mn mo ms mspace mtext mfrac msqrt mroot mstyle merror mpadded mphantom menclose " +
    "msub msup msubsup munder mover munderover mmultiscripts mprescripts none mtable mtr mtd"
  ).split(" "),
);

const attributes = new Set(
  (
    "display displaystyle scriptlevel mathvariant mathcolor mathbackground mathsize stretchy symmetric fence separator " +
    "accent accentunder largeop movablelimits minsize maxsize lspace rspace form linethickness width height depth voffset " +
    "columnalign rowalign columnspacing rowspacing columnlines rowlines frame notation columnspan rowspan align intent"
  ).split(" "),
);

const styles = new Set(
  ("color backgroundColor padding paddingLeft paddingRight paddingTop paddingBottom border borderLeft borderRight borderTop " +
    "borderBottom textAlign mathDepth mathStyle mathShift fontFamily fontStyle fontWeight fontSize verticalAlign").split(" "),
);

const maxSource = 10_000; // as of the parser, whose module is in another file
const maxNodes = 5_000;
const maxDepth = 80;

/** renderFormula returns the formula, or why it cannot be set. Its cost is bounded. */
export function renderFormula(source: string, display: boolean): VNode | { readonly error: string } {
  if (source.length > maxSource) return { error: "too long" };
  if (/\\(g?def|[exg]def|let|futurelet|(re)?newcommand|providecommand|newenvironment)(?![a-zA-Z])/.test(source)) {
    return { error: "macros are not allowed" };
  }
  if (depthOf(source) > maxDepth) return { error: "nested too deeply" };
  const root = document.createElement("span");
  try {
    temml.render(source, root, {
      displayMode: display,
      throwOnError: true,
      trust: false,
      strict: false,
      maxSize: [50, 50],
      maxExpand: 200,
      wrap: "none",
      annotate: false,
      macros: Object.create(null) as Record<string, unknown>,
    });
    const count = { nodes: 0 };
    const math = root.querySelector("math");
    if (!math) return { error: "no formula" };
    return copy(math, count, 0) as VNode;
  } catch (error) {
    return { error: error instanceof Error ? error.message.slice(0, 200) : "unknown" };
  }
}

function depthOf(source: string): number {
  let depth = 0;
  let most = 0;
  for (const part of source.match(/[{}[\]()]|\\(left|right|begin|end)(?![a-zA-Z])/g) ?? []) {
    if (/^([{[(]|\\left|\\begin)$/.test(part)) most = Math.max(most, ++depth);
    else depth = Math.max(0, depth - 1);
  }
  // A command takes its argument without braces too: \sqrt\sqrt\sqrt x.
  const longest = (source.match(/(\\[a-zA-Z]+\s*){40,}/g) ?? []).length > 0 ? maxDepth + 1 : 0;
  return Math.max(most, longest);
}

function copy(node: Element, count: { nodes: number }, depth: number): ComponentChild {
  if (++count.nodes > maxNodes || depth > 4 * maxDepth) throw new Error("too large");
  const children: ComponentChild[] = [];
  for (const child of node.childNodes) {
    if (child.nodeType === 3) children.push(child.nodeValue);
    else if (child.nodeType === 1) children.push(copy(child as Element, count, depth + 1));
  }
  const name = node.localName.toLowerCase();
  if (!elements.has(name)) return h("mrow", null, ...children);
  const props: Record<string, unknown> = {};
  for (const { name: attribute, value } of node.attributes) if (attributes.has(attribute) && plain(value)) props[attribute] = value;
  const style = stylesOf(node as HTMLElement);
  if (style) props["style"] = style;
  return h(name, props, ...children);
}

function stylesOf(node: HTMLElement): Record<string, string> | null {
  let found: Record<string, string> | null = null;
  for (const name of node.style ? styles : []) {
    const value = (node.style as unknown as Record<string, string | undefined>)[name];
    if (value && plain(value)) (found ??= {})[name] = value;
  }
  return found;
}

/** plain reports whether a value cannot refer to anything. */
function plain(value: string): boolean {
  return value.length < 200 && /^[\w\s.,#%()+-]*$/.test(value) && !/url|image|expression/i.test(value);
}
