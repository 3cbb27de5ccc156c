import type { Attributes, ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { t } from "../../i18n/index.ts";
import { useApp } from "../context.ts";

interface Props<P> {
  readonly load: () => Promise<{ readonly default: ComponentType<P> }>;
  /** What the component is shown with. */
  readonly with: P & Attributes;
  /** Closes what cannot be loaded. */
  readonly failed: () => void;
}

/** Later shows a component once its chunk is here. It is for what a first reply does not need. */
export function Later<P>({ load, with: props, failed }: Props<P>) {
  const app = useApp();
  const [Part, setPart] = useState<ComponentType<P> | null>(null);
  useEffect(() => {
    load().then(
      (module) => setPart(() => module.default),
      () => {
        failed();
        app.notices.add({ kind: "error", text: t("problem.connection") });
      },
    );
  }, []);
  return Part && <Part {...props} />;
}
