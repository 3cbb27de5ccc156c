// The model, for all components.
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { App } from "../model/app.ts";
import type { Command } from "../model/commands.ts";

export interface Page {
  readonly app: App;
  readonly commands: readonly Command[];
}

export const PageContext = createContext<Page | null>(null);

export function usePage(): Page {
  const page = useContext(PageContext);
  if (!page) throw new Error("the component is outside of the page");
  return page;
}

export const useApp = (): App => usePage().app;
