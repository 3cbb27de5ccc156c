import type { ComponentType, VNode } from "preact";
import { useEffect, useState } from "preact/hooks";
import { useApp } from "../context.ts";

type Part = ComponentType<Record<string, unknown>>;

interface Props<P> {
  readonly load: () => Promise<{ readonly default: ComponentType<P> }>;
  /** Closes what cannot be loaded. */
  readonly failed: () => void;
}

/** Later shows a component once its chunk is here, with the other properties. It is for what a first reply does not need. */
export function Later<P = object>({ load, failed, ...props }: Props<P> & P): VNode | null {
  const app = useApp();
  const [Part, setPart] = useState<Part | null>(null);
  useEffect(() => {
    load().then(
      (module) => setPart(() => module.default as Part),
      () => {
        failed();
        app.partFailed();
      },
    );
  }, []);
  return Part && <Part {...props} />;
}
