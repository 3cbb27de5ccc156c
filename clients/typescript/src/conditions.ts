// Conditions, paths and templates of elements. docs/ui.md has the rules. The server's package ui and
// this file are tested with the same tables. One difference remains: JavaScript reads numbers as
// doubles, so close integers beyond 2^53 may compare as equal.

/** The objects from which paths start. */
export interface ElementContext {
  session?: unknown
  message?: unknown
  config?: unknown
}

export type Root = "session" | "message" | "config" | "session.metadata" | ""

interface Found {
  readonly found: boolean
  readonly value: unknown
}

const maxDepth = 32 // of nested conditions
const roots = ["session", "message", "config"]
const missing: Found = { found: false, value: undefined }

/** The root of the condition of an element. */
export function rootOf(uiType: string): Root {
  switch (uiType) {
    case "message_footer": case "message_action": case "status_bar": return "message"
    case "config": case "composer_attachment": case "model_picker": case "": return "config"
  }
  return "session"
}

/** The root of the `data` of an element. */
export const dataRootOf = (uiType: string): Root => (uiType === "session_list_field" ? "session.metadata" : rootOf(uiType))

/** Whether a condition holds. A missing condition holds; a malformed one does not. */
export function visible(condition: unknown, root: Root, context: ElementContext): boolean {
  const test = compile(condition)
  return test !== undefined && test(root, context)
}

/** Whether a condition is well formed. */
export const isValidCondition = (condition: unknown): boolean => compile(condition) !== undefined

/** Returns the value at a path, and whether there is one. */
export function lookup(path: unknown, root: Root, context: ElementContext): Found {
  const parsed = parsePath(path)
  return parsed ? find(parsed, root, context) : missing
}

/** Inserts data into a template, which is plain text. */
export function render(template: string, data: unknown): string {
  return template ? template.replaceAll("{{data}}", () => textOf(data)) : textOf(data)
}

/** Compares JSON values: numbers by value, objects regardless of the order of keys. */
export function equal(a: unknown, b: unknown): boolean {
  if (a === b) return true
  if (typeof a !== "object" || typeof b !== "object" || !a || !b || Array.isArray(a) !== Array.isArray(b)) return false
  const keys = Object.keys(a)
  return keys.length === Object.keys(b).length && keys.every((k) => Object.hasOwn(b, k) && equal((a as Json)[k], (b as Json)[k]))
}

type Json = Record<string, unknown>
type Test = (root: Root, context: ElementContext) => boolean

class Malformed extends Error {}

const isObject = (v: unknown): v is Json => typeof v === "object" && v !== null && !Array.isArray(v)

const textOf = (data: unknown): string => (data === null || data === undefined ? "" : typeof data === "string" ? data : JSON.stringify(data))

// compile turns a condition into a function; undefined if any part of it is malformed, even one
// that would never be evaluated.
function compile(condition: unknown): Test | undefined {
  if (condition === undefined || condition === null) return () => true
  try {
    return newTest(condition, 1)
  } catch (error) {
    if (error instanceof Malformed) return undefined
    throw error
  }
}

function newTest(condition: unknown, depth: number): Test {
  if (!isObject(condition) || depth > maxDepth) throw new Malformed()
  const tests: Test[] = []
  let asks = false
  for (const [operator, operand] of Object.entries(condition)) {
    switch (operator) {
      case "all": case "any": {
        if (!Array.isArray(operand)) throw new Malformed()
        const group = operand.map((c) => newTest(c, depth + 1))
        tests.push((...given) => (operator === "all" ? group.every((t) => t(...given)) : group.some((t) => t(...given))))
        break
      }
      case "not": {
        const inner = newTest(operand, depth + 1)
        tests.push((...given) => !inner(...given))
        break
      }
      case "path": break
      case "eq": case "exists": case "empty":
        asks = true
        tests.push(newQuestion(operator, operand, condition.path))
        break
      default: throw new Malformed()
    }
  }
  if (Object.hasOwn(condition, "path") && !asks) tests.push(newQuestion("path", undefined, condition.path))
  return (...given) => tests.every((t) => t(...given))
}

function newQuestion(operator: "eq" | "exists" | "empty" | "path", operand: unknown, path: unknown): Test {
  const parsed = parsePath(path)
  if (!parsed || ((operator === "exists" || operator === "empty") && typeof operand !== "boolean")) throw new Malformed()
  return (root, context) => {
    const { found, value } = find(parsed, root, context)
    switch (operator) {
      case "eq": return found && equal(value, operand)
      case "exists": return found === operand
      case "empty": return isEmpty(value) === operand
      case "path": return !isEmpty(value) && value !== false
    }
  }
}

// isEmpty returns true for a missing value and an empty text, list or object, but not for 0 and false.
function isEmpty(value: unknown): boolean {
  if (value === undefined || value === null || value === "") return true
  return typeof value === "object" && Object.keys(value).length === 0
}

interface Path {
  readonly root: string
  readonly keys: readonly string[]
}

// parsePath parses dotted keys with an optional root in front; undefined if the path is malformed.
function parsePath(path: unknown): Path | undefined {
  if (typeof path !== "string") return undefined
  let keys = path.split("."), root = ""
  if (path.startsWith("$")) {
    root = keys[0]!.slice(1)
    keys = keys.slice(1)
    if (root && !roots.includes(root)) return undefined
  }
  return keys.length > 0 && keys.every(Boolean) ? { root, keys } : undefined
}

function find(path: Path, root: Root, context: ElementContext): Found {
  const [start, ...below] = (path.root || root).split(".")
  let value: unknown = (context as Json | undefined)?.[start!]
  if (value === undefined || value === null) return missing
  for (const key of [...below, ...path.keys]) {
    if (Array.isArray(value) ? !/^(0|[1-9]\d*)$/.test(key) || !(key in value) : !isObject(value) || !Object.hasOwn(value, key)) return missing
    value = (value as Json)[key]
  }
  return { found: true, value }
}
