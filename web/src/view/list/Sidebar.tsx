import { useEffect, useRef } from "preact/hooks";
import { t } from "../../i18n/index.ts";
import { usePage } from "../context.ts";
import { Button, IconButton } from "../parts/Button.tsx";
import { Icon } from "../parts/Icon.tsx";
import { showKeys } from "../parts/keys.ts";
import { openMenu } from "../parts/Menu.tsx";
import { SessionList } from "./SessionList.tsx";

/** Sidebar has the list of sessions. On narrow screens it is a drawer. */
export function Sidebar() {
  const { app, commands } = usePage();
  const ref = useRef<HTMLElement>(null);
  const drawer = app.drawer.value;
  useEffect(() => {
    if (!drawer) return;
    const before = document.activeElement;
    ref.current?.querySelector<HTMLElement>("button, a")?.focus();
    const escape = (e: KeyboardEvent): void => {
      if (e.key !== "Escape" || document.querySelector("dialog[open]")) return;
      e.preventDefault();
      app.drawer.value = false;
    };
    addEventListener("keydown", escape, true);
    return () => {
      removeEventListener("keydown", escape, true);
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, [drawer]);
  const keys = (id: string) => showKeys(commands.find((command) => command.id === id)?.shortcut);
  const archived = app.list.archived.value;
  return (
    <nav ref={ref} class="sidebar" aria-label={t("list.name")} data-test="sidebar">
      <div class="sidebar-top">
        <a class="brand" href="/" onClick={(e) => (e.preventDefault(), app.go({ at: "new" }))}>
          <img src="/icon.svg" alt="" width={24} height={24} />
          <span>{t("app.name")}</span>
        </a>
        <IconButton icon="search" label={t("command.search")} shortcut={keys("search")} data-test="search" onClick={() => (app.overlay.value = "palette")} />
        <IconButton class="only-wide" icon="sidebar" label={t("sidebar.hide")} shortcut={keys("sidebar")} onClick={() => app.preferences.set("sidebar", false)} />
        <IconButton class="only-narrow" icon="close" label={t("close")} data-test="drawer-close" onClick={() => (app.drawer.value = false)} />
      </div>
      {!app.readOnly.value && (
        <Button kind="plain" class="new-chat" icon="compose" data-test="new" onClick={() => (app.go({ at: "new" }), (app.drawer.value = false), app.ask("composer"))}>
          {t("command.new")}
        </Button>
      )}
      {(archived || app.list.tag.value || app.list.tags.value.length > 0) && <Filter />}
      {archived && <h2 class="sidebar-title">{t("list.archived")}</h2>}
      <SessionList />
      <div class="sidebar-bottom">
        {!archived && (
          <button type="button" class="sidebar-link" data-test="archived" onClick={() => app.go({ at: "archived" })}>
            <Icon name="archive" size={18} />
            <span>{t("list.archived")}</span>
          </button>
        )}
        <button type="button" class="sidebar-link" data-test="settings" onClick={() => (app.overlay.value = "settings")}>
          <Icon name="settings" size={18} />
          <span>{t("command.settings")}</span>
        </button>
        <IconButton
          icon="more"
          label={t("more")}
          aria-haspopup="menu"
          data-test="page-menu"
          onClick={(e) =>
            openMenu(e.currentTarget, t("more"), () => [
              { label: t("command.shortcuts"), icon: "keyboard", shortcut: keys("shortcuts"), run: () => void (app.overlay.value = "shortcuts") },
              app.mayCreate.value && { label: t("command.import"), icon: "upload", test: "import-open", run: () => void (app.overlay.value = "import") },
              !!app.me.value?.browser && null,
              !!app.me.value?.browser && { label: t("sign_in.out"), icon: "sign-out", test: "sign-out", run: () => void app.signOut() },
            ])
          }
        />
      </div>
    </nav>
  );
}

/** Filter shows which sessions are listed, when these are not all. */
function Filter() {
  const { app } = usePage();
  const { archived, tag, tags } = app.list;
  const choose = (anchor: HTMLElement): void =>
    openMenu(anchor, t("list.tag"), () => [
      { label: t("list.all_tags"), checked: tag.value === "", run: () => app.list.show(archived.value, "") },
      ...tags.value.map((name) => ({ label: name, checked: tag.value === name, run: () => app.list.show(archived.value, name) })),
    ]);
  return (
    <div class="filter">
      {archived.value && (
        <button type="button" class="chip" data-test="list-back" onClick={() => app.go({ at: "new" })}>
          <Icon name="chevron-left" size={16} />
          <span>{t("list.back")}</span>
        </button>
      )}
      {(tag.value || tags.value.length > 0) && (
        <button type="button" class={`chip ${tag.value ? "on" : ""}`} aria-haspopup="menu" aria-label={`${t("list.tag")}: ${tag.value || t("list.all_tags")}`} data-test="tag-filter" onClick={(e) => choose(e.currentTarget)}>
          <Icon name="tag" size={16} />
          <span dir="auto">{tag.value || t("list.all_tags")}</span>
        </button>
      )}
    </div>
  );
}
