// The server's HTTP API.

import { askedForToken } from "./auth.js";

// call returns the JSON that a route answers. It throws an Error with the fields of the
// problem document: code, detail, errors.
export async function call(method, path, body) {
  if (body === undefined) return parseAnswer(await fetchSignedIn(path, { method, headers: idempotencyKey(method, path) }));
  const headers = { ...idempotencyKey(method, path), "Content-Type": "application/json" };
  return parseAnswer(await fetchSignedIn(path, { method, headers, body: JSON.stringify(body) }));
}

// upload stores a file as an asset of a session.
export async function upload(sessionId, file) {
  const path = `/sessions/${encodeURIComponent(sessionId)}/assets?name=${encodeURIComponent(file.name)}`;
  return parseAnswer(await fetchSignedIn(path, { method: "POST", headers: { "Content-Type": file.type }, body: file }));
}

// idempotencyKey returns a header by which the server recognizes a repeat by the browser.
function idempotencyKey(method, path) {
  if (method !== "POST" || path.includes("/actions/")) return {};
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return { "Idempotency-Key": Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("") };
}

// fetchSignedIn makes a call. If the server requires a token, it asks the user for one and
// makes the call again.
async function fetchSignedIn(path, options) {
  const answer = await fetchAnswer(path, options);
  if (answer.status !== 401) return answer;
  await askedForToken();
  return fetchAnswer(path, options);
}

// fetchAnswer replaces the browser's error when no answer came: "Failed to fetch" helps nobody.
const fetchAnswer = (path, options) => fetch(path, options).catch(() => {
  throw new Error("The server cannot be reached. Try again when the connection is back.");
});

async function parseAnswer(answer) {
  const value = answer.status === 204 ? null : await answer.json().catch(() => ({}));
  if (!answer.ok) throw Object.assign(new Error(value.detail || answer.statusText || `status ${answer.status}`), value);
  return value;
}
