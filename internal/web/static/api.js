// The server's HTTP API.

import { admitted } from "./auth.js";

// call answers with the JSON of a route. A failure is an Error with the fields of the
// problem document: code, detail, errors.
export async function call(method, path, body) {
  if (body === undefined) return answered(await asked(path, { method, headers: once(method, path) }));
  const headers = { ...once(method, path), "Content-Type": "application/json" };
  return answered(await asked(path, { method, headers, body: JSON.stringify(body) }));
}

// upload stores a file as an asset of a session.
export async function upload(sessionId, file) {
  const path = `/sessions/${encodeURIComponent(sessionId)}/assets?name=${encodeURIComponent(file.name)}`;
  return answered(await asked(path, { method: "POST", headers: { "Content-Type": file.type }, body: file }));
}

// once lets the server tell a repeat by the browser from a second call.
function once(method, path) {
  if (method !== "POST" || path.includes("/actions/")) return {};
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return { "Idempotency-Key": Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("") };
}

// asked makes a call, and once more when the server had to know first who this is.
async function asked(path, options) {
  const answer = await reached(path, options);
  if (answer.status !== 401) return answer;
  await admitted();
  return reached(path, options);
}

// reached says in words of its own that no answer came: browsers only say that they failed.
const reached = (path, options) => fetch(path, options).catch(() => {
  throw new Error("The server cannot be reached. Try again when the connection is back.");
});

async function answered(answer) {
  const value = answer.status === 204 ? null : await answer.json().catch(() => ({}));
  if (!answer.ok) throw Object.assign(new Error(value.detail || answer.statusText || `status ${answer.status}`), value);
  return value;
}
