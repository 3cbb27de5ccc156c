// Tools and forms of plugins, and messages that go into a reply that uses tools.
import assert from "node:assert/strict";
import { sawing, withWorkshop } from "./plugin/options.ts";
import { until } from "./program.ts";
import { suite } from "./suite.ts";

const everywhere = { looks: true } as const;
const call = (id: string, name: string) => ({ id, type: "function", function: { name, arguments: `{"city": "${id}"}` } });
const result = (id: string, content: string, more: object = {}) => ({ role: "tool", content, metadata: { tool_call_id: id, tool_name: "weather", ...more } });

suite("tools", (check) => {
  check("the card of a tool shows its output while it runs, and then the result for the user", async ({ server, open }) => {
    const session = await server.session({ script: sawing(6, 300, "All is sawn.") });
    const page = await open(`/s/${session}`);
    await page.send("Saw six planks");
    await page.at("tool", '[data-state="running"]');
    await page.click("tool", " summary");
    await page.shows("Plank 2 is sawn.", "tool");
    assert.ok((await page.count("tool", '[data-state="running"]')) === 1, "the output came before the end");
    await page.at("tool", ' [aria-label="Output so far"]');
    await page.at("tool", '[data-state="done"]');
    await page.shows("6 planks lie ready.", "tool");
    assert.doesNotMatch((await page.texts("tool"))[0]!, /for the model/);
    assert.match((await page.texts("tool"))[0]!, /"planks": 6/);
    await page.gone("stop");
  }, everywhere);

  check("a tool that fails says so, with its reason", async ({ server, open }) => {
    const session = await server.session({ script: sawing(0, 0, "It failed.") });
    const page = await open(`/s/${session}`);
    await page.send("Saw nothing");
    await page.at("tool", '[data-state="failed"]');
    await page.shows("failed", "tool");
    await page.click("tool", " summary");
    await page.shows("There is no plank to saw.", "tool");
    await page.gone("stop");
  }, everywhere);

  check("many calls in a row are one line that can be opened", async ({ server, open }) => {
    const cities = ["Ulm", "Bonn", "Kiel", "Jena", "Trier"];
    const messages = [
      { role: "user", content: "The weather?" },
      { role: "assistant", content: "", metadata: { tool_calls: cities.slice(0, 2).map((id) => call(id, "weather")) } },
      result("Ulm", "clear"), result("Bonn", "rain"),
      { role: "assistant", content: "", metadata: { tool_calls: cities.slice(2).map((id) => call(id, "weather")) } },
      result("Kiel", "wind"), result("Jena", "no such city", { is_error: true }), result("Trier", "fog"),
      { role: "assistant", content: "Mixed." },
    ];
    const page = await open(`/s/${await server.session({ messages })}`);
    await page.shows("5 tools used", "tools-all");
    await page.shows("1 failed", "tools-all");
    assert.equal(await page.count("tools"), 1);
    assert.deepEqual(await page.driver.$$eval('[data-test="tool"]', (all) => all.map((one) => one.checkVisibility())), cities.map(() => false));
    await page.click("tools-all");
    assert.deepEqual(await page.driver.$$eval('[data-test="tool"]', (all) => all.map((one) => one.checkVisibility())), cities.map(() => true));
    await page.click("tool", '[data-state="failed"] summary');
    await page.shows("no such city", "tool");
  }, everywhere);

  check("a message steers the running reply: it goes in after the tools that run", async ({ server, open }) => {
    const session = await server.session({ script: sawing(8, 300, "Then I stop.") });
    const page = await open(`/s/${session}`);
    await page.send("Saw eight planks");
    await page.at("tool", '[data-state="running"]');
    await page.click("send-mode");
    await page.click("mode-steer");
    await page.send("No more after this");
    await page.shows("Goes into the running reply at its next step", "queued");
    await page.shows("Then I stop.", "message");
    await page.gone("queued");
    await page.gone("stop");
    assert.deepEqual((await server.messages(session)).map((one) => one.role), ["user", "assistant", "tool", "user", "assistant"]);
  }, everywhere);

  check("what is typed into a setting is saved in its own chat, also when another one is opened meanwhile", async ({ server, open }) => {
    const other = await server.session({ messages: [{ role: "user", content: "Other" }] });
    const own = await server.session({ messages: [{ role: "user", content: "Own" }] });
    const length = async (id: string): Promise<unknown> => (await server.call<{ values: Record<string, { value: unknown }> }>("GET", `/sessions/${id}/config`)).values["workshop_length"]?.value;
    const page = await open(`/s/${other}`);
    await page.shows("Other", "message");
    await page.driver.click(`[data-session="${own}"] .row-link`);
    await page.shows("Own", "message");
    await page.click("chat-settings");
    const field = '[data-key="workshop_length"] input';
    const type = async (text: string): Promise<void> => {
      await page.driver.waitForSelector(field);
      await page.driver.focus(field);
      await page.press("Control", "a");
      await page.driver.keyboard.type(text);
    };
    await type("44");
    await page.driver.goBack();
    await page.shows("Other", "message");
    await until("it is saved", async () => (await length(own)) === 44);
    await type("no number"); // which is nothing to save
    await page.driver.goForward();
    await page.shows("Own", "message");
    await page.until("the setting of this chat", (where) => document.querySelector<HTMLInputElement>(where)?.value === "44", field);
    await type("55");
    await page.press("Escape"); // closes the panel
    await page.gone("chat-settings-panel");
    await until("it is saved", async () => (await length(own)) === 55);
    assert.equal(await length(other), 120);
  });

  check("the form of a plugin asks for what is required, and its action runs", async ({ server, open }) => {
    const page = await open(`/s/${await server.session({ messages: [{ role: "user", content: "Planks" }] })}`);
    await page.shows("Planks", "message");
    await page.click("session-menu");
    await page.click("plugin-action");
    await page.shows("How many");
    await page.until("the default is there", () => [...document.querySelectorAll<HTMLInputElement>("dialog[open] input")].some(({ value }) => value === "By noon"));
    await page.click("action-run");
    await page.shows("This is required.");
    await page.press("Shift", "Tab");
    await page.driver.$eval('dialog[open] input[type="number"], dialog[open] input', (field) => (field as HTMLElement).focus());
    await page.driver.keyboard.type("12");
    await page.click("action-run");
    await page.shows("Done: Order planks");
  }, everywhere);
}, { config: withWorkshop });
