// JSON for people: the text of the arguments and results of tools, with line ends.

/** pretty returns JSON with one member a line. Numbers stay as they are written. Any other text is returned as it is. */
export function pretty(text: string): string {
  const trimmed = text.trim();
  if (!/^[[{]/.test(trimmed) || !isJSON(trimmed)) return text;
  let out = "";
  let depth = 0;
  const line = (): string => "\n" + "  ".repeat(depth);
  for (let i = 0; i < trimmed.length; i++) {
    const c = trimmed[i]!;
    if (c === '"') {
      const end = endOfString(trimmed, i);
      out += trimmed.slice(i, end);
      i = end - 1;
    } else if (c === "{" || c === "[") {
      const next = /\S/.exec(trimmed.slice(i + 1, i + 1000))?.[0];
      if (next === "}" || next === "]") {
        i = trimmed.indexOf(next, i);
        out += c + next;
      } else {
        depth++;
        out += c + line();
      }
    } else if (c === "}" || c === "]") {
      depth--;
      out += line() + c;
    } else if (c === ",") out += c + line();
    else if (c === ":") out += ": ";
    else if (!/\s/.test(c)) out += c;
  }
  return out;
}

function isJSON(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** endOfString returns the position after the string that begins at a position. */
function endOfString(text: string, at: number): number {
  let i = at + 1;
  while (i < text.length && text[i] !== '"') i += text[i] === "\\" ? 2 : 1;
  return i + 1;
}

/** gist returns the first text or number in the arguments of a call, for the line that stands for it. */
export function gist(json: string): string {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch {
    return "";
  }
  const first = typeof value === "object" && value !== null ? Object.values(value).find((v) => typeof v === "string" || typeof v === "number") : value;
  return typeof first === "string" || typeof first === "number" ? String(first).replace(/\s+/g, " ").slice(0, 200) : "";
}
