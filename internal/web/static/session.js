// What plugins and settings bring to the session that is shown: elements and values.

import { call } from "./api.js";
import { button, element, listOf } from "./dom.js";
import { configOf, paramsOf, runnable, shown, textOf } from "./elements.js";
import { ask } from "./forms.js";

export const nothing = { elements: [], values: {}, config: {}, wide: false };

export const pathOf = (id) => `/sessions/${encodeURIComponent(id)}`;

// loadElements asks for a session's elements and the values of its settings.
export async function loadElements(id) {
  const [core, application, config] = await Promise.all(
    ["/ui-schema", "/application/ui-schema", "/config"].map((route) => optional(pathOf(id) + route)));
  const elements = [...elementsOf(core), ...elementsOf(application)];
  const values = config?.values || {};
  // What a message shows of its session changes with the session.
  const wide = elements.some((e) => e.ui_type.startsWith("message_") && JSON.stringify([e.condition, e.data]).includes('"$session.'));
  return { elements, values, config: configOf(elements, values), wide };
}

// listFields are what the list of sessions shows of each.
export const listFields = async () => elementsOf(await optional("/application/ui-schema"));

function elementsOf(schema) {
  return listOf(schema?.elements).map((e) => ({ ...e, ui_type: String(e.ui_type || "config") }));
}

// optional is null where a server has no such route, or not for this user.
async function optional(path) {
  try {
    return await call("GET", path);
  } catch (err) {
    if (err.code === "not_found" || err.code === "forbidden") return null;
    throw err;
  }
}

// texts are what the elements of a type say.
export function texts(elements, uiType, context) {
  return shown(elements, uiType, context).map((e) => textOf(e, context)).filter((t) => t !== null && t !== "");
}

// actions are the buttons of a type. done is told what an action answered, failed why it
// did not run; the context is asked for when a button is pressed.
export function actions(elements, uiType, context, { done, failed }) {
  return shown(elements, uiType, context()).filter(runnable).map((e) => button(e.label || e.action_id, async () => {
    const perform = async (inputs) => done(e, await run(e, context(), inputs));
    if (e.dialog) return ask({ ...e.dialog, title: e.dialog.title || e.label || e.action_id, inputs: listOf(e.dialog.inputs), confirm: e.label, inputOf: inputOf(e) }, perform);
    return perform().catch(failed);
  }));
}

// inputOf names the dialog input whose value a fault is about: body.params.NAME.
const inputOf = (e) => (location) => {
  const param = location.replace(/^body\.params\./, "");
  return String(e.param_map?.[param] ?? param).replace(/^\$dialog\./, "");
};

async function run(e, context, inputs) {
  const body = { element_id: e.id, plugin: e.plugin, params: paramsOf(e, context, inputs) };
  if (e.action_owner) body.action_owner = e.action_owner;
  const path = `${pathOf(context.session.session_id)}/actions/${encodeURIComponent(e.action_id)}`;
  return (await call("POST", path, body)).result;
}

// override sets one setting of a session, as it stands; null takes the override back.
export const override = (id, key, value) => call("PUT", `${pathOf(id)}/config/${encodeURIComponent(key)}`, { value: value ?? null });

// images are what a message has attached. A remote one is a link: the page loads nothing
// from elsewhere.
export function images(id, message) {
  return listOf(message.metadata?.attachments).map((a, i) => {
    const name = a.name || `Image ${i + 1}`;
    const inline = typeof a.data_url === "string" && a.data_url.startsWith("data:image/");
    if (a.asset_id || inline) {
      const picture = element("img");
      picture.src = inline ? a.data_url : `${pathOf(id)}/assets/${encodeURIComponent(a.asset_id)}`;
      picture.alt = name;
      picture.loading = "lazy";
      return picture;
    }
    if (!/^https?:\/\//i.test(a.url || "")) return element("span", "quiet", name);
    const link = element("a", "", a.url);
    link.href = a.url;
    link.rel = "noreferrer";
    link.target = "_blank";
    return link;
  });
}
