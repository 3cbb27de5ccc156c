// What a page needs to know of elements, without the page. What is not known of them
// is left alone.

import { dataRootOf, lookup, render, rootOf, visible } from "./conditions.js";

// shown picks the elements of a type that show in a context, in their order.
export function shown(elements, uiType, context) {
  return elements
    .filter((e) => e.ui_type === uiType && visible(e.condition, rootOf(uiType), context))
    .sort((a, b) => (Number(a.order) || 0) - (Number(b.order) || 0));
}

// textOf is what a footer, a status or a field of the session list says, or null: what
// has no data is hidden.
export function textOf(element, context) {
  const { found, value } = lookup(element.data, dataRootOf(element.ui_type), context);
  return found && value !== null ? render(typeof element.template === "string" ? element.template : "", value) : null;
}

// runnable is false of actions that this page has no dialog for.
export const runnable = (element) => !element.dialog || (element.dialog.kind ?? "form") === "form";

// paramsOf are the params of an action: what param_map says, from the context
// {session, message} and the dialog's inputs, inputs that it does not speak of under
// their own names, and fixed_params as they are.
export function paramsOf(element, context, inputs = {}) {
  const params = Object.create(null);
  const map = Object.entries(element.param_map || {});
  for (const [name, value] of Object.entries(inputs)) {
    if (!map.some(([param, expression]) => param === name || expression === `$dialog.${name}`)) params[name] = value;
  }
  for (const [name, expression] of map) {
    const value = resolved(String(expression), context, inputs);
    if (value !== undefined) params[name] = value;
  }
  return { ...params, ...element.fixed_params };
}

function resolved(expression, context, inputs) {
  if (!expression.startsWith("$dialog.")) return lookup(expression, "", context).value;
  const name = expression.slice("$dialog.".length);
  return Object.hasOwn(inputs, name) ? inputs[name] : undefined;
}

// configOf is the effective config as far as its elements tell: what a session or the
// configuration chose. Defaults are for display only.
export function configOf(elements, values) {
  const config = Object.create(null);
  const chosen = ([, v]) => v.source === "override" || v.source === "config";
  for (const [key, v] of Object.entries(values).filter(chosen)) config[key] = structuredClone(v.value);
  for (const e of elements) {
    if (e.ui_type === "config" && e.config_path && Object.hasOwn(config, e.key)) place(config, String(e.config_path).split("."), config[e.key]);
  }
  return config;
}

function place(object, keys, value) {
  for (const key of keys.slice(0, -1)) {
    if (!Object.hasOwn(object, key) || typeof object[key] !== "object" || !object[key]) object[key] = Object.create(null);
    object = object[key];
  }
  object[keys.at(-1)] = value;
}

// optionsOf are the {value, label} of a select or dropdown.
export function optionsOf(element) {
  const options = Array.isArray(element.options) ? element.options : [];
  return options.map((o) => (typeof o === "object" && o ? { value: o.value, label: String(o.label ?? o.value) } : { value: o, label: String(o) }));
}

// acceptOf turns supported_file_types into what a file input takes: media types stay,
// names of files get a dot.
export function acceptOf(element) {
  const types = Array.isArray(element.supported_file_types) ? element.supported_file_types.map(String) : [];
  return types.map((t) => (t.includes("/") || t.startsWith(".") ? t : `.${t}`)).join(",");
}
