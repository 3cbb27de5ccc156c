import { useState } from "preact/hooks";
import { t } from "../../i18n/index.ts";
import { Composer } from "../composer/Composer.tsx";
import { useApp } from "../context.ts";
import { Sidebar } from "../list/Sidebar.tsx";
import { MenuHost } from "../parts/Menu.tsx";
import { Toasts } from "../parts/Toast.tsx";
import { Tooltip } from "../parts/Tooltip.tsx";
import { PluginLayers, SidePanel } from "../settings/layers.tsx";
import { StatusBar } from "../settings/StatusBar.tsx";
import { Pair, SignIn } from "../signin/SignIn.tsx";
import { Transcript } from "../transcript/Transcript.tsx";
import { Banner } from "./Banner.tsx";
import { Empty } from "./Empty.tsx";
import { Header } from "./Header.tsx";
import { Missing } from "./Missing.tsx";
import { Overlays } from "./Overlays.tsx";

/** Shell is the whole page. */
export function Shell({ code }: { readonly code: string }) {
  const app = useApp();
  const [pairing, setPairing] = useState(code);
  const lists = app.onlySession.value === "";
  const sidebar = lists && app.preferences.get("sidebar");
  return (
    <div class={`shell ${sidebar ? "with-sidebar" : ""} ${app.drawer.value ? "with-drawer" : ""} ${app.panel.value && app.transcript.value ? "with-panel" : ""}`}>
      {!app.readOnly.value && <a class="skip" href="#composer" onClick={(e) => (e.preventDefault(), app.ask("composer"))}>{t("app.skip")}</a>}
      {lists && <Sidebar />}
      {lists && app.drawer.value && <div class="scrim" onClick={() => (app.drawer.value = false)} />}
      <div class="content">
        <Header />
        <Banner />
        <Main />
      </div>
      <SidePanel />
      {pairing && <Pair code={pairing} done={() => setPairing("")} />}
      {app.signIn.value && !pairing && <SignIn />}
      <Overlays />
      <PluginLayers />
      <MenuHost />
      <Toasts />
      <Tooltip />
    </div>
  );
}

function Main() {
  const app = useApp();
  const transcript = app.transcript.value;
  if (app.problem.value) return <Missing problem={app.problem.value} />;
  return (
    <main class={transcript ? "main" : "main new"}>
      {transcript ? <Transcript key={app.route.value.at === "session" ? app.route.value.id : ""} transcript={transcript} /> : <Empty />}
      {transcript && <StatusBar />}
      {!app.readOnly.value && <Composer />}
    </main>
  );
}
