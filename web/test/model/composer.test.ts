import assert from "node:assert/strict";
import { test } from "node:test";
import type { OutboxEntry } from "@loquat/client";
import { fromSnapshot, type Snapshot } from "@loquat/client";
import { App } from "../../src/model/app.ts";
import { addressOf, imageName, imageType, looksLikeImage, maxImageBytes, maxPieces, piecesOf } from "../../src/model/attachments.ts";
import { Composer } from "../../src/model/composer.ts";
import { memoryFiles, type Files } from "../../src/model/files.ts";
import { memory } from "../../src/model/storage.ts";
import { FakeWire } from "./fake.ts";
import { state as sessionState } from "./page.ts";

const tick = (ms = 0): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
const png = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 13];
const image = (name: string, bytes: readonly number[] = png): File => new File([new Uint8Array(bytes)], name, { type: "text/plain" });

async function page(stored = new Map<string, unknown>(), images = new Map<string, Blob>(), files: Files = memoryFiles(images)) {
  const wire = new FakeWire();
  wire.answers = { "GET /auth/me": { requires_token: false, scope: "full", browser: false }, "GET /agents": { agents: [] } };
  const app = new App(wire.wire, memory(stored), files);
  app.start();
  await tick();
  return { wire, app, stored, images };
}

test("the type of an image is that of its first bytes", () => {
  const bytes = (text: string): Uint8Array => Uint8Array.from(text, (c) => c.charCodeAt(0));
  for (const [text, type] of [
    ["\x89PNG\r\n\x1a\n....", "image/png"], ["\xff\xd8\xff\xe0", "image/jpeg"], ["GIF87a", "image/gif"], ["GIF89a", "image/gif"], ["RIFF....WEBPVP8 ", "image/webp"],
    ["", ""], ["\x89PNG", ""], ["<svg xmlns", ""], ["RIFF....WAVE", ""], ["GIF90a", ""], ["%PDF-1.7", ""], ["BM", ""],
  ] as const) assert.equal(imageType(bytes(text)), type, JSON.stringify(text));
});

test("only addresses of the web are taken", () => {
  for (const [text, address] of [
    ["https://example.com/a.png", "https://example.com/a.png"], ["  http://example.com ", "http://example.com/"], ["HTTPS://EXAMPLE.com/A.PNG", "https://example.com/A.PNG"],
    ["", ""], ["example.com/a.png", ""], ["ftp://example.com/a.png", ""], ["javascript:alert(1)", ""], ["data:image/png;base64,AA", ""], ["blob:https://example.com/1", ""],
    ["https://", ""], ["https://a b/c.png", ""], ["https://user:secret@example.com/a.png", ""], ["file:///etc/passwd", ""], ["https://example.com/a.png\nhttps://example.com/b.png", ""], [`https://example.com/${"a".repeat(3000)}`, ""],
  ] as const) assert.equal(addressOf(text), address, text.slice(0, 60));
  assert.equal(looksLikeImage("https://example.com/a.PNG?size=1"), true);
  assert.equal(looksLikeImage("https://example.com/page?image=a.png"), false);
  assert.equal(looksLikeImage(""), false);
});

test("the name of an image has at most 255 printable characters", () => {
  assert.equal(imageName(image("a\u202egnp.exe\n\u0000.png")), "agnp.exe.png");
  assert.equal([...imageName(image("🍊".repeat(300)))].length, 255);
  assert.equal(imageName(new Blob([])), "");
});

test("several files are attached in their order; each that is not is named with its reason", async () => {
  const { app } = await page();
  await app.attach([image("one.png"), image("page.png", [60, 115, 118, 103]), image("nothing.png", []), image("two.gif", [71, 73, 70, 56, 57, 97])]);
  const pieces = app.composer.peek().pieces.peek();
  assert.deepEqual(pieces.map(({ name, image }) => [name, image?.type, image?.size]), [["one.png", "image/png", 12], ["two.gif", "image/gif", 6]]);
  const texts = app.notices.shown.peek().map((notice) => notice.text);
  assert.equal(texts.length, 2);
  assert.match(texts[0]!, /page\.png.*PNG, JPEG, GIF and WebP/);
  assert.match(texts[1]!, /nothing\.png.*empty/);
});

