// The places of what is loaded when it is opened first: the settings of the session and the
// dialogs of actions.
import { signal } from "@preact/signals";
import { useApp } from "../context.ts";
import { Later } from "../parts/Later.tsx";

/** Whether the page has room for a panel beside the conversation. */
export const wide = signal(true);
if ("matchMedia" in globalThis) {
  const query = matchMedia("(min-width: 1024px)");
  wide.value = query.matches;
  query.addEventListener("change", () => (wide.value = query.matches));
}

const parts = {
  panel: () => import("./Panel.tsx"),
  dialogs: () => import("./dialogs.tsx"),
  models: () => import("./Models.tsx"),
};

/** SidePanel is the settings of the open session. */
export function SidePanel() {
  const app = useApp();
  return app.panel.value && app.transcript.value ? <Later load={parts.panel} failed={() => (app.panel.value = false)} /> : null;
}

/** Whether the list of models is open. */
export const choosing = signal(false);

/** PluginLayers are the dialogs. */
export function PluginLayers() {
  const { settings } = useApp();
  const close = (): void => {
    settings.asked.value = null;
    settings.result.value = null;
  };
  return (
    <>
      {(settings.asked.value || settings.result.value) && <Later load={parts.dialogs} failed={close} />}
      {choosing.value && <Later load={parts.models} failed={() => (choosing.value = false)} />}
    </>
  );
}
