import { t } from "../../i18n/index.ts";
import type { App } from "../../model/app.ts";

/** copy puts a text into the clipboard and says so. */
export async function copy(app: App, text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    app.notices.add({ kind: "info", text: t("transcript.copied") }, 2000);
  } catch {
    app.notices.add({ kind: "error", text: t("transcript.copy_failed") });
  }
}
