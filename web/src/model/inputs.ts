// What a user writes or chooses in the inputs of settings and dialogs, as values. Only what is loaded later needs it.
import { takes, type Spec } from "./elements.ts";

type Json = { readonly [name: string]: unknown };

/** textOfValue returns a value as the text of its input. */
export function textOfValue(spec: Spec, value: unknown): string {
  if (value === undefined || value === null) return "";
  if (spec.json) return JSON.stringify(value, null, 2);
  return typeof value === "string" ? value : JSON.stringify(value);
}

type Fault = "required" | "number" | "json";

/** valueOf returns the value of an input's text, undefined for an empty one, or what is wrong with the text. */
export function valueOf(spec: Spec, text: string): { readonly value?: unknown; readonly fault?: Fault } {
  const number = takes[spec.kind] === "number";
  if (text.trim() === "" && (text === "" || spec.json || number)) return spec.required ? { fault: "required" } : {};
  if (number) {
    const value = Number(text);
    return Number.isFinite(value) ? { value } : { fault: "number" };
  }
  if (!spec.json) return { value: text };
  try {
    return { value: JSON.parse(text) as unknown };
  } catch {
    return { fault: "json" };
  }
}

/** What the user has done to the inputs of a dialog: the text that is written, or the value that is chosen. */
export type Entered = ReadonlyMap<string, { readonly text?: string; readonly value?: unknown }>;

/** enteredIn returns the text or the value that an input has. */
export const enteredIn = (entered: Entered, spec: Spec) => entered.get(spec.key) ?? { value: spec.start };

/** readInputs returns the values of a dialog's inputs, and what is wrong with their texts. Empty inputs have no value. */
export function readInputs(specs: readonly Spec[], entered: Entered): { readonly values: Json; readonly faults: { readonly [name: string]: Fault } } {
  const values: { [name: string]: unknown } = Object.create(null);
  const faults: { [name: string]: Fault } = Object.create(null);
  for (const spec of specs) {
    const { text, value: chosen } = enteredIn(entered, spec);
    const { value, fault } = text === undefined ? { value: chosen, fault: undefined } : valueOf(spec, text);
    if (fault) faults[spec.key] = fault;
    else if (value !== undefined) values[spec.key] = value;
    else if (spec.required) faults[spec.key] = "required";
  }
  return { values, faults };
}
