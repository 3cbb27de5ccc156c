import "../parts/common.ts";
import { t } from "../../i18n/index.ts";
import type { CommandGroup } from "../../model/commands.ts";
import { usePage } from "../context.ts";
import { Dialog } from "../parts/Dialog.tsx";
import { showKeys } from "../parts/keys.ts";

const groups: readonly CommandGroup[] = ["session", "reply", "view", "help"];

/** Shortcuts lists the commands that have keys. */
export default function Shortcuts() {
  const { app, commands } = usePage();
  return (
    <Dialog title={t("shortcuts.title")} test="shortcuts" onClose={() => (app.overlay.value = "")}>
      {groups.map((group) => (
        <section key={group} class="shortcuts">
          <h3>{t(`group.${group}`)}</h3>
          <dl>
            {commands.filter((command) => command.group === group && command.shortcut).map((command) => (
              <div key={command.id}>
                <dt>{t(command.label)}</dt>
                <dd><kbd>{showKeys(command.shortcut)}</kbd></dd>
              </div>
            ))}
          </dl>
        </section>
      ))}
    </Dialog>
  );
}