test("too large, unreadable and too many files are refused", async () => {
  const composer = new Composer("new", memory());
  const large = Object.assign(new Blob([]), { name: "large.png" });
  Object.defineProperty(large, "size", { value: maxImageBytes + 1 });
  const gone = Object.assign(new Blob(["x"]), { name: "gone.png", slice: () => { throw new Error("NotFoundError"); } });
  const { refused } = await composer.attach([large, gone, ...Array.from({ length: maxPieces + 2 }, (_, i) => image(`${i}.png`))]);
  assert.deepEqual(refused.map(({ name, why }) => [name, why]), [["large.png", "size"], ["gone.png", "unreadable"], [`${maxPieces}.png`, "count"], [`${maxPieces + 1}.png`, "count"]]);
  assert.equal(composer.pieces.peek().length, maxPieces);
  assert.equal(composer.refer("https://example.com/", { type: "image", url: "https://example.com/" }), false);
});

test("a message waits for its turn behind one that is on its way", async () => {
  const { app, wire } = await page();
  app.go({ at: "session", id: "one" });
  wire.sessionsOf.get("one")!.set({ status: "ready", state: sessionState("one"), error: undefined });
  const modes = async (text: string): Promise<unknown> => {
    app.composer.peek().write(text);
    await app.send();
    return (wire.added.at(-1)!.send as { on_busy?: string }).on_busy;
  };
  assert.equal(await modes("a"), undefined);
  wire.entries.set([{ id: "a", sessionId: "one", order: "a", send: { content: "a" }, status: "queued" } as OutboxEntry]);
  assert.equal(await modes("b"), "queue");
});

test("a message with an image alone is sent once, as a file of the outbox, and then forgotten", async () => {
  const { app, wire, stored, images } = await page();
  await app.attach([image("one.png")]);
  assert.equal(app.attachAddress("https://example.com/a.png"), true);
  assert.equal(app.attachAddress("javascript:alert(1)"), false);
  assert.equal(images.size, 1);
  await Promise.all([app.send(), app.send()]);
  assert.equal(wire.added.length, 1);
  const { send, files } = wire.added[0] as { send: { content: string; attachments: unknown }; files: { name: string; image: Blob }[] };
  assert.equal(send.content, "");
  assert.deepEqual(send.attachments, [{ type: "image", url: "https://example.com/a.png" }]);
  assert.deepEqual(files.map(({ name, image }) => [name, image.type]), [["one.png", "image/png"]]);
  await tick();
  assert.equal(images.size, 0);
  assert.equal(stored.get("draft.new"), undefined);
});

test("a draft is not sent while an image of it is read", async () => {
  const { app, wire } = await page();
  app.composer.peek().write("with an image");
  const attached = app.attach([image("one.png")]);
  await app.send();
  assert.equal(wire.added.length, 0);
  await attached;
  await app.send();
  assert.equal((wire.added[0]!.files as unknown[]).length, 1);
});

test("the images of a draft survive a reload, also if the user writes before they are there", async () => {
  const first = await page();
  await first.app.attach([image("one.png"), image("two.png")]);
  first.app.attachAddress("https://example.com/a.png");
  const app = new App(new FakeWire().wire, memory(first.stored), memoryFiles(first.images));
  app.composer.peek().write("typed at once");
  assert.equal((first.stored.get("draft.new") as { pieces: unknown[] }).pieces.length, 3);
  assert.equal(app.composer.peek().ready.peek(), false);
  await app.composer.peek().restored;
  assert.deepEqual(app.composer.peek().pieces.peek().map(({ name, image }) => [name, image?.size]), [["one.png", 12], ["two.png", 12], ["https://example.com/a.png", undefined]]);
  app.composer.peek().detach(app.composer.peek().pieces.peek()[0]!.key);
  await tick();
  assert.equal(first.images.size, 1);
});

