// Which blocks of a text that is being written are finished. Assistive technology hears only those.

/** finishedUpTo returns the length of the part of a text that ends with a blank line outside of code. */
export function finishedUpTo(text: string, from = 0): number {
  let fence = "";
  let end = from;
  let at = from;
  while (at < text.length) {
    const stop = text.indexOf("\n", at);
    if (stop < 0) break;
    const line = text.slice(at, stop);
    const mark = /^ {0,3}(`{3,}|~{3,})/.exec(line)?.[1] ?? "";
    if (fence) {
      if (mark.startsWith(fence) && line.trim() === mark) fence = "";
    } else if (mark) fence = mark;
    else if (!line.trim()) end = stop + 1;
    at = stop + 1;
  }
  return end;
}

/** spoken returns Markdown as one would read it aloud: without the marks. No pattern here takes more than linear time. */
export function spoken(markdown: string): string {
  return markdown
    .replace(/^ {0,3}(`{3,}|~{3,}).*$/gm, "")
    .replace(/!?\[([^[\]]{0,1000})\]\((?:[^()\n]|\([^()\n]*\)){0,4000}\)/g, "$1")
    .replace(/^[ \t]*(#{1,6}|>|[-*+]|\d+[.)])[ \t]+/gm, "")
    .replace(/^[ \t:|-]{3,}$/gm, "")
    .replace(/(\*\*|__|~~|`)/g, "")
    .replace(/\|/g, ", ")
    .replace(/\n{2,}/g, "\n")
    .trim();
}

/** quoted returns a text as a quotation of Markdown, with room for what the user writes below. */
export const quoted = (text: string): string =>
  text
    .trim()
    .split("\n")
    .map((line) => `> ${line}`.trimEnd())
    .join("\n") + "\n\n";
