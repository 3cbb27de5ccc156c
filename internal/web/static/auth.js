// Coming in: a token that somebody types, or the pairing code of a link, becomes a
// cookie. From then on the browser shows it by itself, for streams and images too.

import { element } from "./dom.js";
import { ask } from "./forms.js";

let asking = null; // the question that is open: many calls ask once

// admitted waits until the server knows who this is.
export function admitted() {
  asking ??= askToken().finally(() => { asking = null; });
  return asking;
}

const post = (path, body) => answerOf(fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) }));

async function answerOf(call) {
  const answer = await call;
  const value = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(value.detail || answer.statusText || `status ${answer.status}`);
  return value;
}

// The cookie cannot be seen from here: a note beside it says that there is one. Without
// cookies there is no place for the note either.
const note = "signed-in";

function stored(deed) {
  try {
    return deed(localStorage);
  } catch {
    return null;
  }
}

// signedIn says whether there is something to sign out of.
export const signedIn = () => stored((s) => s.getItem(note)) !== null;

// signIn turns a token into the cookie.
export async function signIn(token) {
  await post("/auth/session", { token });
  stored((s) => s.setItem(note, "yes"));
}

// signOut ends the cookie, here and on the server.
export async function signOut() {
  await answerOf(fetch("/auth/session", { method: "DELETE" }));
  stored((s) => s.removeItem(note));
}

// pairBy claims the pairing code of a link like /#pair=CODE, once the user agrees: a link
// of somebody else would sign this browser in as theirs, who then read what is written
// here. It is false when the link has none, or the user does not agree.
export async function pairBy(hash) {
  const [, code] = /^#pair=([\w-]+)$/.exec(hash) || [];
  if (!code) return false;
  history.replaceState(null, "", location.pathname); // or the code would stay in the history
  let paired = false;
  await ask({
    title: "Pair this browser?",
    message: `The link signs this browser in to ${location.host} as a device of whoever made the link. Go on only if that was you.`,
    confirm: "Pair",
  }, async () => {
    const { token } = await post("/pairing/claim", { code, device_name: `browser on ${navigator.userAgentData?.platform || navigator.platform || "a device"}` });
    await signIn(token);
    paired = true;
  });
  return paired;
}

function askToken() {
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
