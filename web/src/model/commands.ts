// The table of commands. Menus, buttons, the palette and the list of shortcuts read it.
import type { Key } from "../i18n/index.ts";
import type { IconName } from "../view/parts/icons.ts";
import type { App } from "./app.ts";
import { formatNames, formats } from "./library.ts";
import { entryOf } from "./list.ts";
import { sessionOf } from "./route.ts";

export type CommandGroup = "session" | "view" | "reply" | "help";

export interface Command {
  readonly id: string;
  readonly label: Key;
  readonly values?: Readonly<Record<string, string>>;
  readonly group: CommandGroup;
  readonly icon?: IconName;
  /** Keys such as "Mod+K"; Mod is Ctrl, or Command on a Mac. */
  readonly shortcut?: string;
  /** The shortcut works while the user writes. */
  readonly whileWriting?: boolean;
  enabled(): boolean;
  run(): void;
}

/** commandsOf returns the commands of the page. */
export function commandsOf(app: App): readonly Command[] {
  const id = (): string => sessionOf(app.route.value) ?? "";
  const open = (): boolean => id() !== "" && Boolean(app.transcript.value?.loaded.value);
  const writable = (): boolean => open() && !app.readOnly.value;
  const wide = (): boolean => app.onlySession.value === "";
  const always = (): boolean => true;
  const entry = () => { // a chat that is not in the list is known by what is open
    const about = app.transcript.value?.about.value;
    return app.list.entry(id()) ?? (about && entryOf(about, false, false));
  };
  return [
    { id: "new", label: "command.new", group: "session", icon: "compose", shortcut: "Mod+Shift+O", whileWriting: true, enabled: () => wide() && !app.readOnly.value, run: () => (app.go({ at: "new" }), app.ask("composer")) },
    { id: "search", label: "command.search", group: "session", icon: "search", shortcut: "Mod+K", whileWriting: true, enabled: always, run: () => void (app.overlay.value = "palette") },
    { id: "next", label: "command.next", group: "session", shortcut: "Alt+ArrowDown", whileWriting: true, enabled: wide, run: () => step(app, 1) },
    { id: "previous", label: "command.previous", group: "session", shortcut: "Alt+ArrowUp", whileWriting: true, enabled: wide, run: () => step(app, -1) },
    { id: "pin", label: "command.pin", group: "session", icon: "pin", enabled: () => writable() && wide(), run: () => void app.library.pin(id(), !entry()?.pinned) },
    { id: "archive", label: "command.archive", group: "session", icon: "archive", enabled: () => writable() && wide(), run: () => void app.library.archive(id(), !entry()?.archived) },
    { id: "fork", label: "command.fork", group: "session", icon: "fork", enabled: () => writable() && wide(), run: () => void app.library.fork(id()) },
    { id: "delete", label: "command.delete", group: "session", icon: "trash", shortcut: "Mod+Shift+Backspace", enabled: () => writable() && wide(), run: () => app.library.remove(id()) },
    ...formats.map((format): Command => ({ id: `export-${format}`, label: "session.export", values: { format: formatNames[format] }, group: "session", icon: "download", enabled: open, run: () => app.download(app.library.exportURL(id(), format)) })),
    { id: "import", label: "command.import", group: "session", icon: "upload", enabled: () => app.mayCreate.value, run: () => void (app.overlay.value = "import") },
    { id: "archived", label: "command.archived", group: "view", icon: "archive", enabled: wide, run: () => app.go({ at: "archived" }) },
    { id: "stop", label: "command.stop", group: "reply", icon: "stop", shortcut: "Escape", whileWriting: true, enabled: () => writable() && app.busy.value, run: () => void app.stop() },
    { id: "composer", label: "command.composer", group: "view", shortcut: "Shift+Escape", whileWriting: true, enabled: always, run: () => app.ask("composer") },
    { id: "sidebar", label: "command.sidebar", group: "view", icon: "sidebar", shortcut: "Mod+Shift+S", whileWriting: true, enabled: wide, run: () => toggleSidebar(app) },
    { id: "chat-settings", label: "command.chat_settings", group: "session", icon: "settings", shortcut: "Mod+.", whileWriting: true, enabled: open, run: () => void (app.panel.value = !app.panel.value) },
    { id: "settings", label: "command.settings", group: "view", icon: "settings", shortcut: "Mod+,", whileWriting: true, enabled: always, run: () => void (app.overlay.value = "settings") },
    { id: "shortcuts", label: "command.shortcuts", group: "help", icon: "keyboard", shortcut: "?", enabled: always, run: () => void (app.overlay.value = "shortcuts") },
  ];
}

function toggleSidebar(app: App): void {
  app.preferences.set("sidebar", !app.preferences.get("sidebar"));
}

/** step opens the session after or before the open one in the list. */
function step(app: App, by: number): void {
  const entries = app.list.sorted.peek();
  const at = entries.findIndex((entry) => entry.id === sessionOf(app.route.peek()));
  const next = entries[at < 0 ? (by > 0 ? 0 : entries.length - 1) : at + by];
  if (next) app.go({ at: "session", id: next.id });
}

/** Pressed is the part of a keyboard event that shortcuts depend on. */
interface Pressed {
  readonly key: string;
  readonly ctrlKey: boolean;
  readonly metaKey: boolean;
  readonly altKey: boolean;
  readonly shiftKey: boolean;
}

/** matches reports whether a key press is the shortcut. A character such as ? includes the Shift that makes it. */
export function matches(shortcut: string, pressed: Pressed, mac: boolean): boolean {
  const parts = shortcut.split("+");
  const key = parts.at(-1)!;
  const mod = mac ? pressed.metaKey : pressed.ctrlKey;
  const other = mac ? pressed.ctrlKey : pressed.metaKey;
  if (mod !== parts.includes("Mod") || other || pressed.altKey !== parts.includes("Alt")) return false;
  if (parts.length > 1 || key.length > 1) if (pressed.shiftKey !== parts.includes("Shift")) return false;
  return pressed.key.toLowerCase() === key.toLowerCase();
}

/** commandOf returns the command of a key press, if one is enabled. */
export function commandOf(commands: readonly Command[], pressed: Pressed, writing: boolean, mac: boolean): Command | undefined {
  return commands.find((command) => command.shortcut && (!writing || command.whileWriting) && matches(command.shortcut, pressed, mac) && command.enabled());
}
