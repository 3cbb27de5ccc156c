/**
 * Markdown for the web client: hostile text to nodes, as it grows, without innerHTML.
 *
 * document.ts holds the pure part, which the view in markdown.tsx shows.
 */
export { MarkdownDocument } from "./document.ts";
export { Markdown, type MarkdownProps } from "./markdown.tsx";
export { type Texts, englishTexts } from "./texts.ts";
