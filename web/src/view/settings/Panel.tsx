// The settings of the open session.
import "../parts/common.ts";
import { useEffect, useRef, useState } from "preact/hooks";
import { t, type Key } from "../../i18n/index.ts";
import { pluginName, secretOf, settingGroups, specOf, type ConfigElement } from "../../model/elements.ts";
import { valueOf } from "../../model/inputs.ts";
import { explain } from "../../model/problems.ts";
import { useApp } from "../context.ts";
import { Button, IconButton } from "../parts/Button.tsx";
import { Dialog } from "../parts/Dialog.tsx";
import { Spinner } from "../parts/Spinner.tsx";
import { Control } from "./Control.tsx";
import { wide } from "./layers.tsx";

/** Panel stands beside the conversation, or above it on narrow screens. */
export default function Panel() {
  const app = useApp();
  const close = (): void => void (app.panel.value = false);
  const ref = useRef<HTMLElement>(null);
  const side = wide.value;
  useEffect(() => {
    const before = document.activeElement;
    ref.current?.focus();
    return () => {
      if (ref.current?.contains(document.activeElement) && before instanceof HTMLElement) before.focus();
    };
  }, [side]);
  if (!side) {
    return (
      <Dialog title={t("command.chat_settings")} class="full" test="chat-settings-panel" onClose={close}>
        <Content />
      </Dialog>
    );
  }
  return (
    <aside ref={ref} class="panel" aria-label={t("command.chat_settings")} tabIndex={-1} data-test="chat-settings-panel" onKeyDown={(e) => e.key === "Escape" && (e.stopPropagation(), close())}>
      <header class="panel-head">
        <h2>{t("command.chat_settings")}</h2>
        <IconButton icon="close" label={t("close")} data-test="panel-close" onClick={close} />
      </header>
      <Content />
    </aside>
  );
}

function Content() {
  const app = useApp();
  const { settings } = app;
  const [query, setQuery] = useState("");
  const groups = settingGroups(settings.elements.value, settings.config.value, query);
  if (!settings.loaded.value) {
    const problem = settings.problem.value;
    if (!problem) return <div class="panel-state"><Spinner label={t("loading")} /></div>;
    return (
      <div class="panel-state">
        <p>{t("setting.failed")} {explain(problem)}</p>
        <Button onClick={() => void settings.load()}>{t("retry")}</Button>
      </div>
    );
  }
  if (!groups.length && !query) return <p class="panel-state">{t("setting.empty")}</p>;
  return (
    <div class="panel-content">
      {app.readOnly.value && <p class="panel-note">{t("setting.read_only")}</p>}
      <input class="input" type="search" dir="auto" aria-label={t("setting.search")} placeholder={t("setting.search")} data-test="setting-search" value={query} onInput={(e) => setQuery(e.currentTarget.value)} />
      {groups.map(({ plugin, elements }) => (
        <section key={plugin} class="setting-group">
          <h3 dir="auto" title={plugin}>{pluginName(plugin)}</h3>
          {elements.map((element, i) => <Setting key={`${settings.of} ${element.key} ${i}`} element={element} />)}
        </section>
      ))}
      {!groups.length && <p class="panel-state">{t("setting.none")}</p>}
      <Saved />
    </div>
  );
}

/** Saved announces what was saved. */
function Saved() {
  const { settings } = useApp();
  const { key, n } = settings.saved.value;
  const element = settings.elements.value.find((e) => e.ui_type === "config" && e.key === key) as ConfigElement | undefined;
  return <p class="sr-only" role="status" data-test="setting-saved">{n > 0 && element && <span key={n}>{t("setting.saved", { label: specOf(element as never, key).label })}</span>}</p>;
}

function Setting({ element }: { readonly element: ConfigElement }) {
  const app = useApp();
  const { settings } = app;
  const { key } = element;
  const spec = specOf(element as never, key);
  const [owner] = useState(settings.of);
  const { value, source } = settings.values.value[key] ?? { value: null, source: "none" as const };
  const [draft, setDraft] = useState<string | undefined>(undefined);
  const [fault, setFault] = useState("");
  const typed = useRef<string | undefined>(undefined); // what is not saved yet
  const leave = useRef(() => {});
  useEffect(() => () => leave.current(), []);
  const secret = secretOf(value);
  if (secret !== null || (element as { secret?: unknown }).secret === true) {
    return (
      <div class="field setting" data-key={key} data-test="setting">
        <span class="field-name" dir="auto">{spec.label}</span>
        {spec.description && <p class="field-help" dir="auto">{spec.description}</p>}
        <p class="setting-about">{t(secret ? "setting.secret_set" : "setting.secret_unset")}</p>
      </div>
    );
  }
  const save = async (next: unknown): Promise<void> => {
    typed.current = undefined;
    setFault("");
    if (await settings.set(key, next, owner, spec.label)) setDraft((now) => (now === draft ? undefined : now)); // what was typed meanwhile stays
  };
  const write = (text: string): void => {
    typed.current = text;
    setDraft(text);
  };
  const done = (): void => {
    if (typed.current === undefined) return; // some browsers say so again when the field goes
    const read = valueOf(spec, typed.current);
    if (read.fault) setFault(t(`setting.fault_${read.fault}`));
    else void save(read.value);
  };
  leave.current = done;
  const saving = settings.saving.value.has(key);
  const about = `setting.source_${source}` as Key;
  return (
    <div class="setting" data-test="setting" data-source={source}>
      <Control spec={spec} value={value} draft={draft} disabled={app.readOnly.value} error={fault || settings.refused.value[key]} write={write} done={done} choose={(next) => void save(next)}>
        <p class="setting-about">
          <span>{saving ? t("setting.saving") : t(about)}</span>
          {source === "override" && !app.readOnly.value && (
            <button type="button" class="link-button" aria-label={t("setting.reset_name", { label: spec.label })} data-test="setting-reset" disabled={saving} onClick={() => void save(null)}>{t("setting.reset")}</button>
          )}
        </p>
      </Control>
    </div>
  );
}
