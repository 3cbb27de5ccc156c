// What takes long when it is done first is done before somebody waits for it.
import { clockTime, fullTime } from "../i18n/index.ts";
import { MarkdownDocument } from "../markdown/index.ts";

const steps = [
  () => clockTime().format(0),
  () => fullTime().format(0),
  () => new MarkdownDocument().update("- *b* `c` [d](e)\n\n|f|\n|-|\n\n# https://g.h"), // for which the parser makes its rules
];

/** warmUp makes the formats of times, which takes tens of milliseconds, and parses a text, each when the page is idle, but soon. */
export function warmUp(): void {
  const soon = (): void => void (typeof requestIdleCallback === "function" ? requestIdleCallback(next, { timeout: 100 }) : setTimeout(next)); // Safari has no idle times
  const next = (): void => {
    steps.shift()!();
    if (steps.length) soon();
  };
  soon();
}
