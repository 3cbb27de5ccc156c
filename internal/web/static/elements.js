// The rules of elements, independent of the page. Unknown fields and types are ignored.

import { dataRootOf, lookup, render, rootOf, visible } from "./conditions.js";

// shown returns the elements of a type whose condition holds in a context, in their order.
export function shown(elements, uiType, context) {
  return elements
    .filter((e) => e.ui_type === uiType && visible(e.condition, rootOf(uiType), context))
    .sort((a, b) => (Number(a.order) || 0) - (Number(b.order) || 0));
}

// textOf returns the text of a footer, a status or a field of the session list. It returns
// null for an element without data, which is hidden.
export function textOf(element, context) {
  const { found, value } = lookup(element.data, dataRootOf(element.ui_type), context);
  return found && value !== null ? render(typeof element.template === "string" ? element.template : "", value) : null;
}

// runnable returns false for actions whose kind of dialog this page does not have.
export const runnable = (element) => !element.dialog || (element.dialog.kind ?? "form") === "form";

// paramsOf returns the params of an action. param_map takes values from the context
// {session, message} and from the dialog's inputs. Inputs that param_map does not mention
// keep their names. fixed_params are added unchanged and win over the others.
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

// configOf returns the config that a session or the configuration set, as far as the
// elements show it. Defaults are only for display, so they are not included.
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

// optionsOf returns the {value, label} of each option of a select or dropdown.
export function optionsOf(element) {
  const options = Array.isArray(element.options) ? element.options : [];
  return options.map((o) => (typeof o === "object" && o ? { value: o.value, label: String(o.label ?? o.value) } : { value: o, label: String(o) }));
}

// acceptOf converts supported_file_types to the accept attribute of a file input. Media
// types stay as they are; file extensions get a dot.
export function acceptOf(element) {
  const types = Array.isArray(element.supported_file_types) ? element.supported_file_types.map(String) : [];
  return types.map((t) => (t.includes("/") || t.startsWith(".") ? t : `.${t}`)).join(",");
}
