// What users do in the message box, and while a reply is written.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import type { Page } from "./browser.ts";
import { suite } from "./suite.ts";

const everywhere = { looks: true } as const;
const slow = { text: "word ".repeat(2000), chunks: 2000, rate: 20 };

/** box waits until the message box has a text. */
const box = (page: Page, text: string): Promise<void> => page.until(`${JSON.stringify(text)} in the box`, (wanted) => document.querySelector<HTMLTextAreaElement>('[data-test="composer"]')?.value === wanted, text);

/** recognition takes the place of the browser's SpeechRecognition. The test calls `hear` with what a microphone would bring. */
const recognition = (): void => {
  const all = globalThis as unknown as { SpeechRecognition: unknown; webkitSpeechRecognition: unknown; hear(text: string, final: boolean): void; aborted: number };
  all.aborted = 0;
  all.SpeechRecognition = all.webkitSpeechRecognition = class {
    onresult: ((e: object) => void) | null = null;
    start(): void {
      all.hear = (text, isFinal) => this.onresult?.({ resultIndex: 0, results: [{ isFinal, 0: { transcript: text } }] });
    }
    abort(): void {
      all.aborted++;
    }
  };
};

/** voice takes the place of the browser's voices, which test browsers lack. */
const voice = (): void => {
  const said: { text: string; onend?: () => void }[] = [];
  Object.assign(globalThis, { said, SpeechSynthesisUtterance: class { constructor(readonly text: string) {} } });
  Object.defineProperty(globalThis, "speechSynthesis", { value: { speak: (one: { text: string }) => said.push(one), cancel: () => said.splice(0) } });
};

/** changeWaiting sends two messages, of which the second waits, and types into that one. */
async function changeWaiting(page: Page): Promise<void> {
  await page.send("First");
  await page.shows("word", "message");
  await page.send("Second");
  await page.shows("Second", "queued");
  await page.click("queued-edit");
  await page.type("edit-text", ", changed");
}

suite("writing", (check) => {
  check("Stop ends the reply and keeps what is there", async ({ server, open }) => {
    const session = await server.session({ script: slow });
    const page = await open(`/s/${session}`);
    await page.send("Count");
    await page.shows("word word", "message");
    await page.click("stop");
    await page.gone("stop");
    await page.shows("Stopped before the end", "remark");
    assert.equal((await server.messages(session))[1]?.metadata?.["incomplete"], "cancelled");
  }, everywhere);

  check("a waiting message is changed, another is withdrawn into the box", async ({ server, open }) => {
    const session = await server.session({ script: { id: randomUUID(), attempts: [slow, { text: "Short" }] } });
    const page = await open(`/s/${session}`);
    await changeWaiting(page);
    await page.click("edit-save");
    await page.gone("edit-box");
    await page.shows("Second, changed", "queued");
    await page.send("Third");
    await page.until("two that wait", () => document.querySelectorAll('[data-test="queued"]').length === 2);
    await page.driver.$$eval('[data-test="queued"] [data-test="withdraw"]', (all) => (all[1] as HTMLElement).click());
    await box(page, "Third");
    await page.until("one that waits", () => document.querySelectorAll('[data-test="queued"]').length === 1);
    await page.click("stop");
    await page.shows("Short", "message");
    await server.settled(session);
    assert.deepEqual((await server.messages(session)).filter((one) => one.role === "user").map((one) => one.content), ["First", "Second, changed"]);
  }, everywhere);

  check("what was typed into a message is a draft if the message goes on without it", async ({ server, open }) => {
    const session = await server.session({ script: { id: randomUUID(), attempts: [slow, { text: "Short" }] } });
    const page = await open(`/s/${session}`);
    await changeWaiting(page);
    await page.driver.evaluate(() => document.querySelector<HTMLElement>('[data-test="stop"]')!.click()); // the focus stays in the text
    await page.shows("Short", "message");
    await page.gone("edit-box");
    await box(page, "Second, changed");
  });

  check("Stop and send interrupts the reply", async ({ server, open }) => {
    const session = await server.session({ script: { id: randomUUID(), attempts: [slow, { text: "The second reply" }] } });
    const page = await open(`/s/${session}`);
    await page.send("First");
    await page.shows("word", "message");
    await page.click("send-mode");
    await page.click("mode-interrupt");
    await page.send("Second");
    await page.shows("The second reply", "message");
    await page.gone("stop");
    assert.deepEqual((await server.messages(session)).filter((one) => one.role === "user").map((one) => one.content), ["First", "Second"]);
  }, everywhere);

  check("Enter starts a new line if the user wants it", async ({ server, open }) => {
    const session = await server.session({ model: "echo" });
    const page = await open(`/s/${session}`);
    await page.at("composer");
    await page.press("Control", ",");
    await page.click("enter");
    await page.press("Escape");
    await page.gone("theme");
    await page.type("composer", "One");
    await page.press("Enter");
    await page.driver.keyboard.type("two");
    await box(page, "One\ntwo");
    await page.press("Control", "Enter");
    await page.until("the reply", () => document.querySelectorAll('[data-test="message"]').length === 2 && !document.querySelector('[data-test="stop"]'));
    assert.equal((await server.messages(session))[0]?.content, "One\ntwo");
  }, everywhere);

  check("what is dictated is written into the box", async ({ open }) => {
    const page = await open("/", { before: recognition });
    await page.type("composer", "Typed");
    await page.click("dictate");
    await page.shows("Listening", "heard");
    const hear = (text: string, final: boolean) => page.driver.evaluate((...words) => (globalThis as unknown as { hear(text: string, final: boolean): void }).hear(...words), text, final);
    await hear("and spo", false);
    await page.shows("and spo", "heard");
    await box(page, "Typed");
    await hear("and spoken", true);
    await box(page, "Typed and spoken");
    await hear("words", false);
    await page.shows("words", "heard");
    await page.click("dictate");
    await box(page, "Typed and spoken words");
    await page.gone("heard");
    assert.equal(await page.driver.evaluate(() => (globalThis as unknown as { aborted: number }).aborted), 1);
  }, everywhere);

  check("a reply is read aloud without its marks, until the user stops it", async ({ server, open }) => {
    const page = await open(`/s/${await server.session({ messages: [{ role: "user", content: "Say" }, { role: "assistant", content: "# Title\n\nA **bold** word." }] })}`, { before: voice });
    const said = (): Promise<string[]> => page.driver.evaluate(() => (globalThis as unknown as { said: { text: string }[] }).said.map((one) => one.text));
    await page.act(1, "read");
    await page.at("read-stop");
    assert.deepEqual(await said(), ["Title", "A bold word."]);
    await page.click("read-stop");
    await page.gone("read-stop");
    assert.deepEqual(await said(), []);
    await page.act(1, "read");
    await page.at("read-stop");
    await page.driver.evaluate(() => (globalThis as unknown as { said: { onend?: () => void }[] }).said.at(-1)!.onend!());
    await page.gone("read-stop");
  }, everywhere);

  check("a suggestion of the first page begins a chat", async ({ open }) => {
    const page = await open();
    await page.at("prompt");
    assert.equal(await page.count("prompt"), 3);
    await page.click("prompt");
    await page.until("a chat with its reply", () => location.pathname.startsWith("/s/") && document.querySelectorAll('[data-test="message"]').length === 2);
    await page.shows("a short program in Python", "message");
  }, everywhere);
});
