// What the tests of the page share: each runs in both browsers, with one server for a file.
import { after, before, describe, test } from "node:test";
import type { Browser } from "puppeteer-core";
import { desktop, launch, missing, Page, phone, type Kind, type PageOptions } from "./browser.ts";
import { Server, type Options } from "./program.ts";

/** Stage is what a test has: a browser and a server. */
export interface Stage {
  readonly kind: Kind;
  readonly browser: Browser;
  readonly server: Server;
  /** The size and theme of the pages that open shows by default. */
  readonly look: PageOptions;
  /** open opens a window at a path of the server, and closes it at the end of the test. */
  open(path?: string, options?: PageOptions): Promise<Page>;
}

/** Where says in which browsers a test runs. Firefox's protocol lacks some of Chromium's means. */
export interface Where {
  kinds?: readonly Kind[];
  /** Whether the test runs once for each of the looks of its browser. */
  looks?: boolean;
}

/** The forms and themes of tests with looks. The browsers share the four combinations, so that each runs once. */
const looks = {
  chrome: [{ form: desktop, theme: "light" }, { form: phone, theme: "dark" }],
  firefox: [{ form: desktop, theme: "dark" }, { form: phone, theme: "light" }],
} as const;

type Body = (stage: Stage) => Promise<void>;

export type Check = (what: string, run: Body, where?: Where) => void;

/** suite runs tests in each browser, with forced colours if that is said. body declares them with its argument. */
export function suite(name: string, body: (check: Check) => void, options: Options & { forced?: boolean } = {}): void {
  const { forced = false } = options;
  for (const kind of ["chrome", "firefox"] as const) {
    describe(`${name} in ${kind}`, { skip: missing(kind), concurrency: 1 }, () => {
      let browser: Browser;
      let server: Server;
      before(async () => {
        server = await Server.start(options);
        browser = await launch(kind, forced);
      });
      after(async () => {
        await browser?.close();
        await server?.stop();
      });
      const once = async (run: Body, look: PageOptions): Promise<void> => {
        const pages: Page[] = [];
        const open = async (path = "/", shown: PageOptions = {}): Promise<Page> => {
          const page = await Page.open(browser, server.url + path, { forced, ...look, ...shown });
          pages.push(page);
          return page;
        };
        let passed = false;
        try {
          await run({ kind, browser, server, look, open });
          passed = true;
        } finally {
          for (const page of pages) await (passed ? page.close() : page.driver.close().catch(() => {}));
          server.network.mend();
          server.network.delay = 0;
        }
      };
      body((what, run, where = {}) => {
        if (where.kinds && !where.kinds.includes(kind)) return;
        if (!where.looks) return void test(what, { timeout: 120_000 }, () => once(run, {}));
        for (const look of looks[kind]) test(`${what} (${look.form.name}, ${look.theme})`, { timeout: 120_000 }, () => once(run, look));
      });
    });
  }
}
