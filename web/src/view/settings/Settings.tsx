// The preferences of the page in this browser.
import "../parts/common.ts";
import { languages, t, type Language } from "../../i18n/index.ts";
import type { Theme } from "../../model/preferences.ts";
import { useApp } from "../context.ts";
import { Dialog } from "../parts/Dialog.tsx";
import { Field } from "../parts/Field.tsx";

const themes: readonly Theme[] = ["system", "light", "dark"];

export default function Settings() {
  const app = useApp();
  const preferences = app.preferences;
  const notify = async (on: boolean): Promise<void> => {
    if (on && (await Notification.requestPermission()) !== "granted") {
      app.notices.add({ kind: "error", text: t("settings.notify_denied") });
      on = false;
    }
    preferences.set("notify", on);
  };
  return (
    <Dialog title={t("settings.title")} test="settings" onClose={() => (app.overlay.value = "")}>
      <Field label={t("settings.theme")}>
        {(ids) => (
          <select {...ids} class="input" data-test="theme" value={preferences.get("theme")} onChange={(e) => preferences.set("theme", e.currentTarget.value as Theme)}>
            {themes.map((theme) => <option key={theme} value={theme}>{t(`settings.theme_${theme}` as "settings.theme_dark")}</option>)}
          </select>
        )}
      </Field>
      <Field label={t("settings.language")}>
        {(ids) => (
          <select {...ids} class="input" data-test="language" value={preferences.get("language")} onChange={(e) => preferences.set("language", e.currentTarget.value as Language | "")}>
            <option value="">{t("settings.language_system")}</option>
            {Object.entries(languages).map(([code, name]) => <option key={code} value={code} lang={code}>{name}</option>)}
          </select>
        )}
      </Field>
      <Check label={t("settings.contrast")} test="contrast" on={preferences.get("contrast") === "more"} set={(on) => preferences.set("contrast", on ? "more" : "system")} />
      <Check label={t("settings.motion")} test="motion" on={preferences.get("motion") === "none"} set={(on) => preferences.set("motion", on ? "none" : "system")} />
      <Check label={t("settings.enter")} test="enter" on={preferences.get("enter") === "send"} set={(on) => preferences.set("enter", on ? "send" : "newline")} />
      {"Notification" in globalThis && <Check label={t("settings.notify")} test="notify" on={preferences.get("notify")} set={(on) => void notify(on)} />}
    </Dialog>
  );
}

function Check({ label, on, set, test }: { readonly label: string; readonly on: boolean; readonly set: (on: boolean) => void; readonly test: string }) {
  return (
    <label class="check">
      <input type="checkbox" checked={on} data-test={test} onChange={(e) => set(e.currentTarget.checked)} />
      <span>{label}</span>
    </label>
  );
}
