// The conditions and templates of elements: the rules of the server's package ui, for the
// browser. Both are tested with the same tables. One difference remains: a browser reads
// numbers as doubles, so close integers beyond 2^53 may compare as equal.

const maxDepth = 32; // of nested conditions
const roots = ["session", "message", "config"];

// rootOf returns the object from which the paths of an element's condition start.
export function rootOf(uiType) {
  switch (uiType) {
    case "message_footer": case "message_action": case "status_bar": return "message";
    case "composer_attachment": case "model_picker": case "config": return "config";
  }
  return uiType ? "session" : "config";
}

// dataRootOf returns the object from which an element's `data` starts.
export const dataRootOf = (uiType) => (uiType === "session_list_field" ? "session.metadata" : rootOf(uiType));

// visible reports whether a condition holds in a context {session, message, config}. A
// missing condition always holds, a malformed one never does.
export function visible(condition, root, context) {
  const test = compileCondition(condition);
  return test !== null && test(root, context);
}

// valid returns false for a malformed condition.
export const valid = (condition) => compileCondition(condition) !== null;

// lookup returns {found, value} for the value at a path.
export function lookup(path, root, context) {
  const p = parsePath(path);
  return p ? find(p, root, context) : missing;
}

// render inserts data into a template, which is plain text.
export function render(template, data) {
  return template ? template.replaceAll("{{data}}", () => text(data)) : text(data);
}

// equal compares JSON values: numbers by value, objects regardless of key order.
export function equal(a, b) {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || !a || !b || Array.isArray(a) !== Array.isArray(b)) return false;
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((k) => Object.hasOwn(b, k) && equal(a[k], b[k]));
}

const missing = { found: false, value: undefined };

function text(data) {
  if (data === null || data === undefined) return "";
  return typeof data === "string" ? data : JSON.stringify(data);
}

// compileCondition turns a condition into a function. It returns null if any part of the
// condition is malformed, even a part that would never be evaluated.
function compileCondition(condition) {
  if (condition === undefined || condition === null) return () => true;
  try {
    return newTest(condition, 1);
  } catch (err) {
    if (err instanceof Malformed) return null;
    throw err;
  }
}

class Malformed extends Error {}

const isObject = (v) => typeof v === "object" && v !== null && !Array.isArray(v);

// newTest compiles one condition object, which holds if all of its keys hold.
function newTest(condition, depth) {
  if (!isObject(condition) || depth > maxDepth) throw new Malformed();
  const tests = [];
  let asks = false;
  for (const [operator, operand] of Object.entries(condition)) {
    switch (operator) {
      case "all": case "any": {
        if (!Array.isArray(operand)) throw new Malformed();
        const group = operand.map((c) => newTest(c, depth + 1));
        tests.push((...given) => (operator === "all" ? group.every((t) => t(...given)) : group.some((t) => t(...given))));
        break;
      }
      case "not": {
        const inner = newTest(operand, depth + 1);
        tests.push((...given) => !inner(...given));
        break;
      }
      case "path": break;
      case "eq": case "exists": case "empty":
        asks = true;
        tests.push(newQuestion(operator, operand, condition.path));
        break;
      default: throw new Malformed();
    }
  }
  if (Object.hasOwn(condition, "path") && !asks) tests.push(newQuestion("path", undefined, condition.path));
  return (...given) => tests.every((t) => t(...given));
}

function newQuestion(operator, operand, path) {
  const p = parsePath(path);
  if (!p || (["exists", "empty"].includes(operator) && typeof operand !== "boolean")) throw new Malformed();
  return (root, context) => {
    const { found, value } = find(p, root, context);
    switch (operator) {
      case "eq": return found && equal(value, operand);
      case "exists": return found === operand;
      case "empty": return empty(value) === operand;
    }
    return !empty(value) && value !== false; // a path without an operator
  };
}

// empty returns true for a missing value and an empty text, list or object, but not for 0
// and false.
function empty(value) {
  if (value === undefined || value === null || value === "") return true;
  return typeof value === "object" && Object.keys(value).length === 0;
}

// parsePath parses dotted keys with an optional root in front. It returns null if the path
// is malformed.
function parsePath(path) {
  if (typeof path !== "string") return null;
  let keys = path.split("."), root = "";
  if (path.startsWith("$")) {
    root = keys[0].slice(1);
    keys = keys.slice(1);
    if (root && !roots.includes(root)) return null;
  }
  return keys.length > 0 && keys.every(Boolean) ? { root, keys } : null;
}

function find(path, root, context) {
  const [start, ...below] = (path.root || root).split(".");
  let value = context?.[start];
  if (value === undefined || value === null) return missing;
  for (const key of [...below, ...path.keys]) {
    if (Array.isArray(value) ? !/^(0|[1-9]\d*)$/.test(key) || !(key in value) : !isObject(value) || !Object.hasOwn(value, key)) return missing;
    value = value[key];
  }
  return { found: true, value };
}
