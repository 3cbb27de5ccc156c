// Makes the pictures of the web client and of the dashboard in docs/pictures.md.
//
//   LOQUAT_PROGRAM=bin/loquat npm run pictures -w web [-- NAME...]
import { mkdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { desktop, launch, Page, phone, type PageOptions } from "./browser.ts";
import { dashboardPicture } from "./dashboard.ts";
import { withWorkshop } from "./plugin/options.ts";
import { Server } from "./program.ts";

const folder = join(dirname(fileURLToPath(import.meta.url)), "..", "..", "..", "docs", "pictures");
/** The pictures to make, or all. */
const wanted = process.argv.slice(2);
const answer = "The sky over **Ulm** is clear, at 21 °C.\n\n| day | sky | °C |\n|---|---|---:|\n| today | clear | 21 |\n| tomorrow | rain | 16 |\n\n```ts\nconst fahrenheit = (celsius: number) => celsius * 9 / 5 + 32;\n```\n\nThe formula is $f = \\frac{9}{5} c + 32$.";
const messages = [
  { role: "user", content: "How is the weather in Ulm, and how do I convert it to Fahrenheit?" },
  { role: "assistant", content: "", metadata: { reasoning_content: "I need the weather.", tool_calls: [{ id: "c", type: "function", function: { name: "weather", arguments: '{"city": "Ulm"}' } }] } },
  { role: "tool", content: '{"sky": "clear", "celsius": 21}', metadata: { tool_call_id: "c", tool_name: "weather" } },
  { role: "assistant", content: answer, metadata: { model: "demo" } },
];
const cities = ["Ulm", "Bonn", "Kiel", "Jena", "Atlantis"];
const toolMessages = [
  { role: "user", content: "Compare the weather in five cities." },
  { role: "assistant", content: "", metadata: { tool_calls: cities.map((city) => ({ id: city, type: "function", function: { name: "weather", arguments: JSON.stringify({ city }) } })) } },
  ...cities.map((city, i) => ({ role: "tool", content: city === "Atlantis" ? "There is no city of this name." : JSON.stringify({ sky: ["clear", "rain", "wind", "fog"][i], celsius: 21 - 2 * i }), metadata: { tool_call_id: city, tool_name: "weather", is_error: city === "Atlantis" } })),
  { role: "assistant", content: "**Ulm** is the warmest of the four, with 21 °C and a clear sky. I found no weather for Atlantis.", metadata: { model: "demo" } },
];
const thoughts = "The user wants to know two things.\n\n1. The weather, for which I need the tool.\n2. The formula. Water freezes at 0 °C or 32 °F and boils at 100 °C or 212 °F, so one degree Celsius is $\\frac{9}{5}$ degrees Fahrenheit.";
const science = "A pendulum of length $\\ell$ swings with the period\n\n$$T = 2\\pi\\sqrt{\\frac{\\ell}{g}}\\left(1 + \\frac{\\theta_0^2}{16} + \\cdots\\right).$$\n\n```mermaid\ngraph LR\n  A[Lift it] --> B[Let it go]\n  B --> C{Does it rest?}\n  C -- no --> B\n  C -- yes --> D[Read the clock]\n```";
const deutsch = [{ role: "user", content: "Wie backe ich ein einfaches Brot?" }, { role: "assistant", content: "Für ein **einfaches Brot** brauchst du:\n\n- 500 g Mehl\n- 350 ml Wasser\n- 10 g Salz\n- 5 g Hefe\n\nLass den Teig eine Stunde gehen, und backe ihn dann 40 Minuten bei 230 °C.", metadata: { model: "demo" } }];

const server = await Server.start();
const workshop = await Server.start({ config: withWorkshop });
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
  const long = `/s/${await server.session({ title: "Celsius and Fahrenheit", messages: messages.map((one, i) => (i === 1 ? { ...one, metadata: { ...one.metadata, reasoning_content: thoughts } } : one)) })}`;
  await picture("reasoning", long, async (page) => {
    await shown(page);
    await page.click("reasoning", " summary");
    await page.click("tool", " summary");
    await page.shows("celsius", "tool");
    await page.driver.$eval('[data-test="transcript"]', (box) => (box.scrollTop = 0));
  });
  await picture("tools", `/s/${await server.session({ title: "Five cities", messages: toolMessages })}`, async (page) => {
    await page.click("tools-all");
    await page.click("tool", '[data-state="failed"] summary');
    await page.shows("no city", "tool");
  });
  await picture("diagram", `/s/${await server.session({ title: "A pendulum", messages: [{ role: "user", content: "How does a pendulum swing?" }, { role: "assistant", content: science, metadata: { model: "demo" } }] })}`, async (page) => {
    await page.until("the formulas", () => document.querySelectorAll("math").length >= 2);
    await page.driver.locator(".md-code-bar button[aria-expanded]").click();
    await page.until("the diagram", () => (document.querySelector<HTMLIFrameElement>("iframe.md-diagram")?.height ?? "160") !== "160");
  });
  await picture("alternatives", `/s/${await server.session({ title: "A name for a boat", script: { text: "*Halcyon*, after the bird that calms the sea." }, messages: [{ role: "user", content: "Name my boat." }, { role: "assistant", content: "Boaty" }] })}`, async (page) => {
    await page.act(1, "menu-regenerate");
    await page.shows("2/2", "alternative");
    await page.gone("stop");
    await page.click("message", '[data-index="1"] [data-test="message-menu"]');
    await page.at("menu");
  });
  await picture("waiting", `/s/${await server.session({ title: "A long story", script: { text: "Once upon a time, a clockmaker lived in a small town by the sea. ".repeat(40), chunks: 2600, rate: 40 } })}`, async (page) => {
    await page.send("Tell me a long story.");
    await page.shows("clockmaker lived in a small town by the sea. Once upon", "message");
    await page.send("Now tell it to a child.");
    await page.at("queued");
    await page.type("composer", "And translate it");
  });
  await picture("attachments", chat, async (page) => {
    await shown(page);
    await page.driver.evaluate(dropImages);
    await page.until("two images", () => document.querySelectorAll('[data-test="attachment"]').length === 2);
    await page.type("composer", "Which of these two skies means rain?");
  });
  await picture("search", "/", async (page) => {
    await page.at("composer");
    await page.press("Control", "k");
    await page.type("palette-query", "weather");
    await page.at("palette-hit");
  });
  await picture("form", `/s/${await workshop.session({ title: "Planks", messages: [{ role: "user", content: "How do I order planks?" }, { role: "assistant", content: "Open the menu of this chat and choose **Order planks**.", metadata: { model: "demo" } }] })}`, async (page) => {
    await page.shows("Order planks", "message");
    await page.click("session-menu");
    await page.click("plugin-action");
    await page.click("action-run");
    await page.shows("This is required.");
  }, {}, workshop);
  await picture("german", `/s/${await server.session({ title: "Ein einfaches Brot", messages: deutsch })}`, (page) => page.shows("230 °C", "message"), { before: () => localStorage.setItem("loquat.preferences", JSON.stringify({ language: "de" })) });
  await picture("forced-colors", chat, shown, { theme: "dark", forced: true });
  await picture("drawer", chat, async (page) => {
    await shown(page);
    await page.list();
  }, { form: phone, theme: "dark" });
  await picture("offline", chat, async (page) => {
    await shown(page);
    server.network.cut();
    await page.at("banner", " .banner-time");
  });
  if (isWanted("dashboard")) await dashboardPicture(browser, join(folder, "..", "monitoring", "dashboard.json"), join(folder, "dashboard.webp"));
} finally {
  await browser.close();
  await workshop.stop();
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

/** dropImages drops two drawings of the sky into the message box. It runs in the page. */
async function dropImages(): Promise<void> {
  const data = new DataTransfer();
  for (const [name, above, below] of [["morning.png", "#7fb4e6", "#fbe3c0"], ["evening.png", "#4a4f6b", "#9aa0ad"]] as const) {
    const canvas = Object.assign(document.createElement("canvas"), { width: 320, height: 320 });
    const context = canvas.getContext("2d")!;
    const sky = context.createLinearGradient(0, 0, 0, 320);
    sky.addColorStop(0, above);
    sky.addColorStop(1, below);
    context.fillStyle = sky;
    context.fillRect(0, 0, 320, 320);
    context.fillStyle = "#ffffffcc";
    for (const [x, y, size] of [[110, 170, 50], [165, 145, 65], [225, 175, 45]] as const) context.fill(new Path2D(`M${x - size} ${y}a${size} ${size} 0 1 0 ${2 * size} 0a${size} ${size} 0 1 0 ${-2 * size} 0`));
    data.items.add(new File([await new Promise<Blob>((done) => canvas.toBlob((blob) => done(blob!)))], name, { type: "image/png" }));
  }
  document.querySelector('[data-test="composer-form"]')!.dispatchEvent(new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer: data }));
}

function isWanted(name: string): boolean {
  return !wanted.length || wanted.includes(name);
}

/** picture opens a path, brings the page into a state, and writes what it shows. */
async function picture(name: string, path: string, prepare: (page: Page) => Promise<unknown>, options: PageOptions = {}, from = server): Promise<void> {
  if (!isWanted(name)) return;
  const page = await Page.open(browser, from.url + path, { form: desktop, tolerant: true, ...options });
  page.driver.setDefaultTimeout(120_000); // also on a busy machine
  await prepare(page);
  await page.driver.evaluate(() => new Promise((resolve) => setTimeout(resolve, 400))); // until what fades in is there
  await page.driver.screenshot({ path: join(folder, `${name}.webp`), type: "webp", quality: 70 });
  await page.close();
}
