// Faults that chat pages have, each with the test that would find it.
import assert from "node:assert/strict";
import { phone, Page } from "./browser.ts";
import { suite } from "./suite.ts";

const words = (n: number): string => Array.from({ length: n }, (_, i) => `word${i}`).join(" ");
const lines = (n: number): string => Array.from({ length: n }, (_, i) => `Line ${i} of the text.`).join("\n\n");
const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

suite("faults", (check) => {
  check("twenty tabs are live with one connection that follows", async ({ browser, server, open }) => {
    const session = await server.session({ title: "Many tabs", model: "echo" });
    const first = await open(`/s/${session}`);
    const others = [];
    for (let i = 0; i < 19; i++) others.push(await Page.open(browser, `${server.url}/s/${session}`, {}, first.context));
    await server.send(session, "Seen everywhere");
    for (const page of [first, ...others]) {
      await page.until("the reply", () => document.querySelectorAll('[data-test="message"]').length === 2);
      await page.until("a live page", () => document.querySelector('[data-test="connection"]')?.getAttribute("data-state") === "live");
    }
    const deadline = Date.now() + 10_000; // the server may not have seen yet that a tab has left its own connection
    while (!/^loquat_http_streams 1$/m.test(await server.text("/metrics")) && Date.now() < deadline) await sleep(100);
    assert.match(await server.text("/metrics"), /^loquat_http_streams 1$/m);
    for (const page of others) await page.close();
  });

  check("reading above is not pulled down while a reply streams", async ({ server, open }) => {
    const session = await server.session({ script: { text: lines(1500), chunks: 1500, rate: 60 }, messages: [{ role: "user", content: "Earlier" }, { role: "assistant", content: lines(60) }] });
    const page = await open(`/s/${session}`);
    await page.at("message");
    await page.send("Go on");
    await page.shows("Line 40 of");
    await page.until("space to scroll", () => document.querySelector('[data-test="transcript"]')!.scrollHeight > 3000);
    const box = await page.at("transcript");
    await box.hover();
    await page.driver.mouse.wheel({ deltaY: -1500 });
    let before = -1;
    for (let now = 0; now !== before; now = await box.evaluate((element) => element.scrollTop)) {
      before = now; // until the browser's own smooth scrolling has ended
      await sleep(250);
    }
    const height = await box.evaluate((element) => element.scrollHeight);
    await page.until("more text", (h) => document.querySelector('[data-test="transcript"]')!.scrollHeight > h + 200, height);
    assert.equal(await box.evaluate((element) => element.scrollTop), before, "the place where the user reads");
    await page.click("to-latest");
    await page.until("the end", () => {
      const element = document.querySelector('[data-test="transcript"]')!;
      return element.scrollHeight - element.clientHeight - element.scrollTop < 60;
    });
    await server.cancel(session);
  });

  check("a selection and open reasoning survive while the reply streams", async ({ server, open }) => {
    const session = await server.session({ script: { reasoning: words(400), text: `First paragraph.\n\n${words(400)}`, chunks: 400, rate: 25 } });
    const page = await open(`/s/${session}`);
    await page.send("Think");
    const reasoning = await page.at("reasoning");
    await (await reasoning.$("button, summary"))!.click();
    await page.shows("word20", "reasoning");
    await reasoning.evaluate((element) => {
      const range = document.createRange();
      range.selectNodeContents(element);
      getSelection()!.removeAllRanges();
      getSelection()!.addRange(range);
    });
    await page.until("more reasoning", () => document.querySelector<HTMLElement>('[data-test="reasoning"]')!.innerText.includes("word80"));
    assert.ok(await page.driver.evaluate(() => getSelection()!.toString().includes("word10")), "the selection is still there");
    assert.ok(await reasoning.evaluate((element) => element.isConnected && (element as HTMLElement).innerText.includes("word20")), "the reasoning is the same element, and open");
    await server.cancel(session);
  });

  check("a server that is frozen is not shown as live", async ({ server, open }) => {
    const page = await open();
    await page.until("live", () => document.querySelector('[data-test="connection"]')?.getAttribute("data-state") === "live");
    await page.driver.evaluate(() => ((globalThis as { frozenAt?: number }).frozenAt = performance.now()));
    server.freeze();
    try {
      page.driver.setDefaultTimeout(70_000);
      await page.until("not live", () => document.querySelector('[data-test="connection"]')?.getAttribute("data-state") !== "live");
      const silent = await page.driver.evaluate(() => performance.now() - (globalThis as { frozenAt?: number }).frozenAt!);
      assert.ok(silent < 50_000, `it took ${silent} ms, more than three heartbeats`);
    } finally {
      server.thaw();
    }
    page.driver.setDefaultTimeout(40_000);
    await page.until("live again", () => document.querySelector('[data-test="connection"]')?.getAttribute("data-state") === "live");
  });

  check("Enter twice on a slow line makes one session with one message", async ({ server, open }) => {
    const page = await open();
    await page.until("live", () => document.querySelector('[data-test="connection"]')?.getAttribute("data-state") === "live");
    const before = (await server.call<{ sessions: [] }>("GET", "/sessions?limit=200")).sessions.length;
    server.network.delay = 800;
    await page.type("composer", "Only once");
    await page.press("Enter");
    await page.press("Enter");
    await page.type("composer", "The next thought");
    await page.until("the reply", () => document.querySelectorAll('[data-test="message"]').length >= 2);
    server.network.delay = 0;
    const sessions = (await server.call<{ sessions: { session_id: string }[] }>("GET", "/sessions?limit=200")).sessions;
    assert.equal(sessions.length, before + 1, "sessions made");
    await server.settled(sessions[0]!.session_id);
    assert.deepEqual((await server.messages(sessions[0]!.session_id)).filter((m) => m.role === "user").map((m) => m.content), ["Only once"]);
    assert.equal(await (await page.at("composer")).evaluate((field) => (field as HTMLTextAreaElement).value), "The next thought");
  });

  check("a message that waits stays visible, and can be withdrawn", async ({ server, open }) => {
    const session = await server.session({ script: { text: words(500), chunks: 500, rate: 20 } });
    const page = await open(`/s/${session}`);
    await page.send("The first");
    await page.at("stop");
    await page.send("The second waits");
    await page.shows("The second waits");
    await page.driver.reload();
    await page.shows("The second waits", "queued");
    await page.click("withdraw");
    await page.gone("queued");
    assert.deepEqual((await server.call<{ queue: [] }>("GET", `/sessions/${session}/queue`)).queue, []);
    await server.cancel(session);
  });

  check("the notice of a retry goes when the retry succeeds", async ({ server, open }) => {
    const session = await server.session({ script: { id: "notice", attempts: [{ status: 503 }, {}], text: "All is well." } });
    const page = await open(`/s/${session}`);
    await page.send("Try");
    await page.at("retry");
    await page.shows("All is well.");
    await page.gone("retry");
  });

  check("an error and its Retry are there after a reload", async ({ server, open }) => {
    const session = await server.session({ script: { id: "error", attempts: [{ status: 400 }, {}], text: "Back from holiday." } });
    const page = await open(`/s/${session}`);
    await page.send("Work");
    await page.at("failure");
    await page.driver.reload();
    await page.at("failure");
    await page.until("live", () => document.querySelector('[data-test="connection"]')?.getAttribute("data-state") === "live");
    await page.click("failure-retry");
    await page.shows("Back from holiday.");
    await page.gone("failure");
  });

  check("each session keeps its own place", async ({ server, open }) => {
    const long = { messages: [{ role: "user", content: "Question" }, { role: "assistant", content: lines(200) }] };
    const [one, two] = [await server.session({ title: "One", ...long }), await server.session({ title: "Two", ...long })];
    const page = await open(`/s/${one}`);
    const place = () => page.driver.$eval('[data-test="transcript"]', (box) => box.scrollHeight - box.clientHeight - box.scrollTop);
    await page.until("the end of One", () => document.querySelector('[data-test="title"]')?.textContent === "One" && document.querySelector('[data-test="transcript"]')!.scrollTop > 1000);
    await (await page.at("transcript")).evaluate((box) => (box.scrollTop -= 900));
    await sleep(200);
    const left = await place();
    await page.click("session-row", `[data-session="${two}"]`);
    await page.until("the end of Two", () => {
      const box = document.querySelector('[data-test="transcript"]')!;
      return document.querySelector('[data-test="title"]')?.textContent === "Two" && box.scrollTop > 1000 && box.scrollHeight - box.clientHeight - box.scrollTop < 60;
    });
    await page.click("session-row", `[data-session="${one}"]`);
    await page.until(`One, at ${left} above the end`, (was) => {
      const box = document.querySelector('[data-test="transcript"]')!;
      return document.querySelector('[data-test="title"]')?.textContent === "One" && Math.abs(box.scrollHeight - box.clientHeight - box.scrollTop - was) < 40;
    }, left);
  });

  check("a reply that is written again without a connection deletes nothing that came in between", async ({ server, open }) => {
    const messages = [{ role: "user", content: "First" }, { role: "assistant", content: "Reply" }];
    const session = await server.session({ model: "echo", messages });
    const page = await open(`/s/${session}`, { tolerant: true });
    await page.shows("Reply", "message");
    server.network.cut();
    await page.act(1, "menu-regenerate");
    await page.at("outgoing");
    for (const content of ["Second", "Third"]) await server.call("POST", `/sessions/${session}/messages`, { role: "user", content });
    server.network.mend();
    await page.at("outgoing", '[data-state="failed"]');
    await page.shows("This changed in the meantime", "outgoing");
    assert.deepEqual((await server.messages(session)).map((one) => one.content), ["First", "Reply", "Second", "Third"]);
    assert.equal(await page.count("send-again"), 0, "another attempt would fail as well");
    await page.click("withdraw");
    await page.gone("outgoing");
  });

  check("the list keeps the focus, and is not loaded again, when sessions change", async ({ server, open }) => {
    const ids = [];
    for (let i = 0; i < 5; i++) ids.push(await server.session({ title: `Row ${i}`, model: "echo" }));
    const page = await open();
    const loads: string[] = [];
    await page.at("session-row", `[data-session="${ids[1]}"]`);
    page.driver.on("request", (request) => /\/sessions\?/.test(request.url()) && loads.push(request.url()));
    const focused = () => page.driver.evaluate(() => document.activeElement?.closest("[data-session]")?.getAttribute("data-session"));
    await (await page.at("session-row", `[data-session="${ids[1]}"] a`)).focus();
    await server.send(ids[3]!, "Moves to the top");
    await server.call("PATCH", `/sessions/${ids[0]}`, { metadata: { title: "Renamed elsewhere" } });
    await page.shows("Renamed elsewhere", "session-row");
    await server.settled(ids[3]!);
    assert.equal(await focused(), ids[1]);
    await server.send(ids[1]!, "The focused row moves too");
    await page.until("the row on top", (id) => document.querySelector('[data-test="session-row"]')?.getAttribute("data-session") === id, ids[1]!);
    assert.equal(await focused(), ids[1], "the focus goes with its row");
    assert.deepEqual(loads, [], "lists loaded after the first time");
  });

  check("a file that is dropped does not replace the page", async ({ open }) => {
    const page = await open();
    await page.at("composer");
    const prevented = await page.driver.evaluate(() => {
      const data = new DataTransfer();
      data.items.add(new File(["text"], "notes.txt", { type: "text/plain" }));
      return ["dragover", "drop"].map((type) => {
        const event = new DragEvent(type, { bubbles: true, cancelable: true, dataTransfer: data });
        document.querySelector('[data-test="sidebar"], body')!.dispatchEvent(event);
        return event.defaultPrevented;
      });
    });
    assert.deepEqual(prevented, [true, true]);
  });

  check("on a phone with its keyboard open the transcript keeps most of the height", async ({ server, open }) => {
    const session = await server.session({ messages: [{ role: "user", content: "Question" }, { role: "assistant", content: lines(60) }] });
    const page = await open(`/s/${session}`, { form: { ...phone, height: 844 - 336 } });
    await (await page.at("composer")).focus();
    await page.at("message");
    const share = await page.driver.$eval('[data-test="transcript"]', (box) => box.getBoundingClientRect().height / innerHeight);
    assert.ok(share >= 0.6, `the transcript has ${Math.round(share * 100)} % of the visible height`);
  });
});

