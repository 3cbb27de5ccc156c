// Inputs that elements describe, and the dialog that asks for some of them.

import { equal } from "./conditions.js";
import { button, element } from "./dom.js";
import { optionsOf } from "./elements.js";

let made = 0; // ids of inputs

// control makes the input of a config element or dialog input {type, label, …}. read
// returns its value, undefined when it is empty, and throws an Error for an invalid value.
// showError shows an error below the input; "" removes the error.
export function control(spec, value) {
  const id = `input-${++made}`;
  const name = spec.label || spec.name || spec.key || "";
  if (spec.type === "select" && optionsOf(spec).length) return chips(spec, name, id, value);
  const { node, read } = plain(spec, value);
  node.id = id;
  node.required = Boolean(spec.required) && node.type !== "checkbox"; // an unchecked box is a valid answer
  const label = element("label", "", name);
  label.htmlFor = id;
  const row = element("div", node.type === "checkbox" ? "field tick" : "field", undefined, label, node);
  return { node: row, input: node, read, showError: describe(row, spec, node, id) };
}

// describe adds the help text and the place for errors. It returns the input's showError.
function describe(row, spec, input, id) {
  const help = element("p", "quiet", spec.description || "");
  const fault = element("p", "fault");
  fault.setAttribute("role", "alert");
  help.id = `${id}-help`;
  fault.id = `${id}-fault`;
  input.setAttribute("aria-describedby", `${help.id} ${fault.id}`);
  row.append(help, fault);
  return (text) => {
    fault.textContent = text;
    input.setAttribute("aria-invalid", String(text !== ""));
  };
}

function plain(spec, value) {
  const dropdown = (spec.type === "dropdown" || spec.type === "select") && optionsOf(spec).length;
  if (dropdown) return choice(spec, value);
  const node = element(spec.type === "multiline" ? "textarea" : "input");
  if (spec.type === "checkbox") {
    node.type = "checkbox";
    node.checked = value === true;
    return { node, read: () => node.checked };
  }
  if (spec.placeholder) node.placeholder = spec.placeholder;
  if (spec.type === "number") {
    node.type = "number";
    node.step = "any";
    node.value = value ?? "";
    return { node, read: () => (node.value === "" ? undefined : Number(node.value)) };
  }
  const json = spec.format === "json";
  if (node.localName === "textarea") node.rows = 4;
  node.value = typeof value === "string" && !json ? value : value === undefined || value === null ? "" : JSON.stringify(value, null, node.rows ? 2 : 0);
  return { node, read: () => (node.value === "" ? undefined : json ? parsed(node.value) : node.value) };
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch (err) {
    throw new Error(`This is not valid JSON: ${err.message}`);
  }
}

// withCurrent returns the options. It adds the current value if it is not one of them.
function withCurrent(spec, value) {
  const options = optionsOf(spec);
  if (value !== undefined && value !== null && !options.some((o) => equal(o.value, value))) {
    options.unshift({ value, label: typeof value === "string" ? value : JSON.stringify(value) });
  }
  return options;
}

function choice(spec, value) {
  const node = element("select");
  const options = withCurrent(spec, value);
  const at = options.findIndex((o) => equal(o.value, value));
  if (at < 0) options.unshift({ value: undefined, label: "" });
  node.append(...options.map((o, i) => {
    const option = element("option", "", o.label);
    option.value = o.value === undefined ? "" : String(i + 1);
    return option;
  }));
  node.selectedIndex = Math.max(at, 0);
  return { node, read: () => options[node.selectedIndex]?.value };
}

// chips makes radio buttons, which show all options at once.
function chips(spec, name, id, value) {
  const options = withCurrent(spec, value);
  const group = element("fieldset", "field chips", undefined, element("legend", "", name));
  group.id = id;
  const inputs = options.map((o, i) => {
    const input = element("input");
    input.type = "radio";
    input.name = id;
    input.id = `${id}-${i}`;
    input.required = Boolean(spec.required);
    input.checked = equal(o.value, value);
    const label = element("label", "", o.label);
    label.htmlFor = input.id;
    group.append(input, label);
    return input;
  });
  return { node: group, input: group, read: () => options[inputs.findIndex((i) => i.checked)]?.value, showError: describe(group, spec, group, id) };
}

// ask shows a dialog with a form. When the user submits the form, ask calls submit with the
// values by input name. If submit fails, the dialog stays open and shows each error below
// the input that inputOf returns for the error's location, or else above the buttons.
// The promise resolves when the dialog closes.
export function ask({ title, message, inputs = [], confirm = "Run", inputOf = () => "" }, submit) {
  const controls = inputs.map((spec) => ({ name: spec.name, ...control(spec) }));
  const fault = element("p", "fault");
  fault.setAttribute("role", "alert");
  const go = element("button", "primary", confirm);
  const dialog = element("dialog");
  const form = element("form", "", undefined, ...controls.map((c) => c.node), fault,
    element("div", "buttons", undefined, button("Cancel", () => dialog.close()), go));
  const heading = element("h2", "", title);
  heading.id = `dialog-${++made}`;
  dialog.setAttribute("aria-labelledby", heading.id);
  dialog.append(heading);
  if (message) dialog.append(element("p", "", message));
  dialog.append(form);
  form.onsubmit = async (e) => {
    e.preventDefault();
    fault.textContent = "";
    controls.forEach((c) => c.showError(""));
    go.disabled = true;
    try {
      await submit(valuesOf(controls));
      dialog.close();
    } catch (err) {
      fault.textContent = showErrors(err, (location) => controls.find((c) => c.name === inputOf(location)));
    } finally {
      go.disabled = false;
    }
  };
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.onclose = () => {
      dialog.remove();
      resolve();
    };
  });
}

// showErrors shows each field error at the control of its location. It returns the
// messages that belong to no control.
function showErrors(err, controlAt) {
  if (!err.errors?.length) return err.message;
  return err.errors.filter((e) => {
    const control = controlAt(e.location);
    control?.showError(e.message);
    return !control;
  }).map((e) => e.message).join("; ");
}

// valuesOf returns the values by input name, without those of empty inputs.
function valuesOf(controls) {
  const values = {};
  for (const c of controls) {
    const value = c.read();
    if (value !== undefined) values[c.name] = value;
  }
  return values;
}
