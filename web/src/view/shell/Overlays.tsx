import { useEffect, useState } from "preact/hooks";
import type { ComponentType } from "preact";
import { t } from "../../i18n/index.ts";
import type { CommandGroup } from "../../model/commands.ts";
import { useApp, usePage } from "../context.ts";
import { Dialog } from "../parts/Dialog.tsx";
import { showKeys } from "../parts/keys.ts";

/** The layers that are loaded when they are opened first. */
const lazy: Readonly<Record<string, () => Promise<{ default: ComponentType }>>> = {
  settings: () => import("../settings/Settings.tsx"),
  palette: () => import("../palette/Palette.tsx"),
  import: () => import("../import/Import.tsx"),
};

export function Overlays() {
  const app = useApp();
  const overlay = app.overlay.value;
  if (overlay === "shortcuts") return <Shortcuts />;
  return overlay && lazy[overlay] ? <Lazy key={overlay} load={lazy[overlay]} /> : null;
}

/** Lazy shows a component once its chunk is here. */
function Lazy({ load }: { readonly load: () => Promise<{ default: ComponentType }> }) {
  const app = useApp();
  const [Part, setPart] = useState<ComponentType | null>(null);
  useEffect(() => {
    load().then(
      (module) => setPart(() => module.default),
      () => {
        app.overlay.value = "";
        app.notices.add({ kind: "error", text: t("problem.connection") });
      },
    );
  }, []);
  return Part && <Part />;
}

function Shortcuts() {
  const { app, commands } = usePage();
  const groups: readonly CommandGroup[] = ["session", "reply", "view", "help"];
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
