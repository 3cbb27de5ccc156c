// What a client does with the elements of plugins. docs/ui.md has the rules.

import { type ElementContext, dataRootOf, lookup, render, rootOf, visible } from "./conditions.ts"
import type { ConfigValues, UIElement, UIElementOf } from "./types.ts"

/** Returns the elements of a type whose condition holds, in their order. */
export function shownElements<T extends UIElement["ui_type"]>(elements: readonly UIElement[], uiType: T, context: ElementContext): UIElementOf<T>[] {
  const order = (e: UIElement) => Number((e as { order?: number }).order) || 0
  return elements
    .filter((e): e is UIElementOf<T> => e.ui_type === uiType && visible((e as { condition?: unknown }).condition, rootOf(uiType), context))
    .sort((a, b) => order(a) - order(b))
}

/** Returns the text of a footer, a status or a field of the list; undefined for one without data, which is hidden. */
export function elementText(element: { ui_type: string; data?: unknown; template?: unknown }, context: ElementContext): string | undefined {
  const { found, value } = lookup(element.data, dataRootOf(element.ui_type), context)
  return found && value !== null ? render(typeof element.template === "string" ? element.template : "", value) : undefined
}

interface ActionElement {
  param_map?: Record<string, unknown> | undefined
  fixed_params?: Record<string, unknown> | undefined
}

/**
 * Returns the params of an action. `param_map` takes values from the context and from the inputs of
 * the dialog. Inputs that it does not mention keep their names. `fixed_params` win.
 */
export function actionParams(element: ActionElement, context: ElementContext, inputs: Record<string, unknown> = {}): Record<string, unknown> {
  const params: Record<string, unknown> = Object.create(null)
  const map = Object.entries(element.param_map ?? {})
  for (const [name, value] of Object.entries(inputs)) {
    if (!map.some(([param, expression]) => param === name || expression === `$dialog.${name}`)) params[name] = value
  }
  for (const [name, expression] of map) {
    const value = resolve(String(expression), context, inputs)
    if (value !== undefined) params[name] = value
  }
  return { ...params, ...element.fixed_params }
}

function resolve(expression: string, context: ElementContext, inputs: Record<string, unknown>): unknown {
  if (!expression.startsWith("$dialog.")) return lookup(expression, "", context).value
  const name = expression.slice("$dialog.".length)
  return Object.hasOwn(inputs, name) ? inputs[name] : undefined
}

/** Returns the config that a session or the configuration set. Defaults are only for display and not in it. */
export function effectiveConfig(elements: readonly UIElement[], values: ConfigValues["values"]): Record<string, unknown> {
  const config: Record<string, unknown> = Object.create(null)
  for (const [key, v] of Object.entries(values)) if (v.source === "override" || v.source === "config") config[key] = structuredClone(v.value)
  for (const e of elements) {
    if (e.ui_type === "config" && e.config_path && e.key !== undefined && Object.hasOwn(config, e.key)) place(config, e.config_path.split("."), config[e.key])
  }
  return config
}

function place(object: Record<string, unknown>, keys: string[], value: unknown): void {
  for (const key of keys.slice(0, -1)) {
    if (!Object.hasOwn(object, key) || typeof object[key] !== "object" || !object[key]) object[key] = Object.create(null)
    object = object[key] as Record<string, unknown>
  }
  object[keys.at(-1)!] = value
}
