// What the page makes of the elements of plugins, and the settings of a session.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ProblemError, type UIElement } from "@loquat/client";
import { actionBody, actionsOf, attachmentKindsOf, elementsOf, faultsOf, inputsOf, secretOf, settingGroups, specOf, textsOf, type ActionElement } from "../../src/model/elements.ts";
import { readInputs, valueOf, type Entered } from "../../src/model/inputs.ts";
import { App } from "../../src/model/app.ts";
import { memory } from "../../src/model/storage.ts";
import { FakeWire } from "./fake.ts";
import { page, state, tick } from "./page.ts";

const action = { ui_type: "message_action", id: "a", action_id: "go", plugin: "p", action_owner: "feature", fixed_params: { fixed: true }, param_map: { word: "$dialog.the_word", at: "$message.index", of: "$session.session_id" }, dialog: { inputs: [{ name: "the_word", type: "text", required: true }, { name: "own" }, null, { label: "no name" }] } };

/** Where the views get what they draw of each type of element. A type that the page does not draw returns true, with a comment that says why. */
const drawn: { readonly [type in UIElement["ui_type"]]: (app: App) => unknown } = {
  config: (app) => settingGroups(app.settings.elements.value, {}, "").length,
  message_footer: (app) => app.settings.footers(reply).length,
  status_bar: (app) => app.settings.status.value.length,
  session_action: (app) => app.settings.sessionActions().length,
  message_action: (app) => app.settings.messageActions(reply).length,
  session_list_field: (app) => app.list.fields({ summary: { metadata: { title: "T" } } } as never).length,
  composer_attachment: (app) => attachmentKindsOf(app.settings.elements.value, {}).images,
  model_picker: (app) => app.settings.picker.value,
};
const reply = { message: { id: "m", role: "assistant", content: "c", metadata: {} }, index: 0 } as never;

test("each type of element is drawn", async () => {
  const { app, wire } = await page();
  app.go({ at: "session", id: "one" });
  wire.sessionsOf.get("one")!.set({ status: "ready", state: state("one", { messages: [{ id: "m", role: "assistant", content: "c", metadata: {} }] }), error: undefined });
  await tick();
  for (const [type, look] of Object.entries(drawn)) {
    app.settings.elements.value = app.list.elements.value = [];
    assert.ok(!look(app) || look(app) === true, `${type} without an element`);
    const data = type === "session_list_field" ? "title" : type === "status_bar" ? "content" : "role";
    app.settings.elements.value = app.list.elements.value = elementsOf({ elements: [
      { ui_type: type, key: "model", id: "a", action_id: "go", attachment_type: "image", data, plugin: "p" }, ...(type === "model_picker" ? [{ key: "model" }] : []),
    ] });
    assert.ok(look(app), `the model gives the views no ${type}`);
  }
});

test("elements of any shape do no harm", () => {
  for (const answer of [null, 1, "x", {}, { elements: 3 }]) assert.deepEqual(elementsOf(answer), []);
  const elements = elementsOf({ elements: [null, 1, [], { key: "k", config_path: 7, label: {} }, { ...action, param_map: "x", dialog: 3, fixed_params: [] }, { ui_type: "hologram" }, { ui_type: "message_footer", data: 5 }] });
  assert.equal(elements.length, 4);
  assert.deepEqual(settingGroups(elements, {}, "").map((g) => g.elements.map((e) => specOf(e as never, e.key).label)), [["k"]]);
  assert.deepEqual(textsOf(elements, "message_footer", { message: {} }), []);
  assert.equal(actionsOf(elements, "message_action", { message: {} }).length, 1);
});

test("conditions hide settings, and malformed ones too; a search finds the others", () => {
  const elements = elementsOf({ elements: [{ key: "a", label: "Tone", plugin: "x.one" }, { key: "b", condition: { path: "a", eq: 1 } }, { key: "c", condition: { magic: 1 } }] });
  const keys = (config: { [key: string]: unknown }, query = ""): string[] => settingGroups(elements, config, query).flatMap((g) => g.elements.map((e) => e.key));
  assert.deepEqual(keys({}), ["a"]);
  assert.deepEqual(keys({ a: 1 }), ["a", "b"]);
  assert.deepEqual(keys({ a: 1 }, "tone one"), ["a"]);
  assert.deepEqual(keys({ a: 1 }, "nothing"), []);
});

