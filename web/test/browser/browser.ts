// Browsers for tests: Debian's Chromium and Firefox, by one driver.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { setTimeout } from "node:timers/promises";
import puppeteer, { type Browser, type BrowserContext, type CDPSession, type ElementHandle, type Page as DriverPage, type KeyInput } from "puppeteer-core";

/** The kinds of browsers, with the programs that Debian and others install. */
const programs = {
  chrome: ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"],
  firefox: ["/usr/bin/firefox-esr", "/usr/bin/firefox"],
} as const;
export type Kind = keyof typeof programs;

/** programOf returns the program of a kind, or nothing if it is not installed. */
export const programOf = (kind: Kind): string | undefined => programs[kind].find(existsSync);

/** missing returns why tests with a kind of browser are skipped, or false. In CI a missing browser is a failure. */
export function missing(kind: Kind): string | false {
  if (programOf(kind)) return false;
  if (process.env["CI"]) throw new Error(`${kind} is not installed; .ci/install installs it`);
  return `${kind} is not installed`;
}

/** Form is a kind of screen. */
export interface Form {
  readonly name: string;
  readonly width: number;
  readonly height: number;
  readonly touch: boolean;
}

export const desktop: Form = { name: "desktop", width: 1280, height: 800, touch: false };
export const phone: Form = { name: "phone", width: 390, height: 844, touch: true };

/** Look is what a page learns from the device about colours. */
export interface Look {
  theme?: "light" | "dark";
  contrast?: "no-preference" | "more";
  /** Whether the colours of the device replace those of the page. Firefox must be launched so. */
  forced?: boolean;
}

/** PageOptions choose how a page is shown. */
export interface PageOptions extends Omit<Look, "contrast"> {
  form?: Form;
  /** Whether errors in the console are expected. */
  tolerant?: boolean;
  /** Runs in the page before its own code, for example to put something in the place of what a test browser lacks. */
  before?: () => void;
}

/** The preferences of Firefox that force a palette: yellow on black, which is neither of the page's themes. */
const forcedPalette = { "browser.display.document_color_use": 2, "browser.display.use_system_colors": false, "browser.display.foreground_color": "#ffff00", "browser.display.background_color": "#000000", "browser.anchor_color": "#00ffff", "browser.visited_color": "#00ffff", "ui.highlight": "#00ff00", "ui.highlighttext": "#000000" };

/** launch starts a browser, with forced colours if it is Firefox and they are wanted, and with further preferences of Firefox. The caller closes it. */
export async function launch(kind: Kind, forced = false, preferences: Record<string, unknown> = {}): Promise<Browser> {
  const executablePath = programOf(kind);
  assert(executablePath, `${kind} is not installed`);
  const args = kind === "chrome" ? ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--force-color-profile=srgb"] : [];
  return puppeteer.launch({ browser: kind, executablePath, headless: true, args, extraPrefsFirefox: { ...(forced && forcedPalette), ...preferences }, timeout: 180_000, protocolTimeout: 180_000 });
}

/** Page is one window. All waits end after 20 s with an error that names what was missing. */
export class Page {
  /** Errors of the page: exceptions, and errors in its console. */
  readonly faults: string[] = [];
  private media?: CDPSession;

  private constructor(
    readonly driver: DriverPage,
    readonly context: BrowserContext,
    readonly chrome: boolean,
    /** Whether it has forced colours. */
    readonly forced: boolean,
    private readonly tolerant: boolean,
  ) {}

  /** open opens a window that shares nothing with others, unless they are given the same context. */
  static async open(browser: Browser, url: string, { form = desktop, theme = "light", forced = false, tolerant = false, before }: PageOptions = {}, context?: BrowserContext): Promise<Page> {
    const inside = context ?? (await browser.createBrowserContext());
    const driver = await inside.newPage();
    const chrome = !/firefox/i.test(await browser.version());
    const page = new Page(driver, inside, chrome, forced, tolerant);
    driver.setDefaultTimeout(20_000);
    driver.on("pageerror", (thrown) => page.faults.push(String(thrown)));
    driver.on("console", (line) => line.type() === "error" && page.faults.push(line.text()));
    await driver.setViewport({ width: form.width, height: form.height, ...(form.touch && chrome && { isMobile: true, hasTouch: true }) });
    if (chrome) await page.look({ theme, forced });
    else if (theme === "dark") await driver.evaluateOnNewDocument(darkTheme); // Firefox's protocol does not emulate media features
    await driver.evaluateOnNewDocument("globalThis.__name ??= (made) => made"); // with which the loader of the tests names functions
    if (before) await driver.evaluateOnNewDocument(before);
    await driver.goto(url, { waitUntil: "domcontentloaded" });
    return page;
  }

  /**
   * look changes what the page learns about colours and motion. In Firefox, whose protocol does not emulate
   * media features, it sets on the root what the page sets there after it has asked for them.
   */
  async look({ theme = "light", contrast = "no-preference", forced = false }: Look, motion: "no-preference" | "reduce" = "no-preference"): Promise<void> {
    if (!this.chrome) {
      const set = { theme, contrast: contrast === "more" ? "more" : "normal", ...(motion === "reduce" && { motion: "none" }) };
      return this.driver.evaluate((to) => void Object.assign(document.documentElement.dataset, to), set);
    }
    this.media ??= await this.driver.createCDPSession();
    const features = { "prefers-color-scheme": theme, "prefers-contrast": contrast, "prefers-reduced-motion": motion, "forced-colors": forced ? "active" : "none" };
    await this.media.send("Emulation.setEmulatedMedia", { features: Object.entries(features).map(([name, value]) => ({ name, value })) });
  }

