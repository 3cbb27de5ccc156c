/** The HTML of nodes as the specifications write it, for comparison with their examples. Raw HTML is written as it is. */
import type { BlockNode, Inline, InlineNode, ListItem } from "../../src/markdown/nodes.ts";
import { languageOf } from "../../src/markdown/nodes.ts";

export function htmlOf(nodes: readonly BlockNode[]): string {
  return nodes.map((node) => block(node, false)).join("");
}

function escape(text: string): string {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");
}

function block(node: BlockNode, tight: boolean): string {
  switch (node.type) {
    case "paragraph":
      return tight ? inline(node.inline) : `<p>${inline(node.inline)}</p>\n`;
    case "heading":
      return `<h${node.level}>${inline(node.inline)}</h${node.level}>\n`;
    case "code": {
      const language = languageOfExample(node.info);
      return `<pre><code${language ? ` class="language-${escape(language)}"` : ""}>${escape(node.runs.join(""))}</code></pre>\n`;
    }
    case "quote":
      return `<blockquote>\n${htmlOf(node.children)}</blockquote>\n`;
    case "list": {
      const tag = node.ordered ? "ol" : "ul";
      const start = node.ordered && node.start !== 1 ? ` start="${node.start}"` : "";
      return `<${tag}${start}>\n${node.items.map((i) => item(i, node.tight)).join("")}</${tag}>\n`;
    }
    case "table":
      return table(node);
    case "rule":
      return "<hr />\n";
    case "html":
      return node.value;
    case "math":
      return `<math display="block">${escape(node.value)}</math>\n`;
    case "note":
      return `<note label="${escape(node.label)}">${htmlOf(node.children)}</note>\n`;
    case "plain":
      return `<plain>${escape(node.value)}</plain>\n`;
  }
}

/** The specifications keep the case of the language. */
function languageOfExample(info: string): string {
  return info.split(/\s/)[0] ?? languageOf(info);
}

function item({ task, children }: ListItem, tight: boolean): string {
  const box = task === null ? "" : `<input ${task ? 'checked="" ' : ""}disabled="" type="checkbox"> `;
  let html = "";
  for (const child of children) {
    const bare = tight && child.type === "paragraph";
    if (!bare && !html.endsWith("\n")) html += "\n";
    html += block(child, tight);
  }
  return `<li>${box}${html}</li>\n`;
}

function table(node: Extract<BlockNode, { type: "table" }>): string {
  const row = (cells: readonly Inline[], tag: string) =>
    `<tr>\n${cells
      .map((cell, i) => `<${tag}${node.align[i] ? ` align="${node.align[i]}"` : ""}>${inline(cell)}</${tag}>\n`)
      .join("")}</tr>\n`;
  const body = node.rows.length > 0 ? `<tbody>\n${node.rows.map((r) => row(r, "td")).join("")}</tbody>\n` : "";
  return `<table>\n<thead>\n${row(node.head, "th")}</thead>\n${body}</table>\n`;
}

function inline({ nodes }: Inline): string {
  return nodes.map(inlineNode).join("");
}

function inlineNode(node: InlineNode): string {
  const children = "children" in node ? node.children.map(inlineNode).join("") : "";
  switch (node.type) {
    case "text":
      return escape(node.value);
    case "code":
      return `<code>${escape(node.value)}</code>`;
    case "html":
      return node.value;
    case "break":
      return "<br />\n";
    case "softbreak":
      return "\n";
    case "em":
    case "strong":
    case "del":
      return `<${node.type}>${children}</${node.type}>`;
    case "link":
      return `<a href="${escape(node.href)}"${title(node.title)}>${children}</a>`;
    case "image":
      return `<img src="${escape(node.src)}" alt="${escape(node.alt)}"${title(node.title)} />`;
    case "math":
      return `<math${node.display ? ' display="block"' : ""}>${escape(node.value)}</math>`;
    case "noteRef":
      return `<ref>${escape(node.label)}</ref>`;
  }
}

function title(text: string): string {
  return text === "" ? "" : ` title="${escape(text)}"`;
}
