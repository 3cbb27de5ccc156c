// How fast the page opens long sessions and shows replies. Tests share their machine with other programs, so processor time and
// ratios within one run count.
import assert from "node:assert/strict";
import type { Page } from "../browser.ts";
import { suite, type Stage } from "../suite.ts";

const history = (n: number) =>
  Array.from({ length: n }, (_, i) => ({ role: i % 2 ? "assistant" : "user", content: i % 2 ? `Answer **${i}** with a [link](https://example.com/${i}), and\n\n- one\n- two\n\n${"Some words of the answer. ".repeat(8)}` : `Question ${i}?` }));

/** The Markdown of a long reply: about 20 KB with all common kinds of blocks. */
const markdown = Array.from({ length: 24 }, (_, i) => `## Part ${i}

A paragraph with **strong**, *emphasized* and \`code\` words, and a [link](https://example.com/${i}). ${"It goes on for a while, as replies do. ".repeat(8)}

- the first item
- the second item with \`code\`
  - an item in it

| name | value |
|---|---|
| one | ${i} |
| two | ${i * 2} |

\`\`\`python
def part_${i}(x):
    return x + ${i}
\`\`\`
`).join("\n");

/** opened returns how long it takes from the choice of a session to its last message in view, in milliseconds. */
async function opened(page: Page, id: string, text: string): Promise<number> {
  return page.driver.evaluate(async (session, what) => {
    const began = performance.now();
    document.querySelector<HTMLElement>(`[data-session="${session}"] .row-link`)!.click();
    while (performance.now() - began < 20_000) {
      const box = document.querySelector<HTMLElement>('[data-test="transcript"]');
      const last = box && [...box.querySelectorAll<HTMLElement>('[data-test="message"]')].at(-1);
      if (last?.textContent?.includes(what) && last.getBoundingClientRect().bottom <= box!.getBoundingClientRect().bottom + 200) return performance.now() - began;
      await new Promise((resolve) => requestAnimationFrame(resolve));
    }
    throw new Error("the last message did not come into view");
  }, id, text);
}

const median = (all: readonly number[]): number => [...all].sort((a, b) => a - b)[Math.floor(all.length / 2)]!;