test("texts become values", () => {
  const number = specOf({ type: "number" }, "n"), json = specOf({ type: "multiline", format: "json" }, "j"), needed = specOf({ required: true }, "r");
  assert.deepEqual(valueOf(number, "1.5"), { value: 1.5 });
  assert.deepEqual(valueOf(number, "abc"), { fault: "number" });
  assert.deepEqual(valueOf(number, ""), {});
  assert.deepEqual(valueOf(json, '{"a":null}'), { value: { a: null } });
  assert.deepEqual(valueOf(json, "{"), { fault: "json" });
  assert.deepEqual(valueOf(needed, ""), { fault: "required" });
  assert.deepEqual(valueOf(specOf({}, "t"), " x "), { value: " x " });
  assert.equal(secretOf({ set: true }), true);
  assert.equal(secretOf({ set: true, other: 1 }), null);
  assert.equal(specOf({ type: "select", options: [] }, "s").kind, "text");
  assert.equal(specOf({ type: "select", options: Array.from({ length: 300 }, (_, i) => i) }, "s").kind, "dropdown");
});

test("an action sends its params, and its errors go to the inputs", () => {
  const [element] = actionsOf(elementsOf({ elements: [action] }), "message_action", { message: {} }) as [ActionElement];
  const body = actionBody(element, { message: { index: 3 }, session: { session_id: "s" } }, { the_word: "w", own: 1, fixed: false });
  assert.deepEqual({ ...body, params: { ...body.params } }, { element_id: "a", plugin: "p", action_owner: "feature", params: { word: "w", at: 3, of: "s", own: 1, fixed: true } });
  const specs = inputsOf(element);
  assert.deepEqual(specs.map((spec) => spec.key), ["the_word", "own"]);
  const problem = new ProblemError({ code: "invalid", errors: [{ location: "body.params.word", message: "bad" }, { location: "body.params.own.x", message: "worse" }, { location: "body.params.__proto__", message: "odd" }] }, { status: 422 });
  assert.deepEqual({ ...faultsOf(element, specs, problem) }, { the_word: "bad", own: "worse", "": "odd" });
});

test("a dialog begins with the defaults of its inputs, which are sent until they are changed", () => {
  const inputs = [
    { name: "text", type: "text", default: "md" }, { name: "area", type: "multiline", default: "a\nb" }, { name: "json", type: "text", format: "json", default: { a: 1 } }, { name: "count", type: "number", default: 3 },
    { name: "on", type: "checkbox", default: true }, { name: "chip", type: "select", options: ["a", { value: 2 }], default: 2 }, { name: "menu", type: "dropdown", options: ["a", "b"], default: "b" },
    { name: "constructor", type: "text", required: true }, { name: "off", type: "checkbox" }, { name: "none", type: "text", default: null },
  ];
  const specs = inputsOf({ dialog: { inputs } } as unknown as ActionElement);
  const read = (entered: Entered) => {
    const { values, faults } = readInputs(specs, entered);
    return { values: { ...values }, faults: { ...faults } };
  };
  const { text, area, json, count, on, chip, menu } = Object.fromEntries(inputs.map((input) => [input.name, input.default]));
  assert.deepEqual(read(new Map()), { values: { text, area, json, count, on, chip, menu, off: false }, faults: { constructor: "required" } });
  const changed = new Map(Object.entries({ text: { text: "" }, json: { text: "[1]" }, count: { text: "x" }, on: { value: false }, chip: { value: "a" }, constructor: { text: "c" } }));
  assert.deepEqual(read(changed), { values: { area, json: [1], on: false, chip: "a", menu, constructor: "c", off: false }, faults: { count: "number" } });
});

test("attachments are what the elements allow", () => {
  assert.equal(attachmentKindsOf([], {}).images, false);
  const elements = elementsOf({ elements: [{ ui_type: "composer_attachment", attachment_type: "image", supports_url: true, supported_file_types: ["image/png", "webp", 3] }] });
  assert.deepEqual(attachmentKindsOf(elements, {}), { known: true, images: true, urls: true, accept: "image/png,.webp" });
});

