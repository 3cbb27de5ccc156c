// What takes long when it is done first is done before somebody waits for it.
import { clockTime, fullTime } from "../i18n/index.ts";
import { MarkdownDocument } from "../markdown/index.ts";
import { whenIdle } from "../model/idle.ts";

const steps = [
  () => clockTime().format(0),
  () => fullTime().format(0),
  () => new MarkdownDocument().update("- *b* `c` [d](e)\n\n|f|\n|-|\n\n# https://g.h"), // for which the parser makes its rules
];

/** warmUp makes the formats of times, which takes tens of milliseconds, and parses a text, each when the page is idle. */
export function warmUp(): void {
  whenIdle(() => {
    steps.shift()!();
    if (steps.length) warmUp();
  });
}
