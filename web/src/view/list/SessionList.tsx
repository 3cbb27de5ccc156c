import { memo } from "../parts/memo.ts";
import { useEffect, useRef, useState } from "preact/hooks";
import { monthName, t } from "../../i18n/index.ts";
import type { App } from "../../model/app.ts";
import type { Entry, Group } from "../../model/list.ts";
import { sessionOf } from "../../model/route.ts";
import { useApp } from "../context.ts";
import { Button, IconButton } from "../parts/Button.tsx";
import { Icon } from "../parts/Icon.tsx";
import { Later } from "../parts/Later.tsx";
import { openMenu } from "../parts/Menu.tsx";
import { Spinner } from "../parts/Spinner.tsx";
import { sessionMenu, tagsDialog } from "./menu.ts";
import { RenameField } from "./RenameField.tsx";
import { visibleItems, type Item } from "./window.ts";

/** SessionList shows the rows that are near the visible part of the list. */
export function SessionList() {
  const app = useApp();
  const ref = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 800 });
  const [rowHeight, setRowHeight] = useState(36);
  const items = itemsOf(app.list.groups.value);
  const open = sessionOf(app.route.value);
  const { shown, total } = visibleItems(items, rowHeight, view.top, view.height, keptRows(open));
  useEffect(() => {
    const box = ref.current;
    if (!box) return;
    const measure = (): void => {
      setView({ top: box.scrollTop, height: box.clientHeight });
      setRowHeight(parseFloat(getComputedStyle(box).getPropertyValue("--row-px")) || 36);
      if (box.scrollTop + box.clientHeight > box.scrollHeight - 800) void app.list.loadMore();
    };
    const observer = new ResizeObserver(measure);
    observer.observe(box);
    box.addEventListener("scroll", measure, { passive: true });
    return () => {
      observer.disconnect();
      box.removeEventListener("scroll", measure);
    };
  }, [items.length]);
  useEffect(() => {
    if (app.focus.value.part === "list") ref.current?.querySelector<HTMLElement>(".row-link")?.focus();
  }, [app.focus.value]);
  return (
    <div ref={ref} class="session-list" data-test="session-list" onKeyDown={moveFocus}>
      <div class="session-list-inner" style={{ blockSize: `${total}px` }} role="list">
        {shown.map(({ item, top }) =>
          item.kind === "head" ? (
            <div key={item.key} class="list-head" role="listitem" style={{ insetBlockStart: `${top}px` }}><h2>{item.text}</h2></div>
          ) : (
            <div key={item.key} class="row-place" role="listitem" style={{ insetBlockStart: `${top}px` }}>
              <Row app={app} entry={item.entry} current={item.entry.id === open} />
            </div>
          ),
        )}
      </div>
      <ListState />
    </div>
  );
}

/** keptRows names the rows that stay although they are out of sight: the open one, and the one with the focus. */
function keptRows(open: string | null): ReadonlySet<string> {
  const focused = document.activeElement?.closest<HTMLElement>("[data-session]")?.dataset.session;
  return new Set([open, focused].filter((id): id is string => Boolean(id)));
}

function itemsOf(groups: readonly Group[]): Item[] {
  return groups.flatMap((group): Item[] => [{ kind: "head", key: `head ${group.key}`, text: nameOf(group) }, ...group.entries.map((entry): Item => ({ kind: "row", key: entry.id, entry }))]);
}

const nameOf = (group: Group): string => (group.name === "month" ? monthName().format(group.time) : t(`list.${group.name}`));

function ListState() {
  const { list } = useApp();
  if (list.problem.value) {
    return (
      <div class="list-state">
        <p>{t("list.failed")}</p>
        <Button kind="quiet" onClick={() => list.load()}>{t("retry")}</Button>
      </div>
    );
  }
  if (list.loading.value && !list.sorted.value.length) return <div class="list-state"><Spinner label={t("loading")} /></div>;
  if (list.sorted.value.length || !list.loaded.value) return null;
  const text = list.tag.value ? t("list.empty_tag", { tag: list.tag.value }) : t(list.archived.value ? "list.empty_archived" : "list.empty");
  return <p class="list-state">{text}</p>;
}

interface RowProps {
  readonly app: App;
  readonly entry: Entry;
  readonly current: boolean;
}

const Row = memo(function Row({ app, entry, current }: RowProps) {
  const [renaming, setRenaming] = useState(false);
  const [tagging, setTagging] = useState(false);
  const title = entry.title || t("session.untitled");
  const menu = (anchor: HTMLElement): void => openMenu(anchor, t("list.menu", { title }), () => sessionMenu(app, entry, { rename: () => setRenaming(true), tags: () => setTagging(true) }));
  if (renaming) return <div class="row" data-session={entry.id}><RenameField entry={entry} done={() => setRenaming(false)} /></div>;
  const open = (e: MouseEvent): void => {
    if (e.ctrlKey || e.metaKey || e.shiftKey) return;
    e.preventDefault();
    app.go({ at: "session", id: entry.id });
    app.drawer.value = false;
  };
  return (
    <div class={`row ${current ? "current" : ""}`} data-test="session-row" data-session={entry.id} onContextMenu={(e) => !app.readOnly.value && (e.preventDefault(), menu(e.currentTarget))}>
      <a class="row-link" href={`/s/${entry.id}`} aria-current={current ? "page" : undefined} onClick={open} onKeyDown={(e) => e.key === "F2" && !app.readOnly.value && setRenaming(true)}>
        {entry.running ? <span class="dot running" role="img" aria-label={t("list.running")} /> : entry.unread && <span class="dot unread" role="img" aria-label={t("list.unread")} />}
        <span class="row-title" dir="auto">{title}</span>
        {entry.summary.source_session_id && <span class="row-copy" role="img" aria-label={t("list.copy")} data-tip={t("list.copy")} data-test="row-copy"><Icon name="fork" size={14} /></span>}
        {app.list.fields(entry).slice(0, 2).map((text) => <span key={text} class="row-field" dir="auto" data-test="row-field">{text}</span>)}
        {entry.tags.slice(0, 2).map((tag) => <span key={tag} class="row-tag" dir="auto">{tag}</span>)}
      </a>
      {!app.readOnly.value && <IconButton class="row-menu" icon="more" size={18} label={t("list.menu", { title })} aria-haspopup="menu" data-test="row-menu" onClick={(e) => menu(e.currentTarget)} />}
      {tagging && <Later load={tagsDialog} failed={() => setTagging(false)} entry={entry} close={() => setTagging(false)} />}
    </div>
  );
});

/** moveFocus moves the focus from row to row with the arrow keys. */
function moveFocus(e: KeyboardEvent): void {
  const by = { ArrowDown: 1, ArrowUp: -1 }[e.key];
  if (!by || e.altKey || !(e.target instanceof HTMLElement) || e.target.tagName === "INPUT") return;
  const list = e.currentTarget as HTMLElement;
  const rows = [...list.querySelectorAll<HTMLElement>(".row-link")].sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top);
  const at = rows.findIndex((row) => row.parentElement?.contains(e.target as Node));
  const next = rows[at + by];
  if (!next) return;
  e.preventDefault();
  next.focus();
}