test("images that the storage lost are named after the reload; those that it does not take are sent all the same", async () => {
  const refuses: Files = { get: async () => { throw new Error("no"); }, set: async () => { throw new Error("no"); }, delete: async () => { throw new Error("no"); } };
  const { app, wire, stored } = await page(new Map(), new Map(), refuses);
  await app.attach([image("one.png")]);
  assert.match(app.notices.shown.peek()[0]!.text, /before you reload/);
  const again = (await page(stored, new Map(), refuses)).app;
  await again.composer.peek().restored;
  await tick();
  assert.match(again.notices.shown.peek()[0]!.text, /lost.*one\.png/);
  assert.deepEqual(again.composer.peek().pieces.peek(), []);
  await app.send();
  assert.equal((wire.added[0]!.files as unknown[]).length, 1);
});

test("each session has its own attachments", async () => {
  const { app } = await page();
  await app.attach([image("new.png")]);
  app.go({ at: "session", id: "one" });
  assert.equal(app.composer.peek().pieces.peek().length, 0);
  await app.attach([image("one.png")]);
  app.go({ at: "new" });
  assert.deepEqual(app.composer.peek().pieces.peek().map((piece) => piece.name), ["new.png"]);
});

test("a send that the browser cannot store goes back into the box, in front of what was written meanwhile", async () => {
  const { app, wire } = await page();
  wire.full = new Error("QuotaExceededError");
  app.composer.peek().write("first");
  await app.attach([image("one.png")]);
  const sent = app.send();
  app.composer.peek().write("second");
  await sent;
  assert.equal(app.composer.peek().text.peek(), "first\n\nsecond");
  assert.equal(app.composer.peek().pieces.peek().length, 1);
  assert.equal(app.route.peek().at, "new");
  assert.match(app.notices.shown.peek()[0]!.text, /not sent/);
});

test("a send that is taken back brings its text and images back", async () => {
  const { app } = await page();
  const entry = { id: "r", sessionId: "s", order: "r", status: "failed", send: { content: "Look", attachments: [{ type: "image", url: "https://example.com/a.png" }] }, files: [{ name: "one.png", image: image("one.png") }] } as OutboxEntry;
  assert.deepEqual(piecesOf(entry).map((piece) => piece.name), ["https://example.com/a.png", "one.png"]);
  app.go({ at: "session", id: "s" });
  await app.takeBack(entry);
  assert.equal(app.composer.peek().text.peek(), "Look");
  assert.equal(app.composer.peek().pieces.peek().length, 2);
});

const state = (more: object = {}) => fromSnapshot({ session_id: "one", agent_id: "a", created_at: "", updated_at: "", metadata: {}, cursor_event_id: "0000000000000001", messages: [{ message_id: "m1", role: "user", content: "one", created_at: "" }], ...more } as unknown as Snapshot);

test("what a send does while a reply runs is chosen once and remembered", async () => {
  const { app, wire, stored } = await page();
  app.go({ at: "session", id: "one" });
  wire.sessionsOf.get("one")!.set({ status: "ready", state: state({ active_request_id: "r1" }), error: undefined });
  assert.equal(app.busy.value, true);
  const send = async (text: string): Promise<unknown> => {
    app.composer.peek().write(text);
    await app.send();
    return (wire.added.at(-1)!.send as { on_busy?: string }).on_busy;
  };
  assert.equal(await send("a"), "queue");
  app.preferences.set("busy", "interrupt");
  assert.equal(await send("b"), "interrupt");
  assert.equal((await page(stored)).app.preferences.get("busy"), "interrupt");
  assert.equal(app.editLast(), false); // a reply is being written
});

test("the last own message is changed in its place", async () => {
  const { app, wire } = await page();
  assert.equal(app.editLast(), false);
  app.go({ at: "session", id: "one" });
  wire.sessionsOf.get("one")!.set({ status: "ready", state: state(), error: undefined });
  const id = app.transcript.peek()!.messages[0]!.id;
  assert.equal(app.editLast(), true);
  assert.equal(app.conversation.editing.value, id);
});
