// Boot: makes the model, joins it with the browser, renders the page.
import { effect } from "@preact/signals";
import { render } from "preact";
import { language, preferred, t, useLanguage } from "./i18n/index.ts";
import { App } from "./model/app.ts";
import { whenIdle } from "./model/idle.ts";
import { commandOf, commandsOf, type Command } from "./model/commands.ts";
import { formatRoute, parseRoute, sessionOf } from "./model/route.ts";
import { Users } from "./model/users.ts";
import { PageContext } from "./view/context.ts";
import { composing, mac } from "./view/parts/keys.ts";
import { notifyReplies } from "./view/shell/notify.ts";
import { Shell } from "./view/shell/Shell.tsx";
import { pairingCode } from "./view/signin/pairing.ts";
import { warmUp } from "./view/warm.ts";
import { Client } from "./wire/client.ts";
import { browserFiles } from "./wire/files.ts";
import { keepShell } from "./wire/shell.ts";
import { browserStorage } from "./wire/storage.ts";

const storage = browserStorage();
const app = new App(new Client(new Users(storage).suffix), storage, browserFiles());
const commands = commandsOf(app);

/** keepAddress joins the route with the address of the page. */
function keepAddress(): void {
  let first = true;
  let later: string | undefined; // what is written when the page is idle, or before the next address
  const writeLater = (): void => {
    if (later !== undefined) writeAddress(later, false);
    later = undefined;
  };
  effect(() => {
    const path = formatRoute(app.route.value);
    const { address } = app;
    app.address = "push";
    writeLater();
    if (address === "later") {
      later = path;
      whenIdle(writeLater);
    } else if (!first) writeAddress(path, address === "replace");
    first = false;
  });
  addEventListener("popstate", () => {
    later = undefined;
    app.show(parseRoute(location.pathname, location.hash));
  });
}

function writeAddress(path: string, replace: boolean): void {
  if (path === location.pathname + location.hash) return;
  if (replace) history.replaceState(null, "", path);
  else history.pushState(null, "", path);
}

/** keepLook sets what the style depends on. */
function keepLook(): void {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const more = matchMedia("(prefers-contrast: more)");
  const look = (): void => {
    const root = document.documentElement;
    const theme = app.preferences.get("theme");
    root.dataset.theme = theme === "system" ? (dark.matches ? "dark" : "light") : theme;
    root.dataset.contrast = app.preferences.get("contrast") === "more" || more.matches ? "more" : "normal";
    root.dataset.motion = app.preferences.get("motion");
    root.lang = language.value;
  };
  effect(look);
  dark.addEventListener("change", look);
  more.addEventListener("change", look);
  effect(() => {
    const id = sessionOf(app.route.value);
    const title = id ? app.transcript.value?.about.value?.metadata.title : "";
    document.title = typeof title === "string" && title ? `${title} – ${t("app.name")}` : t("app.name");
  });
}

/** keepLanguage loads the texts of the user's language. It returns when the first ones are here, so that no text in another language flashes. */
function keepLanguage(): Promise<unknown> {
  let first: Promise<void> | undefined;
  effect(() => {
    const wanted = app.preferences.get("language") || preferred(navigator.languages);
    const loaded = useLanguage(wanted).then((done) => void (done || app.partFailed()));
    first ??= loaded;
  });
  return Promise.race([first, new Promise((resolve) => setTimeout(resolve, 3000))]); // a slow network shows the page in English at first
}

/** keepTime moves sessions to the next group of the list at midnight. */
function keepTime(): void {
  setInterval(() => {
    if (new Date(app.list.now.peek()).getDate() !== new Date().getDate()) app.list.now.value = Date.now();
  }, 60_000);
}

/** writing reports whether keys that the user presses are text. */
function writing(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

function listenToKeys(commands: readonly Command[]): void {
  addEventListener("keydown", (e) => {
    if (e.defaultPrevented || composing(e) || document.querySelector("dialog[open]")) return;
    const command = commandOf(commands, e, writing(e.target), mac);
    if (!command) return;
    e.preventDefault();
    command.run();
  });
}

/** keepFilesOut lets no file that is dropped beside the message box replace the page. */
function keepFilesOut(): void {
  for (const name of ["dragover", "drop"] as const) {
    addEventListener(name, (e) => {
      if (e.defaultPrevented || !e.dataTransfer?.types.includes("Files")) return;
      e.preventDefault();
      e.dataTransfer.dropEffect = "none";
    });
  }
}

/** keepUser loads the page again when another user has signed in, here or in another tab. */
function keepUser(): void {
  app.reload = () => location.reload();
  addEventListener("storage", ({ newValue }) => (app.users.changed ? location.reload() : newValue === null && app.keepDraft()));
}

app.download = (url) => Object.assign(document.createElement("a"), { href: url, download: "" }).click();

const code = pairingCode(location.hash);
if (code) history.replaceState(null, "", "/");
const root = document.getElementById("app");
if (root) {
  keepLook();
  app.show(parseRoute(location.pathname, location.hash));
  keepAddress();
  listenToKeys(commands);
  keepFilesOut();
  keepTime();
  keepUser();
  addEventListener("pagehide", () => void app.conversation.settle());
  keepShell();
  notifyReplies(app);
  if (!code) app.start();
  void keepLanguage().then(() => {
    render(
      <PageContext.Provider value={{ app, commands }}>
        <Shell code={code} />
      </PageContext.Provider>,
      root,
    );
    warmUp();
  });
}
