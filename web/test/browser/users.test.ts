// The page for a token of scope user: it works, and shows nothing of other users.
import assert from "node:assert/strict";
import { suite } from "./suite.ts";

const tokens = [
  { name: "backend", token: "for-the-backend-0123456789", scope: "full" },
  { name: "ann", token: "for-ann-0123456789", scope: "user", user: "ann" },
  { name: "bob", token: "for-bob-0123456789", scope: "user", user: "bob" },
];

suite("users", (check) => {
  check("each sees the own chats, live in a second window", async ({ open }) => {
    const refused: string[] = [];
    const signIn = async (token: string) => {
      const page = await open("/", { tolerant: true }); // 401 before the token
      page.driver.on("response", (response) => { if (response.status() === 403) refused.push(response.url()); });
      await page.type("token", token);
      await page.press("Enter");
      await page.gone("token");
      await page.until("live", () => document.querySelector('[data-test="connection"]')?.getAttribute("data-state") === "live");
      return page;
    };
    const bob = await signIn("for-bob-0123456789");
    const ann = await signIn("for-ann-0123456789");
    const second = await signIn("for-ann-0123456789");
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
