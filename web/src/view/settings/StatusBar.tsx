import { t } from "../../i18n/index.ts";
import { useApp } from "../context.ts";
import { Spinner } from "../parts/Spinner.tsx";

/** StatusBar shows what plugins say about the last reply, and which of their actions run. */
export function StatusBar() {
  const { settings } = useApp();
  const texts = settings.status.value;
  const running = [...settings.running.value];
  return (
    <div class="status-bar" role="status" aria-label={t("plugins.status")} data-test="status-bar" hidden={!texts.length && !running.length}>
      {running.map(([key, label]) => (
        <span key={key} class="status-running" data-test="action-running">
          <Spinner label="" />
          <span dir="auto">{t("plugins.progress", { label })}</span>
        </span>
      ))}
      {texts.map(({ key, text }) => <span key={key} dir="auto">{text}</span>)}
    </div>
  );
}
