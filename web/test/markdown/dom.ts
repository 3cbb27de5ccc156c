/** A document for tests of the view, and what a page can see of requests and executions. */
import { Window } from "happy-dom";

export const window = new Window({
  url: "https://loquat.example/",
  settings: { disableJavaScriptEvaluation: true, disableJavaScriptFileLoading: true, disableCSSFileLoading: true, disableIframePageLoading: true },
} as ConstructorParameters<typeof Window>[0]);

const shared = [
  "document", "navigator", "HTMLElement", "Element", "Node", "Text", "SVGElement", "MathMLElement", "CSS", "MutationObserver", "Event", "MouseEvent",
  "addEventListener", "removeEventListener", "getComputedStyle", "requestAnimationFrame", "cancelAnimationFrame", "MessageEvent",
] as const;

for (const name of shared) {
  const value = (window as unknown as Record<string, unknown>)[name];
  if (value === undefined) continue;
  const bound = typeof value === "function" && /^[a-z]/.test(name) ? value.bind(window) : value;
  Object.defineProperty(globalThis, name, { value: bound, configurable: true, writable: true });
}
// The page is idle at once, so code gets its colours soon.
Object.assign(globalThis, { requestIdleCallback: (run: () => void) => setTimeout(run), cancelIdleCallback: clearTimeout });

// Temml draws nothing in a page without a doctype.
Object.defineProperty(window.document, "compatMode", { value: "CSS1Compat" });
Object.defineProperty(globalThis, "window", { value: window, configurable: true, writable: true });

// happy-dom has no style of MathML elements, which browsers have.
const stylesOfMath = new WeakMap<object, object>();
Object.defineProperty(window.Element.prototype, "style", {
  configurable: true,
  get(this: object) {
    if (!stylesOfMath.has(this)) stylesOfMath.set(this, {});
    return stylesOfMath.get(this);
  },
});

/** sinks counts each use of what turns text into markup. */
export const sinks: string[] = [];
for (const name of ["innerHTML", "outerHTML"] as const) {
  const prototypes = [window.Element.prototype, window.HTMLElement.prototype] as unknown as object[];
  for (const prototype of prototypes) {
    const descriptor = Object.getOwnPropertyDescriptor(prototype, name);
    if (!descriptor?.set) continue;
    Object.defineProperty(prototype, name, { ...descriptor, set: (value: string) => void sinks.push(`${name}: ${value}`) });
  }
}
const element = window.Element.prototype as unknown as { insertAdjacentHTML(where: string, text: string): void };
element.insertAdjacentHTML = (where, text) => void sinks.push(`insertAdjacentHTML ${where}: ${text}`);
window.document.write = (text: string) => void sinks.push(`write: ${text}`);

/** settled waits until what was started by a render is done, and all of the text is shown: at least five times `ms`. */
export async function settled(ms = 5): Promise<void> {
  const began = Date.now();
  for (let i = 0; i < 5 || document.querySelector("[aria-busy=true]"); i++) {
    if (Date.now() - began > 10_000) throw new Error("the text is not shown after ten seconds");
    await new Promise((resolve) => setTimeout(resolve, ms));
  }
}

/** container returns an empty element of the page. */
export function container(): HTMLElement {
  const element = document.createElement("div");
  document.body.append(element);
  return element;
}

/** shape returns an element's tree without what is only how the components are divided. */
export function shape(node: Node): unknown {
  if (node.nodeType === 3) return (node as Text).data;
  if (node.nodeType !== 1) return null;
  const element = node as Element;
  const attributes = element.getAttributeNames().sort().map((name) => `${name}=${element.getAttribute(name)}`);
  const children: unknown[] = [];
  for (const child of element.childNodes) {
    const next = shape(child);
    if (next === null || next === "") continue;
    const last = children.length - 1;
    if (typeof next === "string" && typeof children[last] === "string") children[last] += next;
    else children.push(next);
  }
  return [element.localName, attributes, children];
}
