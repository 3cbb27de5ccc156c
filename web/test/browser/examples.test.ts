// The examples of the SDK: each is built as its users build it, and driven against a server of another origin.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { dirname, extname, join } from "node:path";
import { after } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Page } from "./browser.ts";
import { suite, type Stage } from "./suite.ts";

const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..", "..");
const types: Record<string, string> = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css" };
const words = Array.from({ length: 150 }, (_, i) => `word${i}`).join(" ");

/** The address of the server of the test that runs, which the pages are given in place of the default. */
let loquat = "";

const files = createServer((request, answer) => {
  const path = new URL(request.url!, "http://x").pathname;
  const name = path.endsWith("/") ? `${path}index.html` : path;
  readFile(join(root, "clients", "typescript", "examples", name), "utf8").then(
    (text) => answer.writeHead(200, { "content-type": types[extname(name)] ?? "text/plain" }).end(text.replace('content="http://127.0.0.1:8787"', `content="${loquat}"`)),
    () => answer.writeHead(404).end(),
  );
});
files.listen(0, "127.0.0.1");
await once(files, "listening");
const origin = `http://127.0.0.1:${(files.address() as AddressInfo).port}`;
after(() => files.close());

for (const example of ["html", "react"]) {
  await promisify(execFile)("npm", ["run", "build", "-w", `loquat-example-${example}`], { cwd: root });

  const open = ({ browser, server }: Stage, session = "", tolerant = false): Promise<Page> => {
    loquat = server.url;
    return Page.open(browser, `${origin}/${example}/#${session}`, { tolerant });
  };
  /** articles returns the kind and the text of each message that the page shows. */
  const articles = (page: Page): Promise<string[]> => page.driver.$$eval("article", (all) => all.map((one) => `${one.className}: ${(one as HTMLElement).innerText.trim()}`));
  const send = async (page: Page, text: string): Promise<void> => {
    await page.driver.waitForSelector("textarea", { visible: true });
    await page.driver.type("textarea", text);
    await page.press("Enter");
  };

  suite(`example ${example}`, (check) => {
    check("a chat is created, and a reload shows it", async (stage) => {
      const page = await open(stage);
      await send(page, "Hello there");
      await page.until("the reply", () => document.querySelectorAll("article").length === 2 && document.querySelector("form button")!.textContent === "Send");
      const shown = await articles(page);
      assert.equal(shown[0], "user: Hello there");
      assert.match(shown[1]!, /^assistant: ./);
      await page.driver.reload();
      await page.until("the chat again", () => document.querySelectorAll("article").length === 2);
      assert.deepEqual(await articles(page), shown);
      await page.close();
    });

    check("a reload in mid-stream loses and repeats nothing", async (stage) => {
      const session = await stage.server.session({ script: { reasoning: "Let me count.", text: words, rate: 30 } });
      const page = await open(stage, session, true);
      await send(page, "Count");
      await page.shows("word20 ");
      await page.driver.reload();
      await page.shows("word40 ");
      stage.server.network.cut();
      setTimeout(() => stage.server.network.mend(), 300);
      await page.until("the end", () => document.body.innerText.includes("word149") && document.querySelector("form button")!.textContent === "Send");
      await page.driver.$$eval("details", (all) => all.forEach((one) => { one.open = true; }));
      const shown = await articles(page);
      assert.equal(shown.length, 2);
      assert.equal(shown[0], "user: Count");
      assert.equal(shown[1]!.replace(/\s+/g, " "), `assistant: Reasoning Let me count. ${words}`);
      await page.close();
    });

    check("Stop keeps the text so far, and the next message is answered", async (stage) => {
      const session = await stage.server.session({ script: { text: words, rate: 30 } });
      const page = await open(stage, session);
      await send(page, "Count");
      await page.shows("word5 ");
      await page.driver.click("form button");
      await page.until("the end", () => document.querySelector("form button")!.textContent === "Send");
      await stage.server.settled(session);
      const stored = await stage.server.messages(session);
      assert.equal(stored[1]?.metadata?.["incomplete"], "cancelled");
      await send(page, "Again");
      await page.until("another reply", () => /word5 /.test((document.querySelectorAll("article")[3] as HTMLElement | undefined)?.innerText ?? ""));
      await stage.server.cancel(session);
      await page.close();
    });

    check("no violations of accessibility", async (stage) => {
      const session = await stage.server.session({ messages: [{ role: "user", content: "Question" }, { role: "assistant", content: "Answer", metadata: { reasoning_content: "Hm." } }] });
      const page = await open(stage, session);
      await page.shows("Answer");
      assert.deepEqual(await page.violations(), []);
      await page.close();
    });
  }, { config: { server: { allowed_origins: [origin] } } });
}
