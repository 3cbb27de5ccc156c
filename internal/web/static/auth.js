// Sign-in. A token that the user types, or the pairing code of a link, is exchanged for a
// cookie. The browser sends the cookie with every request, for streams and images too.

import { element } from "./dom.js";
import { ask } from "./forms.js";

let asking = null; // the promise of the open dialog; calls that need a token share it

// askedForToken resolves when the user has signed in. Concurrent calls share one dialog.
export function askedForToken() {
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

// Scripts cannot read the cookie, so an entry in localStorage records that there is one, and its scope.
// Browsers that block cookies block localStorage as well.
const note = "signed-in";

function withStorage(use) {
  try {
    return use(localStorage);
  } catch {
    return null;
  }
}

// signedIn reports whether this browser has signed in.
export const signedIn = () => withStorage((s) => s.getItem(note)) !== null;

// unlimited reports whether this browser may make every call: it has signed in with the scope
// full, or the server asked for no token.
export const unlimited = () => !signedIn() || withStorage((s) => s.getItem(note)) === "full";

// signIn exchanges a token for the cookie.
export async function signIn(token) {
  const { scope } = await post("/auth/session", { token });
  withStorage((s) => s.setItem(note, scope));
}

// signOut ends the browser session on the server and removes the cookie.
export async function signOut() {
  await answerOf(fetch("/auth/session", { method: "DELETE" }));
  withStorage((s) => s.removeItem(note));
}

// pairBy claims the pairing code of a link like /#pair=CODE. It asks the user first: a link
// from somebody else would sign this browser in as their device, and they could read what
// the user writes. It returns false without a code, or if the user does not agree.
export async function pairBy(hash) {
  const [, code] = /^#pair=([\w-]+)$/.exec(hash) || [];
  if (!code) return false;
  history.replaceState(null, "", location.pathname); // keeps the code out of the history
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
  dialog.oncancel = (e) => e.preventDefault(); // the page is empty without a token
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
