// The choice of the model, and of the agent if there are several.
import "../parts/common.ts";
import { useEffect, useState } from "preact/hooks";
import { t } from "../../i18n/index.ts";
import { shownValue, type Option } from "../../model/elements.ts";
import { asProblem, type Problem } from "../../model/wire.ts";
import { explain } from "../../model/problems.ts";
import { useApp } from "../context.ts";
import { Button } from "../parts/Button.tsx";
import { Dialog } from "../parts/Dialog.tsx";
import { Icon } from "../parts/Icon.tsx";
import { composing } from "../parts/keys.ts";
import { Spinner } from "../parts/Spinner.tsx";
import { choosing } from "./layers.tsx";

/** The rows that are shown at once: a backend may list thousands of models. */
const most = 200;

export default function Models() {
  const app = useApp();
  const { settings } = app;
  const [query, setQuery] = useState("");
  const [models, setModels] = useState<readonly Option[] | Problem | null>(null);
  const [attempt, setAttempt] = useState(0);
  const picker = settings.picker.value;
  const agent = settings.agent.value;
  useEffect(() => {
    let stale = false;
    setModels(null);
    settings.models().then((found) => !stale && setModels(found), (thrown: unknown) => !stale && setModels(asProblem(thrown)));
    return () => void (stale = true);
  }, [agent, attempt, picker?.key, picker?.options.length]);
  const close = (): void => void (choosing.value = false);
  const choose = (value: unknown): void => {
    void settings.chooseModel(value);
    close();
  };
  return (
    <Dialog title={t("model.choose")} class="small models" test="models" onClose={close}>
      {app.agents.value.length > 1 && (
        <div class="model-agents" role="group" aria-label={t("model.agent")}>
          {app.agents.value.map(({ agent_id }) => (
            <button key={agent_id} type="button" class={`chip ${agent_id === agent ? "on" : ""}`} aria-pressed={agent_id === agent} dir="auto" data-test="agent" disabled={app.readOnly.value} onClick={() => void settings.chooseAgent(agent_id)}>
              {agent_id}
            </button>
          ))}
        </div>
      )}
      {picker && (models === null ? <Spinner label={t("loading")} /> : "code" in models ? (
        <div class="model-failed">
          <p>{t("model.failed")} {explain(models)}</p>
          <Button onClick={() => setAttempt(attempt + 1)}>{t("retry")}</Button>
        </div>
      ) : (
        <List models={models} query={query} setQuery={setQuery} value={picker.value} choose={choose} />
      ))}
    </Dialog>
  );
}

interface ListProps {
  readonly models: readonly Option[];
  readonly query: string;
  readonly setQuery: (query: string) => void;
  readonly value: string;
  readonly choose: (value: unknown) => void;
}

function List({ models, query, setQuery, value, choose }: ListProps) {
  const app = useApp();
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const found = models.filter((model) => words.every((word) => `${model.label} ${shownValue(model.value)}`.toLowerCase().includes(word)));
  const keys = (e: KeyboardEvent & { readonly currentTarget: HTMLElement }): void => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[e.key];
    if (!by || composing(e)) return;
    const stops = [...e.currentTarget.querySelectorAll<HTMLElement>("input, .menu-item")];
    stops[stops.indexOf(document.activeElement as HTMLElement) + by]?.focus();
    e.preventDefault();
  };
  return (
    <div onKeyDown={keys}>
      <input
        class="input"
        type="search"
        autoFocus
        dir="auto"
        aria-label={t("model.search")}
        placeholder={t("model.search")}
        data-test="model-search"
        value={query}
        onInput={(e) => setQuery(e.currentTarget.value)}
        onKeyDown={(e) => {
          if (e.key === "Enter" && !composing(e) && found.length && query && !app.readOnly.value) choose(found[0]!.value);
        }}
      />
      <ul class="plain model-list">
        {found.slice(0, most).map((model) => {
          const id = shownValue(model.value);
          const now = id === value;
          return (
            <li key={id}>
              <button type="button" class="menu-item" aria-current={now} disabled={app.readOnly.value} data-test="model" onClick={() => choose(model.value)}>
                <span class="menu-icon">{now && <Icon name="check" size={18} />}</span>
                <span class="menu-label model-label">
                  <span dir="auto">{model.label}</span>
                  {model.label !== id && <small dir="auto">{id}</small>}
                </span>
              </button>
            </li>
          );
        })}
      </ul>
      {!found.length && <p class="field-help">{t(models.length ? "model.none" : "model.unlisted")}</p>}
      {found.length > most && <p class="field-help">{t("model.more", { n: found.length - most })}</p>}
    </div>
  );
}
