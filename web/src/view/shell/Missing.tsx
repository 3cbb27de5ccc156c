import { t } from "../../i18n/index.ts";
import { explain } from "../../model/problems.ts";
import type { Problem } from "../../model/wire.ts";
import { useApp } from "../context.ts";
import { Button } from "../parts/Button.tsx";

/** Missing takes the place of a session that cannot be shown. */
export function Missing({ problem }: { readonly problem: Problem }) {
  const app = useApp();
  const gone = problem.code === "not_found";
  return (
    <main class="main new">
      <div class="empty" data-test="missing">
        <h2>{t(gone ? "session.missing" : "session.failed")}</h2>
        <p>{gone ? t("session.missing_help") : explain(problem)}</p>
        <div class="empty-actions">
          {!gone && <Button kind="primary" icon="refresh" onClick={() => app.reopen()}>{t("retry")}</Button>}
          {app.onlySession.value === "" && <Button icon="compose" onClick={() => app.go({ at: "new" }, gone ? "replace" : "push")}>{t("command.new")}</Button>}
        </div>
      </div>
    </main>
  );
}