test("the choice before the first message goes into the session that is created", async () => {
  const fake = new FakeWire();
  fake.answers = { "GET /agents": { agents: [{ agent_id: "a", provider: "p", model: "m" }, { agent_id: "default", provider: "p", model: "n" }] } };
  const app = new App(fake.wire, memory());
  app.agents.value = [{ agent_id: "a", provider: "p", model: "m" }, { agent_id: "default", provider: "p", model: "n" }];
  assert.equal(app.settings.agent.value, "default");
  assert.equal(app.settings.picker.value?.value, "n");
  await app.settings.chooseModel("other");
  assert.deepEqual(app.composer.value.newSession(), { metadata: { overrides: { model: "other" } } });
  await app.settings.chooseAgent("a");
  assert.deepEqual(app.composer.value.newSession(), { agent_id: "a" });
});

test("a setting is saved in its own chat after another one is opened, and a failure is said", async () => {
  const { app, wire } = await page();
  app.go({ at: "session", id: "two" });
  wire.sessionsOf.get("two")!.set({ status: "ready", state: state("two"), error: undefined });
  await tick();
  const puts = () => wire.calls.filter(({ method }) => method === "PUT").map(({ path, body }) => `${path} ${JSON.stringify(body)}`);
  wire.answers["PUT /sessions/one/config/tone"] = {};
  assert.equal(await app.settings.set("tone", "warm", "one"), true);
  assert.deepEqual([puts(), app.settings.saved.value.n], [['/sessions/one/config/tone {"value":"warm"}'], 0]);
  wire.answers["PUT /sessions/one/config/tone"] = new ProblemError({ code: "invalid", errors: [{ location: "body.value", message: "is too warm" }] }, { status: 422 });
  assert.equal(await app.settings.set("tone", "hot", "one", "Tone"), false);
  assert.deepEqual(app.notices.shown.value.map(({ kind, text }) => `${kind} ${text}`), ["error Tone: is too warm"]);
  assert.deepEqual(app.settings.refused.value, {}, "the open chat has nothing to do with it");
});

test("a model that the open chat does not take is said once, and so is one of a chat that is left meanwhile", async () => {
  const { app, wire } = await page();
  const elements = elementsOf({ elements: [{ key: "model", label: "Model" }, { ui_type: "model_picker", key: "model" }] });
  for (const leave of [false, true]) {
    app.go({ at: "session", id: "one" });
    app.settings.elements.value = elements;
    wire.answers["PUT /sessions/one/config/model"] = () => {
      if (leave) app.go({ at: "new" });
      throw new ProblemError({ code: "invalid", errors: [{ location: "body.value", message: "is unknown" }] }, { status: 422 });
    };
    await app.settings.chooseModel("x");
    assert.deepEqual(app.notices.shown.value.map(({ text }) => text), [leave ? "model: is unknown" : "is unknown"]);
    app.notices.shown.value = [];
  }
});

test("an action that fails is said in its dialog, or in a notice with its label if the dialog is not open", async () => {
  const { app, wire } = await page();
  app.go({ at: "session", id: "one" });
  const [element] = actionsOf(elementsOf({ elements: [{ ...action, label: "Order planks" }] }), "message_action", { message: {} }) as [ActionElement];
  const said = (): string[] => app.notices.shown.value.map(({ kind, text }) => `${kind} ${text}`);
  let meanwhile = (): void => {};
  wire.answers["POST /sessions/one/actions/go"] = () => {
    meanwhile();
    return new ProblemError({ code: "unavailable" }, { status: 503 });
  };
  app.settings.begin(element, null);
  const problem = await app.settings.run(app.settings.asked.peek()!, {});
  assert.deepEqual([problem?.code, said()], ["unavailable", []]);
  meanwhile = () => void (app.settings.asked.value = null);
  assert.equal(await app.settings.run(app.settings.asked.peek()!, {}), null);
  assert.equal(said().length, 1);
  assert.match(said()[0]!, /^error Order planks: The server is busy/);
  const { dialog: _, ...plain } = element;
  app.settings.begin(plain as ActionElement, null);
  await tick(5);
  assert.equal(said().length, 2, "so is one without a dialog");
});
