/** composing reports whether a key belongs to an input method. Safari sends the one that ends a composition after its end, with this code. */
export const composing = (e: KeyboardEvent): boolean => e.isComposing || e.keyCode === 229;

export const mac = /Mac|iPhone|iPad/.test(globalThis.navigator?.platform ?? "");

const symbols: Readonly<Record<string, string>> = { ArrowDown: "↓", ArrowUp: "↑", Escape: "Esc", Backspace: "⌫", Mod: mac ? "⌘" : "Ctrl", Alt: mac ? "⌥" : "Alt", Shift: mac ? "⇧" : "Shift" };

/** showKeys returns a shortcut as the user's keyboard names its keys. */
export const showKeys = (shortcut: string | undefined): string | undefined => shortcut?.split("+").map((key) => symbols[key] ?? key.toUpperCase()).join(mac ? "" : "+");
