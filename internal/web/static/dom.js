// Small parts of the page. Texts are set as textContent, never as markup.

export function element(name, className, text, ...children) {
  const e = document.createElement(name);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  e.append(...children);
  return e;
}

export function button(label, onclick, className) {
  const b = element("button", className, label);
  b.type = "button";
  b.onclick = onclick;
  return b;
}

export function folded(summary, text) {
  return element("details", "", undefined, element("summary", "", summary), element("div", "text", text));
}

// listOf returns the objects in a list. The value comes from a client or plugin, so it may
// be no list at all, or contain anything.
export const listOf = (value) => (Array.isArray(value) ? value : []).filter((v) => v && typeof v === "object");
