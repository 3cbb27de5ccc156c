// Hostile texts in every place that shows text: none runs, and none calls another host.
import assert from "node:assert/strict";
import { cpSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after } from "node:test";
import { fileURLToPath } from "node:url";
import type { Page } from "./browser.ts";
import { payloads, Watch } from "./hostile.ts";
import { suite } from "./suite.ts";

const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** quiet checks that no payload has done anything in a page. */
async function quiet(page: Page, watch: Watch): Promise<void> {
  await sleep(500); // for what loads or runs later
  assert.deepEqual({ ran: await watch.ran(), requests: watch.requests, dialogs: watch.dialogs, traps: await watch.traps() }, { ran: [], requests: [], dialogs: [], traps: [] });
}

/** openAll opens everything that is closed in the transcript. */
async function openAll(page: Page): Promise<void> {
  await page.driver.evaluate(() => {
    for (const closed of document.querySelectorAll<HTMLElement>('[data-test="tools-all"], [data-test="tool"] summary, [data-test="reasoning"] summary, [data-test="reasoning"] button[aria-expanded="false"]')) closed.click();
  });
}

const call = (n: number, name: string, args: string) => ({ id: `call${n}`, type: "function", function: { name, arguments: args } });

/** turn has a payload in every part of a question and its reply. */
const turn = (text: string, n: number) => [
  { role: "user", content: text, metadata: { attachments: [{ type: "image", url: `https://evil.test/${n}"onerror=alert(1)` }] } },
  { role: "assistant", content: text, metadata: { reasoning_content: text, model: text, tool_calls: [call(n, text, JSON.stringify({ text })), call(n + 1000, "raw", text)] } },
  { role: "tool", content: text, metadata: { tool_call_id: `call${n}`, tool_name: text, display: { type: "text", content: text } } },
  { role: "tool", content: text, metadata: { tool_call_id: `call${n + 1000}`, tool_name: "raw", is_error: true } },
  { role: "system", content: text },
];

const plugin = mkdtempSync(join(tmpdir(), "loquat-plugin-"));
after(() => rmSync(plugin, { recursive: true, force: true }));

/** hostilePlugin makes a plugin whose labels and fields are payloads. */
function hostilePlugin(): string {
  const script = join(dirname(fileURLToPath(import.meta.url)), "..", "..", "..", "internal", "e2e", "browser", "testdata", "showcase", "showcase.py");
  cpSync(script, join(plugin, "showcase.py"));
  const some = payloads.filter((_, n) => n % 4 === 0);
  const elements = some.flatMap((text, n) => [
    { key: `text${n}`, type: "text", label: text, default: text, help: text },
    { key: `select${n}`, type: "select", label: text, options: [text, { value: "b", label: text }], default: text },
    { ui_type: "status_bar", data: "metadata.title", template: text },
    { ui_type: "message_footer", data: "content", template: text },
    { ui_type: "session_action", id: `session${n}`, label: text, action_id: "act" },
    { ui_type: "message_action", id: `message${n}`, label: text, action_id: "act" },
  ]);
  const fields = [{ ui_type: "session_list_field", key: "title", label: some[0], data: "title" }];
  writeFileSync(join(plugin, "plugin.json"), JSON.stringify({ name: "hostile", version: "1.0.0", kind: "feature", command: "python3", args: ["showcase.py"], ui: ["get_ui_elements"], actions: ["act"] }));
  writeFileSync(join(plugin, "elements.json"), JSON.stringify([...elements, ...fields]));
  return `path:${plugin}`;
}

