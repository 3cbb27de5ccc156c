import { useApp } from "../context.ts";
import { Later } from "../parts/Later.tsx";

const overlays = {
  settings: () => import("../settings/Settings.tsx"),
  palette: () => import("../palette/Palette.tsx"),
  import: () => import("../import/Import.tsx"),
  shortcuts: () => import("./Shortcuts.tsx"),
};

/** Overlays shows the layer above the page that is open. */
export function Overlays() {
  const app = useApp();
  const overlay = app.overlay.value;
  return overlay && <Later key={overlay} load={overlays[overlay]} failed={() => (app.overlay.value = "")} />;
}
