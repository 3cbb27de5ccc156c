import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { useApp } from "../context.ts";

interface Props {
  readonly load: () => Promise<{ readonly default: ComponentType }>;
  /** Closes what cannot be loaded. */
  readonly failed: () => void;
}

/** Later shows a component once its chunk is here. It is for what a first reply does not need. */
export function Later({ load, failed }: Props) {
  const app = useApp();
  const [Part, setPart] = useState<ComponentType | null>(null);
  useEffect(() => {
    load().then(
      (module) => setPart(() => module.default),
      () => {
        failed();
        app.partFailed();
      },
    );
  }, []);
  return Part && <Part />;
}
