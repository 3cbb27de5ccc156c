// What the elements of plugins mean to this page. The SDK has their conditions, paths and
// templates. Elements come from plugins, so no field is trusted to have its type.
import { actionParams, elementText, equal, shownElements, type ElementContext, type UIElement, type UIElementOf } from "@loquat/client";
import type { Problem } from "./wire.ts";

export type ConfigElement = UIElementOf<"config">;
export type ActionElement = UIElementOf<"session_action"> | UIElementOf<"message_action">;
type TextElement = UIElementOf<"message_footer"> | UIElementOf<"status_bar"> | UIElementOf<"session_list_field">;

type Json = { readonly [key: string]: unknown };

const isObject = (value: unknown): value is Json => typeof value === "object" && value !== null && !Array.isArray(value);

/** labelOf returns the first of some values that can be shown as a name. */
export function labelOf(...values: readonly unknown[]): string {
  for (const value of values) if ((typeof value === "string" && value.trim()) || typeof value === "number") return String(value);
  return "";
}

/** elementsOf returns the elements of an answer whose fields have the types that the SDK relies on. */
export function elementsOf(answer: unknown): UIElement[] {
  const list = isObject(answer) && Array.isArray(answer.elements) ? answer.elements : [];
  return list.filter(isObject).map((element) => {
    const made: { [key: string]: unknown } = { ...element, ui_type: labelOf(element.ui_type) || "config" };
    if (typeof made.config_path !== "string") delete made.config_path;
    for (const name of ["param_map", "fixed_params", "dialog"]) if (!isObject(made[name])) delete made[name];
    return made as unknown as UIElement;
  });
}

export interface Option {
  readonly value: unknown;
  readonly label: string;
}

/** optionsOf returns the options of a select or dropdown. */
export function optionsOf(spec: { readonly options?: unknown }): Option[] {
  const options: unknown[] = Array.isArray(spec.options) ? spec.options : [];
  return options.map((option) => (isObject(option) ? { value: option.value, label: labelOf(option.label) || shownValue(option.value) } : { value: option, label: shownValue(option) }));
}

/** withValue returns the options, with the current value before them if it is none of them. */
export function withValue(options: readonly Option[], value: unknown): readonly Option[] {
  if (value === undefined || value === null || options.some((option) => equal(option.value, value))) return options;
  return [{ value, label: shownValue(value) }, ...options];
}

/** shownValue returns a value as one line of text. */
export const shownValue = (value: unknown): string => (value === undefined || value === null ? "" : typeof value === "string" ? value : JSON.stringify(value));

/** Spec describes an input: a setting, or an input of a dialog. */
export interface Spec {
  readonly key: string;
  readonly label: string;
  readonly kind: "text" | "multiline" | "checkbox" | "chips" | "dropdown" | "number";
  readonly json: boolean;
  readonly description: string;
  readonly placeholder: string;
  readonly required: boolean;
  readonly options: readonly Option[];
  /** What the input has in a dialog before the user changes it. */
  readonly start: unknown;
}

/** The most options that are all visible. A longer list, such as that of a backend's models, opens instead. */
const mostChips = 24;

/** How the inputs of each type look. An input of another type is a text. */
const kinds: { readonly [type in NonNullable<ConfigElement["type"]>]: Spec["kind"] } = {
  text: "text", multiline: "multiline", checkbox: "checkbox", number: "number", select: "chips", dropdown: "dropdown",
};

/** What an input of each kind takes: a text, which may be JSON, the text of a number, yes or no, or one of its options. */
export const takes: { readonly [kind in Spec["kind"]]: "text" | "number" | "flag" | "option" } = {
  text: "text", multiline: "text", checkbox: "flag", number: "number", chips: "option", dropdown: "option",
};

/** specOf returns how an input looks. A choice without options is a text, because nothing could be chosen. */
export function specOf(element: { readonly [key: string]: unknown }, key: string): Spec {
  const { type, default: start } = element;
  const options = optionsOf(element);
  let kind = typeof type === "string" && Object.hasOwn(kinds, type) ? kinds[type as keyof typeof kinds] : "text";
  if (takes[kind] === "option" && !options.length) kind = "text";
  if (kind === "chips" && options.length > mostChips) kind = "dropdown";
  return {
    key,
    label: labelOf(element.label, key),
    kind,
    json: element.format === "json" && takes[kind] === "text",
    description: labelOf(element.description),
    placeholder: labelOf(element.placeholder),
    required: element.required === true,
    options: takes[kind] === "option" ? options : [],
    start: takes[kind] === "flag" ? start === true : (start ?? undefined),
  };
}

/** secretOf returns whether a secret is set, or null for a value that is not a secret. */
export function secretOf(value: unknown): boolean | null {
  return isObject(value) && typeof value.set === "boolean" && Object.keys(value).length === 1 ? value.set : null;
}

interface SettingGroup {
  readonly plugin: string;
  readonly elements: readonly ConfigElement[];
}

