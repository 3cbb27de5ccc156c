// The elements and settings of the session on the page.

import { call } from "./api.js";
import { button, element, listOf } from "./dom.js";
import { configOf, paramsOf, runnable, shown, textOf } from "./elements.js";
import { ask } from "./forms.js";

export const nothing = { elements: [], values: {}, config: {}, wide: false };

export const pathOf = (id) => `/sessions/${encodeURIComponent(id)}`;

// loadElements loads a session's elements and the values of its settings. wide reports
// whether elements of messages depend on the whole session.
export async function loadElements(id) {
  const [core, application, config] = await Promise.all(
    ["/ui-schema", "/application/ui-schema", "/config"].map((route) => optional(pathOf(id) + route)));
  const elements = [...elementsOf(core), ...elementsOf(application)];
  const values = config?.values || {};
  // Such elements have to be compared again whenever the session changes.
  const wide = elements.some((e) => e.ui_type.startsWith("message_") && JSON.stringify([e.condition, e.data]).includes('"$session.'));
  return { elements, values, config: configOf(elements, values), wide };
}

// listFields returns the elements that the list shows for each session.
export const listFields = async () => elementsOf(await optional("/application/ui-schema"));

function elementsOf(schema) {
  return listOf(schema?.elements).map((e) => ({ ...e, ui_type: String(e.ui_type || "config") }));
}

// optional returns null if the server does not have the route, or does not allow it to
// this user.
async function optional(path) {
  try {
    return await call("GET", path);
  } catch (err) {
    if (err.code === "not_found" || err.code === "forbidden") return null;
    throw err;
  }
}

// texts returns the texts of all elements of a type.
export function texts(elements, uiType, context) {
  return shown(elements, uiType, context).map((e) => textOf(e, context)).filter((t) => t !== null && t !== "");
}

// actions returns the buttons of a type. done is called with an action's result, failed
// with its error. context is called when the user presses a button.
export function actions(elements, uiType, context, { done, failed }) {
  return shown(elements, uiType, context()).filter(runnable).map((e) => button(e.label || e.action_id, async () => {
    const perform = async (inputs) => done(e, await run(e, context(), inputs));
    if (e.dialog) return ask({ ...e.dialog, title: e.dialog.title || e.label || e.action_id, inputs: listOf(e.dialog.inputs), confirm: e.label, inputOf: inputOf(e) }, perform);
    return perform().catch(failed);
  }));
}

// inputOf returns the dialog input that an error location body.params.NAME refers to.
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

// override writes one setting of a session as given; null removes the override.
export const override = (id, key, value) => call("PUT", `${pathOf(id)}/config/${encodeURIComponent(key)}`, { value: value ?? null });

// images returns the images attached to a message. A remote image is shown as a link,
// because the page loads nothing from other servers.
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
