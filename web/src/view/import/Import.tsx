// The dialog that imports chats from files.
import "../parts/common.ts";
import { useEffect, useState } from "preact/hooks";
import { t } from "../../i18n/index.ts";
import { Import, notable, type Result } from "../../model/import.ts";
import { explain } from "../../model/problems.ts";
import { useApp } from "../context.ts";
import { Button } from "../parts/Button.tsx";
import { Dialog } from "../parts/Dialog.tsx";
import { Field } from "../parts/Field.tsx";

/** How many sessions of a report are shown. */
const most = 100;

/** The import that runs. It goes on while the dialog is closed. */
let running: Import | null = null;

export default function ImportDialog() {
  const app = useApp();
  const [work] = useState(() => (running ??= new Import(app.wire)));
  const [files, setFiles] = useState<readonly File[]>([]);
  const [copies, setCopies] = useState(false);
  const progress = work.progress.value;
  const results = work.results.value;
  useEffect(() => () => {
    if (!work.progress.peek()) running = null;
  }, []);
  const run = async (): Promise<void> => {
    await work.run(files, copies);
    setFiles([]);
    if (app.overlay.peek() === "import") return;
    running = null;
    const n = work.results.peek().reduce((sum, { report }) => sum + (report?.imported ?? 0), 0);
    app.notices.add({ kind: "info", text: t("import.imported", { n }) });
  };
  return (
    <Dialog title={t("import.title")} test="import" onClose={() => (app.overlay.value = "")}>
      <p class="dialog-text">{t("import.help")}</p>
      <Field label={t("import.files")} help={t("import.files_help")}>
        {(ids) => <input {...ids} class="input" type="file" multiple accept=".json,.zip,application/json,application/zip" data-test="import-files" disabled={progress !== null} onChange={(e) => setFiles([...(e.currentTarget.files ?? [])])} />}
      </Field>
      <label class="check">
        <input type="checkbox" checked={copies} disabled={progress !== null} data-test="import-copies" onChange={(e) => setCopies(e.currentTarget.checked)} />
        <span>{t("import.copies")}</span>
      </label>
      {progress && (
        <div class="import-progress" data-test="import-progress">
          <progress max={1} {...(progress.sent < 1 && { value: progress.sent })} aria-label={t("import.title")} />
          <p dir="auto">{t(progress.sent < 1 ? "import.sending" : "import.reading", { name: progress.name, at: progress.file, of: progress.files })}</p>
        </div>
      )}
      <div role="status">{!progress && results.map((result, i) => <Outcome key={i} result={result} />)}</div>
      <footer class="dialog-foot">
        {progress ? <Button data-test="import-stop" onClick={() => work.stop()}>{t("import.stop")}</Button> : <Button onClick={() => (app.overlay.value = "")}>{t("close")}</Button>}
        <Button kind="primary" icon="upload" disabled={progress !== null || !files.length} data-test="import-run" onClick={() => void run()}>{t("import.run")}</Button>
      </footer>
    </Dialog>
  );
}

/** Outcome says what became of a file, and what could not be taken over. */
function Outcome({ result: { name, report, error } }: { readonly result: Result }) {
  const told = report ? notable(report) : [];
  return (
    <section class="import-result" data-test="import-result">
      <h3 dir="auto">{name}</h3>
      {error && <p class="field-error">{explain(error)}</p>}
      {report && <p>{[t("import.imported", { n: report.imported }), t("import.skipped", { n: report.skipped }), t("import.failed", { n: report.failed })].join(" · ")}</p>}
      {report?.error && <p class="field-error" dir="auto">{report.error}</p>}
      {told.length > 0 && (
        <details open={told.length < 6} data-test="import-notes">
          <summary>{t("import.notes")}</summary>
          <ul>
            {told.slice(0, most).map(({ place, error, notes = [] }) => (
              <li key={place} dir="auto">
                <code>{place}</code> {[error, ...notes].filter(Boolean).join("; ")}
              </li>
            ))}
          </ul>
          {told.length > most && <p>{t("import.more", { n: told.length - most })}</p>}
        </details>
      )}
    </section>
  );
}
