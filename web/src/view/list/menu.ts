import { t } from "../../i18n/index.ts";
import type { App } from "../../model/app.ts";
import { actionLabel, type ActionElement } from "../../model/elements.ts";
import type { Entry } from "../../model/list.ts";
import { sessionOf } from "../../model/route.ts";
import { formatNames, formats } from "../../model/library.ts";
import type { MessageAt } from "../../model/settings.ts";
import { icons, type IconName } from "../parts/icons.ts";
import type { MenuItem, MenuItems } from "../parts/Menu.tsx";

/** tagsDialog loads the dialog for the tags of a session. */
export const tagsDialog = () => import("./TagsDialog.tsx");

/** sessionMenu returns the menu of a session, in the list and in the header. */
export function sessionMenu(app: App, entry: Entry, edit: { rename: () => void; tags: () => void }): MenuItems {
  const { library } = app;
  const plugins = entry.id === sessionOf(app.route.peek()) ? pluginItems(app) : [];
  return [
    { label: t("session.rename"), icon: "edit", test: "rename", run: edit.rename },
    { label: t(entry.pinned ? "session.unpin" : "session.pin"), icon: "pin", test: "pin", run: () => void library.pin(entry.id, !entry.pinned) },
    { label: t("session.tags"), icon: "tag", test: "tags", run: edit.tags },
    { label: t("session.fork"), icon: "fork", test: "fork", run: () => void library.fork(entry.id) },
    { label: t(entry.archived ? "session.unarchive" : "session.archive"), icon: "archive", test: "archive", run: () => void library.archive(entry.id, !entry.archived) },
    null,
    ...(plugins.length ? [...plugins, null] : []),
    ...formats.map((format) => ({
      label: t("session.export", { format: formatNames[format] }),
      icon: "download" as const,
      test: `export-${format}`,
      href: library.exportURL(entry.id, format),
      download: true,
    })),
    null,
    { label: t("session.delete"), icon: "trash", kind: "danger", test: "delete", run: () => library.remove(entry.id) },
  ];
}

/** pluginItems returns the actions of plugins for the open session. */
export const pluginItems = (app: App): MenuItem[] => app.settings.sessionActions().map((element) => actionItem(app, element, null));

/** actionItem returns the menu entry of an action of a plugin. */
export function actionItem(app: App, element: ActionElement, at: MessageAt | null): MenuItem {
  const { icon } = element;
  const known = typeof icon === "string" && Object.hasOwn(icons, icon);
  const running = app.settings.isRunning(element);
  const label = actionLabel(element);
  return { label: running ? t("plugins.running", { label }) : label, icon: known ? (icon as IconName) : "plug", test: "plugin-action", disabled: running, run: () => app.settings.begin(element, at) };
}