suite("hostile texts", (check) => {
  check("the watch sees payloads that run, load and ask", async ({ server, open }) => {
    assert.ok(payloads.length >= 50);
    const page = await open("/", { tolerant: true });
    await page.driver.goto("about:blank");
    const watch = new Watch(page.driver, server.url);
    for (const text of payloads.filter((one) => !/refresh|<base|srcdoc/.test(one))) {
      await page.driver.evaluate((html) => {
        const box = document.createElement("div");
        box.innerHTML = html; // what the page never does
        document.body.append(box);
      }, text);
    }
    await page.driver.evaluate(() => setTimeout(() => alert("seen")));
    await sleep(1500);
    assert.ok((await watch.ran()).length >= 5, `payloads that ran: ${String(await watch.ran())}`);
    assert.ok(new Set(watch.requests).size >= 5, `requests: ${watch.requests.join()}`);
    assert.deepEqual(watch.dialogs, ["seen"]);
    assert.ok((await watch.traps()).length >= 10);
  });

  for (const [from, to] of [[0, 18], [18, 36], [36, 54], [54, payloads.length]] as const) {
    check(`messages, reasoning, tools and titles, payloads ${from} to ${to - 1}`, async ({ server, open }) => {
      const some = payloads.slice(from, to);
      const session = await server.session({ title: some[0]!, metadata: { tags: some.slice(0, 3).map((text) => text.slice(0, 64)) }, messages: some.flatMap((text, i) => turn(text, from + i)) });
      for (const text of some) await server.session({ title: text.slice(0, 200) });
      const page = await open();
      const watch = new Watch(page.driver, server.url);
      await page.driver.goto(`${server.url}/s/${session}`);
      await page.at("message", '[data-role="system"]');
      for (let i = 0; i < 12; i++) {
        await openAll(page);
        await page.driver.evaluate((part) => {
          const box = document.querySelector('[data-test="transcript"]')!;
          box.scrollTop = (box.scrollHeight * part) / 12;
        }, 11 - i);
        await sleep(100);
      }
      await quiet(page, watch);
    });
  }

  check("replies that stream, names of models and errors", async ({ server, open }) => {
    const all = payloads.join("\n\n");
    const session = await server.session({ script: { text: all, reasoning: all, chunks: 300, rate: 200 } });
    const failing = [];
    for (const text of payloads.filter((_, n) => n % 8 === 0)) failing.push(await server.session({ script: { status: 400, body: { error: { message: text } } } }));
    const page = await open(`/s/${session}`);
    const watch = new Watch(page.driver, server.url);
    await page.send("Go");
    await openAll(page);
    await page.until("the end", () => document.querySelector('[data-test="message"][data-role="assistant"]') && !document.querySelector('[data-test="stop"]'));
    await quiet(page, watch);
    for (const id of failing) {
      await server.send(id, "Fail");
      await page.driver.goto(`${server.url}/s/${id}`);
      await page.at("failure");
      await quiet(page, watch);
    }
  });

  check("labels and fields of plugins, in the settings of a chat and in menus", async ({ server, open }) => {
    const session = await server.session({ title: payloads[4]!, messages: turn(payloads[4]!, 4) });
    const page = await open();
    const watch = new Watch(page.driver, server.url);
    await page.driver.goto(`${server.url}/s/${session}`);
    await page.at("message-footer");
    await page.click("chat-settings");
    await page.at("setting");
    await page.click("session-menu");
    await page.at("plugin-action");
    await quiet(page, watch);
  });

  check("names of files", async ({ server, open }) => {
    const page = await open();
    const watch = new Watch(page.driver, server.url);
    const names = payloads.filter((_, n) => n % 8 === 0);
    await page.at("composer");
    await page.driver.evaluate((all) => {
      const data = new DataTransfer();
      for (const name of all) data.items.add(new File([new Uint8Array([137, 80, 78, 71, 13, 10, 26, 10])], name, { type: "image/png" }));
      document.querySelector('[data-test="composer-form"]')!.dispatchEvent(new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer: data }));
    }, names.slice(0, 4));
    await quiet(page, watch);
  });
}, { provider: { model: payloads[4] }, config: { plugins: ["loquat.providers.reference_generic_compatible", "loquat.features.request_options", hostilePlugin()] } });

