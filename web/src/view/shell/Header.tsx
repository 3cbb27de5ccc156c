import { useState } from "preact/hooks";
import { t } from "../../i18n/index.ts";
import { entryOf } from "../../model/list.ts";
import { sessionOf } from "../../model/route.ts";
import { usePage } from "../context.ts";
import { IconButton } from "../parts/Button.tsx";
import { showKeys } from "../parts/keys.ts";
import { Later } from "../parts/Later.tsx";
import { openMenu } from "../parts/Menu.tsx";
import { RenameField } from "../list/RenameField.tsx";
import { pluginItems, sessionMenu, tagsDialog } from "../list/menu.ts";

/** Header names the open session, shows the connection and has the session's menu. */
export function Header() {
  const { app, commands } = usePage();
  const [renaming, setRenaming] = useState(""); // the id of a session: another one may be open before it is done
  const [tagging, setTagging] = useState("");
  const id = sessionOf(app.route.value);
  const about = app.transcript.value?.about.value;
  const listed = id ? app.list.entry(id) : undefined;
  const entry = listed ?? (about ? entryOf(about, false, false) : undefined);
  const keys = (command: string) => showKeys(commands.find((c) => c.id === command)?.shortcut);
  const lists = app.onlySession.value === "";
  const sidebar = app.preferences.get("sidebar");
  return (
    <header class="header">
      {lists && <IconButton class="only-narrow" icon="menu" label={t("sidebar.show")} data-test="drawer" onClick={() => (app.drawer.value = true)} />}
      {lists && !sidebar && <IconButton class="only-wide" icon="sidebar" label={t("sidebar.show")} shortcut={keys("sidebar")} onClick={() => app.preferences.set("sidebar", true)} />}
      <div class="header-title">
        {entry && renaming === entry.id ? (
          <RenameField entry={entry} done={() => setRenaming("")} />
        ) : (
          <h1 dir="auto" data-test="title">{id ? entry?.title || t("session.untitled") : t("app.name")}</h1>
        )}
        <ConnectionDot />
      </div>
      {lists && !app.readOnly.value && (
        <IconButton class="only-narrow" icon="compose" label={t("command.new")} onClick={() => (app.go({ at: "new" }), app.ask("composer"))} />
      )}
      {id && about && (
        <IconButton icon="settings" label={t("command.chat_settings")} shortcut={keys("chat-settings")} aria-expanded={app.panel.value} data-test="chat-settings" onClick={() => (app.panel.value = !app.panel.value)} />
      )}
      {id && entry && !app.readOnly.value && (lists || app.settings.sessionActions().length > 0) && (
        <IconButton
          icon="more"
          label={t("session.menu")}
          aria-haspopup="menu"
          data-test="session-menu"
          onClick={(e) => openMenu(e.currentTarget, t("session.menu"), () => (lists ? sessionMenu(app, entry, { rename: () => setRenaming(entry.id), tags: () => setTagging(entry.id) }) : pluginItems(app)))}
        />
      )}
      {entry && tagging === entry.id && <Later load={tagsDialog} failed={() => setTagging("")} entry={entry} close={() => setTagging("")} />}
    </header>
  );
}

/** ConnectionDot says whether what the page shows is live. */
function ConnectionDot() {
  const { app } = usePage();
  const state = app.state.value;
  const label = state === "live" ? t("connection.live") : state === "signed-out" ? t("connection.signed_out") : t("connection.connecting");
  return <span class={`connection ${state}`} role="img" aria-label={label} data-tip={label} data-test="connection" data-state={state} />;
}
