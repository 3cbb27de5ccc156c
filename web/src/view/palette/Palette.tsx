// One search for chats, the messages in them, and commands. The focus stays in the field; the arrow keys choose.
import "../parts/common.ts";
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { t } from "../../i18n/index.ts";
import { explain } from "../../model/problems.ts";
import { maxQuery, Search } from "../../model/search.ts";
import { useApp, usePage } from "../context.ts";
import { Button } from "../parts/Button.tsx";
import { Dialog } from "../parts/Dialog.tsx";
import { Icon } from "../parts/Icon.tsx";
import { composing, showKeys } from "../parts/keys.ts";
import { Hit } from "./Hit.tsx";

interface Option {
  readonly key: string;
  readonly test: string;
  readonly view: ComponentChildren;
  run(): void;
}

interface Section {
  readonly name: string;
  readonly options: readonly Option[];
}

export default function Palette() {
  const app = useApp();
  const [query, setQuery] = useState("");
  const [search] = useState(() => new Search(app.wire, () => app.onlySession.peek()));
  const [chosen, setChosen] = useState("");
  const list = useRef<HTMLDivElement>(null);
  const id = useId();
  useEffect(() => () => search.close(), []);
  const { status } = search.found.value;
  const sections = useSections(query, search);
  const options = sections.flatMap((section) => section.options);
  const at = Math.max(0, options.findIndex((option) => option.key === chosen));
  const current = options[at];
  useEffect(() => list.current?.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" }), [current?.key]);
  const close = (): void => void (app.overlay.value = "");
  const run = (option: Option): void => {
    close();
    option.run();
  };
  const key = (e: KeyboardEvent): void => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 }[e.key];
    if (composing(e) || (!step && e.key !== "Enter" && e.key !== "Escape")) return;
    e.preventDefault();
    if (e.key === "Escape") return close(); // browsers would only empty the field
    if (!current) return;
    if (!step) return run(current);
    const next = Math.abs(step) === 1 ? (at + step + options.length) % options.length : Math.min(Math.max(at + step, 0), options.length - 1);
    setChosen(options[next]!.key);
  };
  const write = (text: string): void => {
    setQuery(text);
    setChosen("");
    search.find(text);
  };
  return (
    <Dialog title={t("palette.title")} test="palette" class="palette" onClose={close}>
      <input
        class="input" type="search" autoFocus list={undefined} autoComplete="off" spellcheck={false} data-test="palette-query" value={query} maxLength={maxQuery}
        role="combobox" aria-expanded={options.length > 0} aria-controls={id} aria-autocomplete="list" aria-activedescendant={current ? `${id}-${at}` : undefined}
        aria-label={t("palette.title")} placeholder={t("palette.placeholder")} onInput={(e) => write(e.currentTarget.value)} onKeyDown={key}
      />
      <div ref={list} id={id} class="palette-list" role="listbox" aria-label={t("palette.title")} aria-busy={status === "searching"}>
        {sections.map((section) => (
          <div key={section.name} role="group" aria-label={section.name}>
            <div class="palette-head" aria-hidden="true">{section.name}</div>
            {section.options.map((option) => (
              <div
                key={option.key} id={`${id}-${options.indexOf(option)}`} class="menu-item palette-option" role="option" aria-selected={option === current} data-test={option.test}
                onPointerMove={() => setChosen(option.key)} onClick={() => run(option)}
              >
                {option.view}
              </div>
            ))}
          </div>
        ))}
      </div>
      <State search={search} empty={!options.length} />
    </Dialog>
  );
}

/** useSections returns what fits the query. */
function useSections(query: string, search: Search): Section[] {
  const { app, commands } = usePage();
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (text: string): boolean => words.every((word) => text.toLowerCase().includes(word));
  const chats = app.list.sorted.value.filter((entry) => fits(entry.title)).slice(0, 8).map((entry): Option => ({
    key: entry.id, test: "palette-chat",
    view: <span class="menu-label" dir="auto">{entry.title || t("session.untitled")}</span>,
    run: () => app.go({ at: "session", id: entry.id }),
  }));
  const hits = search.found.value.hits.map((hit): Option => ({
    key: `${hit.message_id} ${hit.part}`, test: "palette-hit", view: <Hit hit={hit} />,
    run: () => app.go({ at: "session", id: hit.session_id, message: hit.index ?? 0 }),
  }));
  const found = commands.filter((command) => command.id !== "search" && command.enabled() && fits(t(command.label, command.values))).map((command): Option => ({
    key: command.id, test: "palette-command", run: () => command.run(),
    view: (
      <>
        <span class="menu-icon">{command.icon && <Icon name={command.icon} size={18} />}</span>
        <span class="menu-label">{t(command.label, command.values)}</span>
        {command.shortcut && <kbd>{showKeys(command.shortcut)}</kbd>}
      </>
    ),
  }));
  const sections = [{ name: t("list.name"), options: chats }, { name: t("palette.messages"), options: hits }, { name: t("palette.commands"), options: found }];
  return sections.filter((section) => section.options.length > 0);
}

/** State says how the search stands. Assistive technology reads the number of hits when it has settled. */
function State({ search, empty }: { readonly search: Search; readonly empty: boolean }) {
  const { status, hits, incomplete, more, error } = search.found.value;
  const said = status === "done" ? t(more ? "palette.hits_more" : "palette.hits", { n: hits.length }) : "";
  return (
    <footer class="palette-state">
      <p role="status" data-test="palette-hits">{status === "searching" ? t("palette.searching") : said}</p>
      {incomplete && <p data-test="palette-incomplete">{t("palette.incomplete")}</p>}
      {status === "failed" && error && (
        <p role="alert" data-test="palette-failed">
          {explain(error)} <Button kind="quiet" onClick={() => search.again()}>{t("retry")}</Button>
        </p>
      )}
      {empty && status !== "searching" && status !== "failed" && <p>{t("palette.none")}</p>}
    </footer>
  );
}