suite("signing in", (check) => {
  check("Escape, even twice, leaves a page that can ask again", async ({ open }) => {
    const page = await open("/", { tolerant: true });
    await page.at("token");
    await page.press("Escape");
    await page.press("Escape");
    await page.click("sign-in-again");
    await page.type("token", "open-sesame");
    await page.press("Enter");
    await page.gone("token");
    await page.until("live", () => document.querySelector('[data-test="connection"]')?.getAttribute("data-state") === "live");
  });
}, { config: { server: { auth_tokens: [{ name: "test", token: "open-sesame", scope: "full" }] } } });

suite("a refused first message", (check) => {
  check("leaves no chat behind, and goes back into the box of new chats", async ({ server, open }) => {
    const page = await open("/", { tolerant: true });
    await page.click("attach");
    await page.click("attach-address");
    await page.type("address", "https://example.com/a.png");
    await page.click("address-add");
    await page.send("What is this?");
    await page.until("it is refused", () => document.querySelector('[data-test="outgoing"]')?.getAttribute("data-state") === "failed");
    await page.shows("What is this?", "outgoing");
    assert.deepEqual((await server.call<{ sessions: [] }>("GET", "/sessions")).sessions, []);
    await page.click("withdraw");
    await page.gone("outgoing");
    assert.equal(await page.driver.$eval('[data-test="composer"]', (field) => (field as HTMLTextAreaElement).value), "What is this?");
    assert.equal(new URL(page.driver.url()).pathname, "/");
    await page.click("attachment-remove");
    await (await page.at("composer")).focus();
    await page.press("Enter");
    await page.at("message", '[data-role="assistant"][aria-busy="false"]');
    assert.equal((await server.call<{ sessions: [] }>("GET", "/sessions")).sessions.length, 1);
  });
}, { provider: { allow_image_attachment_url: false } });
