// What must be seen when the device forces its colours on the page.
import type { Look, Page } from "./browser.ts";

/** palettes returns the looks that a page with forced colours has: light and dark in Chromium, and in Firefox the palette of its launch. */
export const palettes = (page: Page): Look[] => (page.chrome ? (["light", "dark"] as const) : (["dark"] as const)).map((theme) => ({ theme, forced: true }));

/**
 * unseen returns what cannot be seen with forced colours. It runs in the page, and looks at what is visible there:
 * texts, icons and borders have colours of the palette, and contrast with what is behind them.
 */
export function unseen(): string[] {
  const found: string[] = [];
  const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true })!;
  const rgba = (colour: string): number[] => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const palette = new Set(["Canvas", "CanvasText", "LinkText", "VisitedText", "ActiveText", "ButtonFace", "ButtonText", "ButtonBorder", "Field", "FieldText", "Highlight", "HighlightText", "Mark", "MarkText", "GrayText", "AccentColor", "SelectedItem", "SelectedItemText"].map((name) => {
    const probe = document.body.appendChild(document.createElement("span"));
    probe.style.setProperty("color", name);
    const { color } = getComputedStyle(probe);
    probe.remove();
    return rgba(color).join();
  }));
  const luminance = (colour: number[]): number => {
    const [r = 0, g = 0, b = 0] = colour.map((value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a: number[], b: number[]): number => {
    const [low = 0, high = 0] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  const behind = (element: Element | null): number[] => {
    for (let at = element; at; at = at.parentElement) {
      const colour = rgba(getComputedStyle(at).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return rgba("Canvas");
  };
  const nameOf = (element: Element): string => `<${element.tagName.toLowerCase()} class="${element.getAttribute("class") ?? ""}"> ${(element.textContent ?? "").trim().slice(0, 40)}`;
  const check = (element: Element, what: string, colour: string, back: Element | null, least: number): void => {
    const value = rgba(colour);
    const [alpha, below] = [value[3]! / 255, behind(back)];
    const ratio = contrast(value.slice(0, 3).map((part, i) => part * alpha + below[i]! * (1 - alpha)), below);
    if (!palette.has(value.join())) found.push(`${what} has a colour that is not forced, ${colour}: ${nameOf(element)}`);
    else if (ratio < least) found.push(`${what} has a contrast of ${ratio.toFixed(1)} (${colour} on ${below.join()}): ${nameOf(element)}`);
  };
  const edge = (element: Element, what: string): void => {
    const { borderTopWidth, borderTopStyle, borderTopColor } = getComputedStyle(element);
    if (borderTopStyle === "none" || parseFloat(borderTopWidth) < 1) found.push(`${what} has no border: ${nameOf(element)}`);
    else check(element, `the border of ${what}`, borderTopColor, element.parentElement, 3);
  };

  const boxes = "dialog:not(.full), .bubble, .composer-box, .edit-box, .failure, .banner, .toast, .tools, .md-code, .md-table, .preview, .prompt";
  for (const element of document.querySelectorAll("body *")) {
    if (!element.checkVisibility({ visibilityProperty: true, opacityProperty: true }) || element.closest("[disabled], [aria-disabled='true'], .sr-only, .skip, math")) continue;
    const style = getComputedStyle(element);
    if ([...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.nodeValue?.trim())) check(element, "a text", style.color, element, 3);
    if (element.matches("svg.icon")) check(element, "an icon", style.stroke, element.parentElement, 3);
    if (element.matches(".gauge circle:last-child")) check(element, "a gauge", style.stroke, element.closest(".gauge"), 3);
    if (element.matches(".dot, .connection, .dots i")) check(element, "a mark", parseFloat(style.borderTopWidth) ? style.borderTopColor : style.backgroundColor, element.parentElement, 3);
    if (element.matches(boxes)) edge(element, "a box");
    if (element.matches("input:not([type=checkbox], [type=radio], [type=file], [type=range]), select, textarea") && !element.closest(".composer-box, .edit-box")) edge(element, "a field");
  }
  return found;
}