/** settingGroups returns the settings whose condition holds and that fit a search, by plugin. */
export function settingGroups(elements: readonly UIElement[], config: Json, query: string): SettingGroup[] {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const groups = new Map<string, ConfigElement[]>();
  for (const element of shownElements(elements, "config", { config })) {
    if (typeof element.key !== "string" || !element.key) continue;
    const plugin = labelOf(element.plugin);
    const text = [labelOf(element.label), element.key, labelOf(element.description), pluginName(plugin)].join(" ").toLowerCase();
    if (!words.every((word) => text.includes(word))) continue;
    const group = groups.get(plugin);
    if (group) group.push(element);
    else groups.set(plugin, [element]);
  }
  return [...groups].map(([plugin, found]) => ({ plugin, elements: found }));
}

/** pluginName returns the last part of a plugin's name as words. */
export function pluginName(plugin: string): string {
  const words = (plugin.split(".").at(-1) || plugin).replace(/[_-]+/g, " ").trim();
  return words.charAt(0).toUpperCase() + words.slice(1);
}

export interface ShownText {
  readonly key: string;
  readonly label: string;
  readonly text: string;
}

/** textsOf returns what the elements of a type show in a context. */
export function textsOf(elements: readonly UIElement[], uiType: TextElement["ui_type"], context: ElementContext): ShownText[] {
  return shownElements(elements, uiType, context).flatMap((element, i) => {
    const text = elementText(element, context);
    return text ? [{ key: `${i} ${text}`, label: labelOf((element as { label?: unknown }).label), text }] : [];
  });
}

/** actionsOf returns the actions of a type whose condition holds. Those with an unknown kind of dialog are left out. */
export function actionsOf(elements: readonly UIElement[], uiType: ActionElement["ui_type"], context: ElementContext): ActionElement[] {
  return shownElements(elements, uiType, context).filter((e) => labelOf(e.action_id) && labelOf(e.id) && (!e.dialog || (e.dialog.kind ?? "form") === "form"));
}

export const actionLabel = (element: ActionElement): string => labelOf(element.label, element.action_id);

/** inputsOf returns the inputs of an action's dialog. */
export function inputsOf(element: ActionElement): Spec[] {
  const inputs: unknown = element.dialog?.inputs;
  const named = (Array.isArray(inputs) ? inputs : []).filter((input): input is Json => isObject(input) && labelOf(input.name) !== "");
  return named.map((input) => specOf(input, labelOf(input.name)));
}

/** actionBody returns what is sent to run an action. */
export function actionBody(element: ActionElement, context: ElementContext, inputs: Json): { element_id: string; plugin: string; action_owner?: NonNullable<ActionElement["action_owner"]>; params: { [key: string]: unknown } } {
  return { element_id: element.id, plugin: element.plugin, ...(element.action_owner && { action_owner: element.action_owner }), params: actionParams(element, context, { ...inputs }) };
}

/** faultsOf sorts the errors of a refused action by the input that each is about. The key "" has the others. */
export function faultsOf(element: ActionElement, specs: readonly Spec[], problem: Problem): { readonly [input: string]: string } {
  const faults: { [input: string]: string } = Object.create(null);
  const errors = "errors" in problem ? problem.errors : [];
  for (const error of errors) {
    const at = inputAt(element, specs, error.location);
    faults[at] = [faults[at], error.message].filter(Boolean).join(" ");
  }
  return faults;
}

function inputAt(element: ActionElement, specs: readonly Spec[], location: string): string {
  const place = /^body\.params\.(.+)$/.exec(location)?.[1];
  if (!place) return "";
  for (const param of [place, place.split(/[.[]/)[0]!]) {
    const map = element.param_map;
    const expression: unknown = map && Object.hasOwn(map, param) ? map[param] : undefined;
    const input = typeof expression === "string" && expression.startsWith("$dialog.") ? expression.slice("$dialog.".length) : param;
    if (specs.some((spec) => spec.key === input)) return input;
  }
  return "";
}

/** AttachmentKinds says what may be attached to a message. */
export interface AttachmentKinds {
  /** Whether the elements are known. A session that does not exist yet has none. */
  readonly known: boolean;
  readonly images: boolean;
  /** Whether an image may be given by its URL. */
  readonly urls: boolean;
  /** The files that may be chosen, as the accept attribute of a file input; "" for no files. */
  readonly accept: string;
}

/** attachmentKindsOf returns what the elements allow. */
export function attachmentKindsOf(elements: readonly UIElement[], config: Json): AttachmentKinds {
  const images = shownElements(elements, "composer_attachment", { config }).filter((e) => e.attachment_type === "image");
  const types = images.flatMap((e) => {
    const found: unknown = e.supported_file_types;
    return Array.isArray(found) ? found.filter((type): type is string => typeof type === "string" && type !== "") : [];
  });
  const accept = [...new Set(types)].map((type) => (type.includes("/") || type.startsWith(".") ? type : `.${type}`)).join(",");
  return { known: true, images: images.length > 0, urls: images.some((e) => e.supports_url === true), accept: images.length ? accept || "image/*" : "" };
}
