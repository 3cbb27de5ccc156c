// Coming in: a token that somebody types, or the pairing code of a link, becomes a
// cookie. From then on the browser shows it by itself, for streams and images too.

import { element } from "./dom.js";

let asking = null; // the question that is open: many calls ask once

// admitted waits until the server knows who this is.
export function admitted() {
  asking ??= ask().finally(() => { asking = null; });
  return asking;
}

async function post(path, body) {
  const answer = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  const value = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(value.detail || answer.statusText || `status ${answer.status}`);
  return value;
}

// signIn turns a token into the cookie.
export const signIn = (token) => post("/auth/session", { token });

// pairBy claims the pairing code of a link like /#pair=CODE. It is false when the link
// has none.
export async function pairBy(hash) {
  const [, code] = /^#pair=([\w-]+)$/.exec(hash) || [];
  if (!code) return false;
  history.replaceState(null, "", location.pathname); // or the code would stay in the history
  const { token } = await post("/pairing/claim", { code, device_name: `browser on ${navigator.userAgentData?.platform || navigator.platform || "a device"}` });
  await signIn(token);
  return true;
}

function ask() {
  const input = element("input");
  Object.assign(input, { type: "password", name: "token", autocomplete: "current-password", required: true, id: "token" });
  const label = element("label", "", "This server asks for an access token");
  label.htmlFor = input.id;
  const fault = element("p", "fault");
  fault.setAttribute("role", "alert");
  const go = element("button", "primary", "Sign in");
  const form = element("form", "", undefined, label, input, fault, element("div", "buttons", undefined, go));
  const dialog = element("dialog", "", undefined, form);
  dialog.setAttribute("aria-label", "Sign in");
  dialog.oncancel = (e) => e.preventDefault(); // without a token there is nothing to see
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    form.onsubmit = async (e) => {
      e.preventDefault();
      fault.textContent = "";
      try {
        await signIn(input.value.trim());
      } catch (err) {
        fault.textContent = err.message;
        return;
      }
      dialog.close();
      dialog.remove();
      resolve();
    };
  });
}