  /** close closes the window and checks that it had no errors. */
  async close(): Promise<void> {
    await this.driver.close();
    if (!this.tolerant) assert.deepEqual(this.faults, [], "errors in the page's console");
  }

  /** at returns the element with a name for tests, as soon as it is visible. */
  async at(name: string, where = ""): Promise<ElementHandle<HTMLElement>> {
    const found = await this.driver.waitForSelector(selector(name) + where, { visible: true });
    assert(found, `${name} is not shown`);
    return found as unknown as ElementHandle<HTMLElement>;
  }

  /** click clicks the first element with a name. It tries again if the element is replaced or moves away meanwhile, as it may beside a reply that streams. */
  async click(name: string, where = ""): Promise<void> {
    for (let tries = 20; ; tries--) {
      try {
        if (await hit(await this.at(name, where))) return;
        if (!tries) throw new Error(`20 clicks did not reach ${name}`);
      } catch (error) {
        if (!tries || !/not clickable|detached|not attached/i.test(String(error))) throw error;
      }
      await setTimeout(100);
    }
  }

  /** type types into an element, after what it has. */
  async type(name: string, text: string): Promise<void> {
    const field = await this.at(name);
    await field.focus();
    await this.driver.keyboard.type(text);
  }

  /** act chooses an entry of the menu of the message at an index. */
  async act(index: number, entry: string): Promise<void> {
    await this.click("message", `[data-index="${index}"] ${selector("message-menu")}`);
    await this.click(entry);
  }

  /** list shows the list of sessions, which is a drawer on a phone. */
  async list(): Promise<void> {
    const narrow = await this.driver.evaluate(() => innerWidth < 700);
    if (!narrow || (await this.driver.$(".with-drawer"))) return;
    await this.click("drawer");
    await this.until("the drawer rests", () => document.getAnimations().every((a) => a.playState !== "running" || a.effect?.getComputedTiming().endTime === Infinity));
  }

  async press(...keys: KeyInput[]): Promise<void> {
    for (const key of keys.slice(0, -1)) await this.driver.keyboard.down(key);
    await this.driver.keyboard.press(keys.at(-1)!);
    for (const key of keys.slice(0, -1).reverse()) await this.driver.keyboard.up(key);
  }

  /** send writes a message and sends it. */
  async send(text: string): Promise<void> {
    await this.type("composer", text);
    await this.press("Enter");
  }

  /** texts returns the texts of all elements with a name. */
  async texts(name: string): Promise<string[]> {
    return this.driver.$$eval(selector(name), (all) => all.map((one) => (one as HTMLElement).innerText.trim()));
  }

  async count(name: string, where = ""): Promise<number> {
    return (await this.driver.$$(selector(name) + where)).length;
  }

  /** until waits until a function in the page returns something other than false, null, 0 and "". */
  async until<A extends unknown[], T>(what: string, check: (...args: A) => T, ...args: A): Promise<void> {
    try {
      await this.driver.waitForFunction(check as (...all: unknown[]) => unknown, { polling: 50 }, ...args);
    } catch (thrown) {
      throw new Error(`${what}: ${String(thrown)}; the page shows: ${(await this.driver.evaluate(() => document.body.innerText)).slice(0, 2000)}`);
    }
  }

  /** shows waits until the page shows a text, in the element with a name or anywhere. */
  async shows(text: string, name = ""): Promise<void> {
    await this.until(`${name || "the page"} shows ${JSON.stringify(text)}`, (where, what) => [...document.querySelectorAll<HTMLElement>(where)].some((one) => one.innerText.includes(what)), name ? selector(name) : "body", text);
  }

  /** gone waits until no element with a name is visible. */
  async gone(name: string): Promise<void> {
    await this.driver.waitForSelector(selector(name), { hidden: true });
  }

  /** violations returns what axe finds in the page, in the rules of WCAG 2.2 A and AA and the best practices, or only in the rules that are named. */
  async violations(...rules: string[]): Promise<string[]> {
    if (!(await this.driver.evaluate(() => "axe" in globalThis))) {
      await this.driver.evaluate(await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8"));
    }
    return this.driver.evaluate(async (only) => {
      const run = (globalThis as unknown as { axe: { run(options: object): Promise<{ violations: { id: string; help: string; nodes: { html: string; failureSummary: string }[] }[] }> } }).axe;
      const values = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
      const { violations } = await run.run({ runOnly: only.length ? { type: "rule", values: only } : { type: "tag", values } });
      return violations.flatMap((one) => one.nodes.map((node) => `${one.id} (${one.help}): ${node.html.slice(0, 200)}: ${node.failureSummary}`));
    }, rules);
  }
}

/** darkTheme chooses the dark theme as a user does who prefers it in this browser. */
function darkTheme(): void {
  if (!location.protocol.startsWith("http")) return; // an empty page has no storage
  if (!localStorage.getItem("loquat.preferences")) localStorage.setItem("loquat.preferences", JSON.stringify({ theme: "dark" }));
}

const selector = (name: string): string => `[data-test="${name}"]`;

/** hit clicks an element and reports whether the click reached it. A click is aimed first and made later, so one at a moving element can miss. */
async function hit(element: ElementHandle<HTMLElement>): Promise<boolean> {
  await element.evaluate((one: HTMLElement & { hit?: boolean }) => {
    one.hit = false;
    addEventListener("click", (e) => (one.hit ||= one.contains(e.target as Node)), { capture: true, once: true });
  });
  await element.click();
  return element.evaluate((one: HTMLElement & { hit?: boolean }) => one.hit === true).catch(() => true); // the click led to another page
}
