// Makes the pictures of docs/web.md.
//
//   LOQUAT_PROGRAM=bin/loquat npm run pictures -w web
import { mkdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { desktop, launch, Page, phone, type PageOptions } from "./browser.ts";
import { Server } from "./program.ts";

const folder = join(dirname(fileURLToPath(import.meta.url)), "..", "..", "..", "docs", "pictures");
const answer = "The sky over **Ulm** is clear, at 21 °C.\n\n| day | sky | °C |\n|---|---|---:|\n| today | clear | 21 |\n| tomorrow | rain | 16 |\n\n```ts\nconst fahrenheit = (celsius: number) => celsius * 9 / 5 + 32;\n```\n\nThe formula is $f = \\frac{9}{5} c + 32$.";
const messages = [
  { role: "user", content: "How is the weather in Ulm, and how do I convert it to Fahrenheit?" },
  { role: "assistant", content: "", metadata: { reasoning_content: "I need the weather.", tool_calls: [{ id: "c", type: "function", function: { name: "weather", arguments: '{"city": "Ulm"}' } }] } },
  { role: "tool", content: '{"sky": "clear", "celsius": 21}', metadata: { tool_call_id: "c", tool_name: "weather" } },
  { role: "assistant", content: answer, metadata: { model: "demo" } },
];

const server = await Server.start();
const browser = await launch("chrome");
try {
  await mkdir(folder, { recursive: true });
  for (const title of ["A recipe for bread", "Notes on a talk"]) await server.session({ title, metadata: { tags: ["home"] } });
  await server.session({ title: "A plan for the garden", metadata: { pinned: true } });
  const chat = `/s/${await server.session({ title: "The weather in Ulm", messages })}`;
  await picture("empty", "/", (page) => page.at("prompt"));
  await picture("conversation", chat, shown);
  await picture("dark", chat, shown, { theme: "dark" });
  await picture("phone", chat, shown, { form: phone });
  await picture("palette", chat, (page) => press(page, "k", "palette"));
  await picture("settings", chat, (page) => press(page, ",", "theme"));
  await picture("chat-settings", chat, (page) => click(page, "chat-settings", "setting"));
  await picture("model", chat, (page) => click(page, "model-picker", "model"));
  await picture("menu", chat, (page) => click(page, "session-menu", "menu"));
  await picture("failure", `/s/${await server.session({ title: "A reply that failed", script: { status: 400 } })}`, async (page) => {
    await page.send("Hello");
    await page.at("failure");
  });
} finally {
  await browser.close();
  await server.stop();
}

async function shown(page: Page): Promise<void> {
  await page.shows("tomorrow");
  await page.until("the formula", () => document.querySelector("math"));
}

async function press(page: Page, key: "k" | ",", name: string): Promise<void> {
  await shown(page);
  await page.press("Control", key);
  await page.at(name);
}

async function click(page: Page, button: string, name: string): Promise<void> {
  await shown(page);
  await page.click(button);
  await page.at(name);
}

/** picture opens a path, brings the page into a state, and writes what it shows. */
async function picture(name: string, path: string, prepare: (page: Page) => Promise<unknown>, options: PageOptions = {}): Promise<void> {
  const page = await Page.open(browser, server.url + path, { form: desktop, tolerant: true, ...options });
  await prepare(page);
  await page.driver.evaluate(() => new Promise((resolve) => setTimeout(resolve, 400))); // until what fades in is there
  await page.driver.screenshot({ path: join(folder, `${name}.webp`), type: "webp", quality: 70 });
  await page.close();
}