/** oneOf passes if one of so many measurements does. Other programs can spoil one, and a page that is slow fails all. */
async function oneOf(times: number, measure: () => Promise<void>): Promise<void> {
  for (let left = times - 1; ; left--) {
    try {
      return await measure();
    } catch (error) {
      if (left === 0) throw error;
      console.log(`# measured again: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
}

interface Load {
  /** The processor time of each task of the main thread, without the first and the longest ones first, in milliseconds. */
  readonly tasks: readonly number[];
  /** The processor time of all tasks. */
  readonly busy: number;
  /** The most elements whose style was computed at once. */
  readonly styled: number;
}

/** TraceEvent is what this reads of an event of a trace. Times are in microseconds, and tdur is processor time. */
interface TraceEvent {
  readonly name: string;
  readonly pid: number;
  readonly tid: number;
  readonly ts: number;
  readonly tdur?: number;
  readonly args: { readonly name?: string; readonly elementCount?: number; readonly data?: { readonly frames: readonly { readonly isInPrimaryMainFrame: boolean; readonly processId: number }[] } };
}

/** traced measures the tasks of the main thread while something runs. Processor time does not count what other programs take. */
async function traced(page: Page, run: () => Promise<void>): Promise<Load> {
  await page.driver.tracing.start({ categories: ["toplevel", "devtools.timeline", "disabled-by-default-devtools.timeline"] });
  await run();
  const { traceEvents } = JSON.parse(new TextDecoder().decode(await page.driver.tracing.stop())) as { traceEvents: TraceEvent[] };
  // The browser has processes for pages of its own, such as the list below its address bar. They can be busier than this page.
  const process = traceEvents.find(({ name }) => name === "TracingStartedInBrowser")!.args.data!.frames.find((frame) => frame.isInPrimaryMainFrame)!.processId;
  const thread = traceEvents.find(({ name, pid, args }) => name === "thread_name" && args.name === "CrRendererMain" && pid === process)!.tid;
  const tasks = traceEvents
    .filter(({ name, pid, tid, tdur }) => name === "ThreadControllerImpl::RunTask" && pid === process && tid === thread && tdur !== undefined)
    .sort((a, b) => a.ts - b.ts)
    .map(({ tdur }) => tdur! / 1000);
  assert.ok(tasks.length > 1, "the trace has no tasks of the page");
  const styled = traceEvents.flatMap(({ name, pid, args }) => (name === "UpdateLayoutTree" && pid === process ? (args.elementCount ?? 0) : []));
  return { tasks: tasks.slice(1).sort((a, b) => b - a), busy: tasks.reduce((a, b) => a + b, 0), styled: Math.max(...styled) };
}

/** streamed sends a message and measures the main thread until the reply has ended. */
async function streamed({ server, open }: Stage, before: number): Promise<Load> {
  const id = await server.session({ script: { text: markdown, chunks: 800, rate: 200 }, messages: history(before) });
  const page = await open(`/s/${id}`);
  if (before) await page.at("message");
  await page.type("composer", "Go");
  return traced(page, async () => {
    await page.press("Enter");
    await page.shows("Part 23", "transcript");
    await server.settled(id);
  });
}

/** rebuilt measures what the main thread needs to build the same text anew for each chunk, as plain text. */
async function rebuilt({ open }: Stage): Promise<number> {
  const page = await open("/");
  await page.at("composer");
  const { busy } = await traced(page, () => page.driver.evaluate(async (text, chunks) => {
    const box = document.createElement("div");
    box.style.cssText = "white-space: pre-wrap; width: 46rem; height: 40rem; overflow: auto";
    document.body.append(box);
    for (let i = 1; i <= chunks; i++) {
      const shown = text.slice(0, Math.ceil((text.length * i) / chunks));
      box.replaceChildren(...shown.split("\n").map((line) => Object.assign(document.createElement("p"), { textContent: line })));
      box.scrollTop = box.scrollHeight;
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    box.remove();
  }, markdown, 800));
  return busy;
}

suite("speed", (check) => {
  for (const [n, limit] of [[2000, 600], [10_000, 2000]] as const) check(`a session with ${n} messages opens at its end at once`, async ({ kind, server, open }) => {
    const long = await server.session({ title: "Long", messages: history(n) });
    const short = await server.session({ title: "Short", messages: history(20) });
    const page = await open(`/s/${short}`);
    await page.at("message");
    for (const title of ["Long", "Short"]) await page.shows(title, "session-row");
    const times: number[] = [];
    for (let i = 0; i < 7; i++) {
      times.push(await opened(page, long, `Answer ${n - 1}`));
      await opened(page, short, "Answer 19");
    }
    console.log(`# ${kind}: ${n} messages open in ${times.map(Math.round).join(", ")} ms`);
    assert.ok(median(times) < limit, `the median of ${times.map(Math.round).join(", ")} ms`);
  });

  // Two tests, because each may measure three times.
  for (const before of [0, 2000]) check(`20 KB of Markdown at 200 chunks a second leave the main thread free, after ${before} messages`, async (stage) => {
    let styled = 0;
    await oneOf(3, async () => {
      const plain = await rebuilt(stage);
      const load = await streamed(stage, before);
      const { tasks, busy } = load;
      styled = load.styled;
      console.log(`# ${before} messages before: ${Math.round(busy)} ms, ${Math.round(plain)} ms for plain text; the longest tasks ${tasks.slice(0, 5).map(Math.round).join(", ")} ms; the style of at most ${styled} elements at once`);
      assert.ok(busy < plain / 2, `${busy} ms, and ${plain} ms for plain text`);
      assert.ok(tasks[0]! < 50, `a task of ${tasks[0]} ms`);
    });
    assert.ok(styled < 300, `the style of ${styled} elements at once, so a message costs the more the more are shown`);
  }, { kinds: ["chrome"] });
});

/** The first word of every reply of the suite below. No message has it. */
const firstWord = "Quickly";
/** How many milliseconds the page may add to the raw wire until the first word of a reply is in the document. */
const allowed = 20;
/** Other work on the machine delays each step, and the page has more steps than the raw wire. Then it may take this many times as long. */
const allowedTimes = 3;

/** Waits are the milliseconds from a send to the first word of its reply. */
interface Waits {
  /** Until a script of the page that reads the stream of events has received the word. */
  readonly raw: number;
  /** Until the word is in the document. */
  readonly inPage: number;
  /** Until the frame with the word has been painted. */
  readonly painted: number;
}

