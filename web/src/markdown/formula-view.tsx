import type { VNode } from "preact";
import { useContext, useEffect, useMemo, useState } from "preact/hooks";
import { EnvironmentContext } from "./environment.ts";
import { format } from "./texts.ts";

type Render = (source: string, display: boolean) => VNode | { readonly error: string };

let render: Render | undefined;
let loading: Promise<void> | undefined;

/** loadFormulas loads what sets formulas. */
export function loadFormulas(): Promise<void> {
  loading ??= import("./formula-render.ts").then(
    (module) => void (render = module.renderFormula),
    () => void (loading = undefined),
  );
  return loading;
}

/** Formula shows LaTeX. Until it can be set, and if it cannot, the source is shown. */
export function Formula({ value, display, source }: { value: string; display: boolean; source: string }) {
  const { texts } = useContext(EnvironmentContext);
  const [, redraw] = useState(0);
  useEffect(() => {
    let here = true;
    if (!render) void loadFormulas().then(() => here && redraw(1));
    return () => void (here = false);
  }, []);
  const result = useMemo(() => render?.(value, display), [render, value, display]);
  if (result && !("error" in result)) return <span class={display ? "md-formula md-display" : "md-formula"}>{result}</span>;
  const reason = result && "error" in result ? format(texts.formulaFailed, { reason: result.error }) : texts.formula;
  return (
    <code class={result ? "md-formula-source md-failed" : "md-formula-source"} title={reason} dir="ltr">
      {source}
    </code>
  );
}
