// Inputs that elements describe, and the dialog that asks for some of them.

import { equal } from "./conditions.js";
import { button, element } from "./dom.js";
import { optionsOf } from "./elements.js";

let made = 0; // ids of inputs

// control makes the input of a config element or dialog input {type, label, …}. read
// returns its value, undefined when it is left empty; it throws what it cannot read.
// tell says below it what is wrong with it, "" takes that back.
export function control(spec, value) {
  const id = `input-${++made}`;
  const name = spec.label || spec.name || spec.key || "";
  if (spec.type === "select" && optionsOf(spec).length) return chips(spec, name, id, value);
  const { node, read } = plain(spec, value);
  node.id = id;
  node.required = Boolean(spec.required) && node.type !== "checkbox"; // off is an answer, too
  const label = element("label", "", name);
  label.htmlFor = id;
  const row = element("div", node.type === "checkbox" ? "field tick" : "field", undefined, label, node);
  return { node: row, input: node, read, tell: describe(row, spec, node, id) };
}

// describe adds what helps with an input, and returns its tell.
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
    throw new Error(`This is no JSON: ${err.message}`);
  }
}

// withCurrent are the options, with a value that is none of them still to be seen.
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

// chips show all options at once.
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
  return { node: group, input: group, read: () => options[inputs.findIndex((i) => i.checked)]?.value, tell: describe(group, spec, group, id) };
}

// ask shows a form and, when it is submitted, gives its values by input name to submit.
// What fails is told in the dialog, which stays open: below the input that inputOf names
// for the location of a fault, else above the buttons. It is done when the dialog closes.
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
    controls.forEach((c) => c.tell(""));
    go.disabled = true;
    try {
      await submit(valuesOf(controls));
      dialog.close();
    } catch (err) {
      fault.textContent = tellEach(err, (location) => controls.find((c) => c.name === inputOf(location)));
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

// tellEach gives each fault to the control at its location, and returns what is left.
function tellEach(err, controlAt) {
  if (!err.errors?.length) return err.message;
  return err.errors.filter((e) => {
    const control = controlAt(e.location);
    control?.tell(e.message);
    return !control;
  }).map((e) => e.message).join("; ");
}

// valuesOf leaves out what was left empty.
function valuesOf(controls) {
  const values = {};
  for (const c of controls) {
    const value = c.read();
    if (value !== undefined) values[c.name] = value;
  }
  return values;
}
