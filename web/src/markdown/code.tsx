import { Component, type VNode } from "preact";
import { useContext, useEffect, useRef, useState } from "preact/hooks";
import { Diagram, maxDiagram } from "./diagram.tsx";
import { EnvironmentContext } from "./environment.ts";
import type { HighlightNode } from "./highlight.ts";
import { canHighlight, loadLanguage } from "./languages.ts";
import { type CodeNode, languageOf } from "./nodes.ts";
import { format } from "./texts.ts";

/** Longer code stays without colours, because colouring it would block the page. */
const maxHighlight = 30_000;

/** Code shows a block of code, its language and what can be done with it. */
export function Code({ node }: { node: CodeNode }) {
  const { texts } = useContext(EnvironmentContext);
  const [wrap, setWrap] = useState(false);
  const [diagram, setDiagram] = useState(false);
  const language = languageOf(node.info);
  const text = () => node.runs.join("");
  const isDiagram = language === "mermaid" && node.closed;
  const name = language === "" ? texts.code : format(texts.codeIn, { language });
  return (
    <div class="md-code" role="group" aria-label={name}>
      <div class="md-code-bar">
        <span class="md-code-language">{language}</span>
        {isDiagram && (
          <button type="button" aria-expanded={diagram} onClick={() => setDiagram(!diagram)}>
            {diagram ? texts.hideDiagram : texts.showDiagram}
          </button>
        )}
        <button type="button" aria-pressed={wrap} onClick={() => setWrap(!wrap)}>
          {texts.wrap}
        </button>
        <Copy text={text} />
      </div>
      {hasHiddenOrder(node) && <p class="md-warning">{texts.hiddenCharacters}</p>}
      <pre class={wrap ? "md-pre md-wrap" : "md-pre"} dir="ltr" role="group" tabIndex={0} aria-label={name}>
        <Coloured node={node} language={language} />
      </pre>
      {isDiagram && diagram && (text().length > maxDiagram ? <p class="md-warning">{texts.diagramTooLarge}</p> : <Diagram source={text()} />)}
    </div>
  );
}

function hasHiddenOrder(node: CodeNode): boolean {
  return node.closed && node.runs.some((run) => /[\u202A-\u202E\u2066-\u2069]/.test(run));
}

function Copy({ text }: { text: () => string }) {
  const { texts } = useContext(EnvironmentContext);
  const [state, setState] = useState<"" | "copied" | "copyFailed">("");
  const copy = () => {
    const done = (result: "copied" | "copyFailed") => {
      setState(result);
      setTimeout(() => setState(""), 2_000);
    };
    if (!navigator.clipboard) return done("copyFailed");
    navigator.clipboard.writeText(text()).then(
      () => done("copied"),
      () => done("copyFailed"),
    );
  };
  return (
    <>
      <button type="button" class="md-copy" onClick={copy}>
        {texts.copy}
      </button>
      <span class="md-said" role="status">
        {state && texts[state]}
      </span>
    </>
  );
}

/** Coloured shows the text plain at once, and coloured when the block is finished and the colours are ready. */
function Coloured({ node, language }: { node: CodeNode; language: string }) {
  const [coloured, setColoured] = useState<{ readonly node: CodeNode; readonly nodes: readonly HighlightNode[] } | null>(null);
  const element = useRef<HTMLElement>(null);
  useEffect(() => {
    if (!node.closed || !canHighlight(language)) return;
    return whenIdle(async () => {
      const code = node.runs.join("");
      if (code.length > maxHighlight || isSelected(element.current)) return null;
      const [{ highlight }, loaded] = await Promise.all([import("./highlight.ts"), loadLanguage(language)]);
      return loaded && highlight(loaded, code);
    }, (nodes) => setColoured({ node, nodes }));
  }, [node, language]);
  if (coloured?.node === node) return <code ref={element}>{coloured.nodes.map(highlighted)}</code>;
  return (
    <code ref={element}>
      {node.runs.map((run, i) => (
        <Run key={i} text={run} />
      ))}
    </code>
  );
}

/** Run is an element of its own, so that the browser lays out only the last run of a growing block again. */
class Run extends Component<{ text: string }> {
  override shouldComponentUpdate(next: { text: string }): boolean {
    return next.text !== this.props.text;
  }

  override render() {
    return <span class="md-run">{this.props.text}</span>;
  }
}

function highlighted(node: HighlightNode, key: number): VNode | string {
  if (typeof node === "string") return node;
  return (
    <span key={key} class={node.classes}>
      {node.children.map(highlighted)}
    </span>
  );
}

/** A selection would be lost when its text is replaced. Such a block stays plain. */
function isSelected(element: HTMLElement | null): boolean {
  const selection = element?.ownerDocument.getSelection?.();
  return !!element && !!selection && !selection.isCollapsed && selection.containsNode(element, true);
}

function whenIdle<T>(work: () => Promise<T | null>, done: (result: T) => void): () => void {
  let wanted = true;
  const run = () => {
    work().then(
      (result) => wanted && result !== null && done(result),
      () => undefined,
    );
  };
  if (typeof requestIdleCallback === "function") {
    const handle = requestIdleCallback(run, { timeout: 1_000 });
    return () => void ((wanted = false), cancelIdleCallback(handle));
  }
  const handle = setTimeout(run, 50);
  return () => void ((wanted = false), clearTimeout(handle));
}
