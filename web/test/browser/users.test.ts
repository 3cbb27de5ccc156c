// The page for a token of scope user: it works, and shows nothing of other users.
import assert from "node:assert/strict";
import type { Page } from "./browser.ts";
import { suite } from "./suite.ts";

const tokens = [
  { name: "backend", token: "for-the-backend-0123456789", scope: "full" },
  { name: "ann", token: "for-ann-0123456789", scope: "user", user: "ann" },
  { name: "bob", token: "for-bob-0123456789", scope: "user", user: "bob" },
];

/** signIn enters a token in the dialog. */
async function signIn(page: Page, token: string): Promise<void> {
  await page.type("token", token);
  await page.press("Enter");
  await page.gone("token");
  await page.until("live", () => document.querySelector('[data-test="connection"]')?.getAttribute("data-state") === "live");
}

suite("users", (check) => {
  check("what a user writes in a browser is never sent or shown as another's", async ({ server, open }) => {
    const page = await open("/", { tolerant: true }); // 401 before the token
    await signIn(page, "for-ann-0123456789");
    const expire = async () => page.driver.deleteCookie(...(await page.driver.cookies()));
    server.network.cut();
    await page.send("Ann's secret");
    await page.shows("Ann's secret", "outgoing");
    await page.click("new");
    await page.type("composer", "Ann's thought");
    await expire();
    server.network.mend();
    const text = () => page.driver.evaluate(() => document.body.innerText + [...document.querySelectorAll("textarea")].map((box) => box.value).join());
    await signIn(page, "for-bob-0123456789");
    await page.until("an empty box", () => document.querySelector<HTMLTextAreaElement>('[data-test="composer"]')?.value === "");
    assert.doesNotMatch(await text(), /Ann's/);
    await page.send("Bob's own");
    await page.until("the reply", () => document.querySelector('[data-test="message"][data-role="assistant"][aria-busy="false"]'));
    const sessions = await server.call<{ sessions: { user: string }[] }>("GET", "/sessions", undefined, "for-the-backend-0123456789");
    assert.deepEqual(sessions.sessions.map(({ user }) => user), ["bob"]);
    await expire();
    await page.driver.goto(server.url);
    await signIn(page, "for-ann-0123456789");
    await page.until("the draft", () => document.querySelector<HTMLTextAreaElement>('[data-test="composer"]')?.value === "Ann's thought");
    await page.list();
    await page.shows("Ann's secret", "session-row");
    assert.doesNotMatch(await text(), /Bob's own/);
  });

  check("each sees the own chats, live in a second window", async ({ open }) => {
    const refused: string[] = [];
    const as = async (token: string) => {
      const page = await open("/", { tolerant: true }); // 401 before the token
      page.driver.on("response", (response) => { if (response.status() === 403) refused.push(response.url()); });
      await signIn(page, token);
      return page;
    };
    const bob = await as("for-bob-0123456789");
    const ann = await as("for-ann-0123456789");
    const second = await as("for-ann-0123456789");
    await ann.send("A plum for Ann");
    await ann.until("the reply", () => document.querySelector('[data-test="message"][data-role="assistant"][aria-busy="false"]'));
    await second.list();
    await second.shows("A plum for Ann", "session-row");
    await bob.send("A pear for Bob");
    await bob.until("the reply", () => document.querySelector('[data-test="message"][data-role="assistant"][aria-busy="false"]'));
    await bob.list();
    await bob.shows("A pear for Bob", "session-row");
    for (const [page, text] of [[bob, "plum"], [second, "pear"]] as const) assert.ok(!(await page.driver.evaluate(() => document.body.innerText)).includes(text), `it shows ${text}`);
    assert.deepEqual(refused, [], "the page asks for what it may not have");
  });
}, { config: { server: { auth_tokens: tokens } } });