/** onTheWire sends a message with fetch, and returns when the first word of the reply has come over a stream of events that was open before. */
async function onTheWire(page: Page, since: string, session: string, create: boolean): Promise<number> {
  const calls = [...(create ? [{ path: "/sessions", body: { session_id: session } }] : []), { path: `/sessions/${session}/send`, body: { content: "Go", stream_tools: true } }];
  const stream = `/events/stream?session=omit&since_id=${since}${create ? "" : `&session_id=${session}`}`;
  return page.driver.evaluate(async (stream, calls, word) => {
    const reader = (await fetch(stream)).body!.getReader();
    await reader.read(); // what a stream begins with
    const began = performance.now();
    const sent = (async () => {
      for (const { path, body } of calls) await fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
    })();
    const decoder = new TextDecoder();
    for (let text = ""; !text.includes(word); ) {
      const { value, done } = await reader.read();
      if (done) throw new Error("the stream ended before the reply");
      text += decoder.decode(value, { stream: true });
    }
    const took = performance.now() - began;
    await reader.cancel();
    await sent;
    return took;
  }, stream, calls, firstWord);
}

/** watch notes in the page when Enter is pressed, and when a new reply shows its first word. */
async function watch(page: Page): Promise<void> {
  await page.driver.evaluate((replies, word) => {
    const before = new Set(document.querySelectorAll(replies));
    const seen = new Promise<Omit<Waits, "raw">>((resolve) => {
      let enter = 0;
      addEventListener("keydown", (e) => (enter = e.timeStamp), { capture: true, once: true });
      const observer = new MutationObserver(() => {
        if (![...document.querySelectorAll(replies)].some((one) => !before.has(one) && one.textContent!.includes(word))) return;
        observer.disconnect();
        const inPage = performance.now() - enter;
        requestAnimationFrame(() => setTimeout(() => resolve({ inPage, painted: performance.now() - enter })));
      });
      observer.observe(document.body, { subtree: true, childList: true, characterData: true });
    });
    Object.assign(globalThis, { seen });
  }, '[data-test="message"][data-role="assistant"]', firstWord);
}

/** inThePage sends what the message box has with Enter. Nothing else is asked of the browser until the first word is painted. */
async function inThePage(page: Page): Promise<Omit<Waits, "raw">> {
  await page.type("composer", "Go");
  await watch(page);
  await page.driver.keyboard.down("Enter");
  const waits = await page.driver.evaluate(() => (globalThis as unknown as { seen: Promise<Omit<Waits, "raw">> }).seen);
  await page.driver.keyboard.up("Enter");
  return waits;
}

/** report prints what the page adds to the raw wire, and checks the pair that other work on the machine disturbed least. */
function report(kind: string, what: string, pairs: readonly Waits[]): void {
  const ms = (of: (pair: Waits) => number): number => Math.round(median(pairs.map(of)) * 10) / 10;
  const added = pairs.map(({ raw, inPage }) => inPage - raw);
  console.log(`# ${kind}: the first word of a reply ${what}, medians of ${pairs.length} pairs: ${ms((p) => p.raw)} ms on the raw wire, ${ms((p) => p.inPage)} ms in the page, ${ms((p) => p.painted)} ms painted; the page adds ${ms((p) => p.inPage - p.raw)} ms`);
  assert.ok(pairs.some(({ raw, inPage }) => inPage <= Math.max(raw + allowed, raw * allowedTimes)), `the page adds ${added.map(Math.round).join(", ")} ms`);
}

const pairs = 15;

suite("the first word of a reply", (check) => {
  const latest = async ({ server }: Stage): Promise<string> => (await server.call<{ latest_event_id: string }>("GET", "/events"))["latest_event_id"];

  check("in an existing session", async (stage) => {
    const { kind, server, open } = stage;
    const [wire, shown] = [await server.session(), await server.session()];
    const page = await open(`/s/${shown}`);
    await page.at("composer");
    const all: Waits[] = [];
    for (let i = 0; i < pairs; i++) {
      const raw = await onTheWire(page, await latest(stage), wire, false);
      await server.settled(wire);
      all.push({ raw, ...(await inThePage(page)) });
      await server.settled(shown);
    }
    report(kind, "in an existing session", all);
  });

  check("in a new session", async (stage) => {
    const { kind, server, open } = stage;
    const page = await open("/");
    const all: Waits[] = [];
    for (let i = 0; i < pairs; i++) {
      await page.click("new");
      await page.gone("message");
      const id = `raw-${i}`;
      const raw = await onTheWire(page, await latest(stage), id, true);
      await server.settled(id);
      all.push({ raw, ...(await inThePage(page)) });
      await page.until("the reply has ended", () => document.querySelector('[data-test="message"][data-role="assistant"][aria-busy="false"]'));
    }
    report(kind, "in a new session", all);
  });
}, { provider: { request_options: { loquat_script: { text: `${firstWord} come the words of this reply, one after the other.`, rate: 50 } } } });
