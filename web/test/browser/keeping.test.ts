// What users do with whole chats.
import assert from "node:assert/strict";
import { suite } from "./suite.ts";

const everywhere = { looks: true } as const;

suite("keeping", (check) => {
  check("a title that a model writes takes the place of the first words", async ({ server, open }) => {
    const { session_id: session } = await server.call<{ session_id: string }>("POST", "/sessions", { agent_id: "titled" });
    const page = await open(`/s/${session}`);
    await page.send("Please say something");
    await page.shows("Lorem ipsum", "title");
    await page.list();
    await page.until("the title in the list", (id) => document.querySelector<HTMLElement>(`[data-session="${id}"]`)?.innerText.includes("Lorem ipsum"), session);
  }, everywhere);

  check("a chat is tagged and found by its tag, and pinned", async ({ server, open }) => {
    const session = await server.session({ title: "Bread" });
    await server.session({ title: "Letters" });
    const page = await open(`/s/${session}`);
    await page.click("session-menu");
    await page.click("tags");
    await page.at("tags-field"); // its code is loaded on demand
    await page.driver.$eval('[data-test="tags-field"]', (field, text) => {
      (field as HTMLInputElement).value = text;
      field.dispatchEvent(new Event("input", { bubbles: true }));
    }, Array.from({ length: 33 }, (_, i) => `tag ${i}`).join(","));
    await page.click("tags-save");
    assert.equal(await page.driver.$eval('[data-test="tags-field"]', (field) => field.getAttribute("aria-invalid")), "true", "a chat has at most 32 tags");
    await page.driver.$eval('[data-test="tags-field"]', (field) => (field as HTMLInputElement).select());
    await page.type("tags-field", "recipes, weekend");
    await page.click("tags-save");
    await page.gone("tags-field");
    await page.click("session-menu");
    await page.click("pin");
    await page.list();
    await page.until("the tag and the group of pins", (id) => {
      const list = document.querySelector<HTMLElement>('[data-test="session-list"]')!;
      return /^Pinned/i.test(list.innerText.trim()) && list.querySelector<HTMLElement>(`[data-session="${id}"]`)?.innerText.includes("recipes");
    }, session);
    await page.click("tag-filter");
    await page.at("menu");
    await page.driver.$$eval('[data-test="menu"] button', (all) => (all.find((one) => one.textContent?.includes("weekend")) as HTMLElement).click());
    await page.until("one row", () => document.querySelectorAll('[data-test="session-row"]').length === 1);
    await page.shows("Bread", "session-row");
    const { metadata } = await server.call<{ metadata: object }>("GET", `/sessions/${session}`);
    assert.deepEqual({ ...metadata, title: undefined }, { tags: ["recipes", "weekend"], pinned: true, title: undefined });
    await server.call("DELETE", `/sessions/${session}`);
  }, everywhere);

  check("a chat goes into the archive, and comes back", async ({ server, open }) => {
    const session = await server.session({ title: "Old plans" });
    const listed = () => page.until("the row", (id) => document.querySelector(`[data-session="${id}"]`)?.checkVisibility(), session);
    const page = await open(`/s/${session}`);
    await page.click("session-menu");
    await page.click("archive");
    await page.list();
    await page.until("no row", (id) => !document.querySelector(`[data-session="${id}"]`), session);
    await page.click("archived");
    await page.list();
    await listed();
    await page.click("session-row", `[data-session="${session}"] [data-test="row-menu"]`);
    await page.click("archive");
    await page.until("no row in the archive", (id) => !document.querySelector(`[data-session="${id}"]`), session);
    await page.click("list-back");
    await page.list();
    await listed();
  }, everywhere);

  check("a chat is saved as JSON, Markdown and HTML", async ({ server, open }) => {
    const session = await server.session({ title: "To keep", messages: [{ role: "user", content: "Keep **me**" }] });
    const page = await open(`/s/${session}`);
    await page.shows("Keep me", "message");
    await page.click("session-menu");
    for (const [format, wanted] of [["json", '"Keep **me**"'], ["markdown", "Keep **me**"], ["html", "<!doctype html"]] as const) {
      await page.at(`export-${format}`);
      const file = await page.driver.$eval(`[data-test="export-${format}"]`, async (link) => {
        const answer = await fetch((link as HTMLAnchorElement).href);
        return { saves: link.hasAttribute("download"), named: answer.headers.get("content-disposition") ?? "", text: await answer.text() };
      });
      assert.ok(file.saves);
      assert.match(file.named, /^attachment; filename/);
      assert.ok(file.text.toLowerCase().includes(wanted.toLowerCase()), `${format}: ${file.text.slice(0, 200)}`);
    }
  }, everywhere);
}, { config: { agents: { default: { provider: "main" }, titled: { provider: "main", title: { model: "lorem" } } } } });
