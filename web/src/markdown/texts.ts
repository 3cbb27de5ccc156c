/** The visible texts. A catalogue of another language has the same keys. {name} stands for a value. */
export const englishTexts = {
  blockedLink: "This address cannot be opened: {url}",
  leadsTo: "leads to {place}",
  loadImage: "Load image from {place}",
  imageRefused: "Image that cannot be loaded",
  imageFailed: "The image could not be loaded from {place}",
  image: "Image",
  code: "Code",
  codeIn: "Code in {language}",
  copy: "Copy",
  copied: "Copied",
  copyFailed: "Copying failed",
  wrap: "Wrap lines",
  hiddenCharacters: "Contains invisible characters that change the order of the text",
  showDiagram: "Show diagram",
  hideDiagram: "Hide diagram",
  diagram: "Diagram",
  diagramFailed: "The diagram cannot be drawn: {reason}",
  diagramTooLarge: "The diagram is too large to be drawn",
  formula: "Formula",
  formulaFailed: "The formula cannot be set: {reason}",
  table: "Table",
  tableOf: "Table with the columns {columns}",
  taskDone: "Done",
  taskOpen: "Not done",
  footnotes: "Footnotes",
  footnote: "Footnote {number}",
  backToText: "Back to the text",
};

export type Texts = typeof englishTexts;

/** format replaces {name} in a text by a value. */
export function format(text: string, values: Readonly<Record<string, string | number>>): string {
  return text.replace(/\{(\w+)\}/g, (whole, name: string) => (name in values ? String(values[name]) : whole));
}
