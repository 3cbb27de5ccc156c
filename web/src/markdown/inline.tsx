import { Component } from "preact";
import { useContext, useState } from "preact/hooks";
import { EnvironmentContext } from "./environment.ts";
import { Formula } from "./formula-view.tsx";
import type { Inline, InlineNode } from "./nodes.ts";
import { format } from "./texts.ts";
import { imageTarget, linkTarget, misleads } from "./url.ts";

/** InlineView shows a run of inline content. It renders again only if the run changed. */
export class InlineView extends Component<{ inline: Inline }> {
  override shouldComponentUpdate(next: { inline: Inline }): boolean {
    return next.inline !== this.props.inline;
  }

  override render() {
    return <Nodes nodes={this.props.inline.nodes} />;
  }
}

function Nodes({ nodes }: { nodes: readonly InlineNode[] }) {
  return <>{nodes.map(inlineNode)}</>;
}

function inlineNode(node: InlineNode, key: number) {
  switch (node.type) {
    case "text":
      return node.value;
    case "code":
      return <code key={key} dir="ltr">{node.value}</code>;
    case "html":
      return <Html key={key} value={node.value} />;
    case "break":
      return <br key={key} />;
    case "softbreak":
      return <SoftBreak key={key} />;
    case "em":
      return (
        <em key={key}>
          <Nodes nodes={node.children} />
        </em>
      );
    case "strong":
      return (
        <strong key={key}>
          <Nodes nodes={node.children} />
        </strong>
      );
    case "del":
      return (
        <del key={key}>
          <Nodes nodes={node.children} />
        </del>
      );
    case "link":
      return <Link key={key} node={node} />;
    case "image":
      return <Image key={node.src} node={node} />;
    case "math":
      return <Formula key={key} value={node.value} display={node.display} source={node.source} />;
    case "noteRef":
      return <NoteRef key={key} label={node.label} />;
  }
}

/** Raw HTML is text. Only the line break, which tables need, is what it means. */
function Html({ value }: { value: string }) {
  return /^<br\s*\/?>$/i.test(value) ? <br /> : <>{value}</>;
}

function SoftBreak() {
  const { lineEnds } = useContext(EnvironmentContext);
  return lineEnds ? <br /> : <>{"\n"}</>;
}

export function plainText(nodes: readonly InlineNode[]): string {
  let text = "";
  for (const node of nodes) {
    if (node.type === "image") text += node.alt;
    else if (node.type === "break" || node.type === "softbreak") text += " ";
    else if ("value" in node) text += node.value;
    else if ("children" in node) text += plainText(node.children);
  }
  return text;
}

function Link({ node }: { node: Extract<InlineNode, { type: "link" }> }) {
  const { texts, onLeave } = useContext(EnvironmentContext);
  const target = linkTarget(node.href);
  if (!target) {
    return (
      <span class="md-blocked" title={format(texts.blockedLink, { url: node.href.slice(0, 200) })}>
        <Nodes nodes={node.children} />
      </span>
    );
  }
  const follow = (event: MouseEvent) => {
    if (onLeave?.(target.url)) event.preventDefault();
  };
  return (
    <>
      <a
        href={target.url}
        title={node.title === "" ? target.url : `${node.title}\n${target.url}`}
        target="_blank"
        rel="noopener noreferrer nofollow"
        referrerpolicy="no-referrer"
        onClick={follow}
        onAuxClick={follow}
      >
        <Nodes nodes={node.children} />
      </a>
      {misleads(plainText(node.children), target) && (
        <span class="md-target" dir="ltr">
          {" ("}
          {format(texts.leadsTo, { place: target.place })}
          {")"}
        </span>
      )}
    </>
  );
}

function Image({ node }: { node: Extract<InlineNode, { type: "image" }> }) {
  const { texts, asset } = useContext(EnvironmentContext);
  const [state, setState] = useState<"waiting" | "wanted" | "failed">("waiting");
  const own = asset?.(node.src) ?? null;
  const target = own === null ? imageTarget(node.src) : { kind: "shown" as const, url: own };
  const alt = node.alt || node.title || texts.image;
  if (target.kind === "refused") {
    return (
      <span class="md-blocked" title={texts.imageRefused}>
        {alt}
      </span>
    );
  }
  const place = target.kind === "remote" ? target.place : "";
  if (state === "failed") return <span class="md-blocked">{`${alt} – ${format(texts.imageFailed, { place })}`}</span>;
  if (target.kind === "remote" && state === "waiting") {
    return (
      <button type="button" class="md-load" title={target.url} onClick={() => setState("wanted")}>
        {node.alt && <span class="md-load-alt">{node.alt}</span>}
        {format(texts.loadImage, { place })}
      </button>
    );
  }
  return (
    <img
      class="md-image"
      src={target.url}
      alt={alt}
      title={node.title || undefined}
      loading="lazy"
      decoding="async"
      referrerpolicy="no-referrer"
      onError={() => setState("failed")}
    />
  );
}

export function noteId(prefix: string, number: number): string {
  return `${prefix}-note-${number}`;
}

/** NoteRef shows the number of a footnote. Numbers may change when a definition arrives, without a new node. */
function NoteRef({ label }: { label: string }) {
  const { texts, idPrefix, numbers } = useContext(EnvironmentContext);
  const number = numbers.value.get(label);
  if (number === undefined) return <>{`[^${label}]`}</>;
  const id = noteId(idPrefix, number);
  return (
    <sup class="md-ref">
      <a href={`#${id}`} data-note={id} aria-label={format(texts.footnote, { number })} onClick={(event) => jump(event, id)}>
        {number}
      </a>
    </sup>
  );
}

/** jump moves the focus, and leaves the page's address as it is. */
export function jump(event: MouseEvent, id: string): void {
  event.preventDefault();
  const target = document.getElementById(id) ?? document.querySelector<HTMLElement>(`[data-note="${CSS.escape(id)}"]`);
  target?.focus();
  target?.scrollIntoView({ block: "nearest" });
}
