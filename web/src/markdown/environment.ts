/** What the components need to know about the place where they are shown. */
import { type ReadonlySignal, signal } from "@preact/signals";
import { createContext } from "preact";
import { type Texts, englishTexts } from "./texts.ts";

export interface Environment {
  readonly texts: Texts;
  /** Added to the level of each heading, so that the page's own headings stay above. */
  readonly headingShift: number;
  /** Line ends of the source are shown as line ends. */
  readonly lineEnds: boolean;
  /** Unique on the page; ids begin with it. */
  readonly idPrefix: string;
  /** Where the page that draws diagrams is. */
  readonly frameUrl: string;
  /** Called before a link is followed. If it returns true, it has taken over and the browser does not follow the link. */
  readonly onLeave?: ((url: string) => boolean) | undefined;
  /** Returns the URL of an image that this server keeps, or null for any other source. */
  readonly asset?: ((src: string) => string | null) | undefined;
  /** The numbers of the footnotes. */
  readonly numbers: ReadonlySignal<ReadonlyMap<string, number>>;
}

export const EnvironmentContext = createContext<Environment>({
  texts: englishTexts,
  headingShift: 2,
  lineEnds: false,
  idPrefix: "md",
  frameUrl: "/frame/mermaid.html",
  numbers: signal(new Map()),
});
