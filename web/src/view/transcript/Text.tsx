import { computed, effect, signal, type ReadonlySignal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { t, type Key } from "../../i18n/index.ts";
import { englishTexts, Markdown, type Texts } from "../../markdown/index.ts";

/** leaving is the address that the user is about to open. */
export const leaving = signal("");
/** The hosts that the user opens without a question, until the page is loaded again. */
export const trusted = new Set<string>();

const texts = computed(() => Object.fromEntries(Object.keys(englishTexts).map((name) => [name, t(`markdown.${name}` as Key)])) as Texts);

function leave(url: string): boolean {
  if (trusted.has(hostOf(url))) return false;
  leaving.value = url;
  return true;
}

/** hostOf returns what an address leads to. */
export function hostOf(url: string): string {
  try {
    const { host, pathname } = new URL(url);
    return host || pathname;
  } catch {
    return url;
  }
}

/** asset returns the address of an image that this server keeps. */
const asset = (src: string): string | null => (/^\/sessions\/[\w-]{1,64}\/assets\/[\w-]{1,64}$/.test(src) ? src : null);

interface Props {
  readonly text: string;
  /** The text so far, while it is being written. */
  readonly live?: ReadonlySignal<string> | undefined;
  /** Somebody typed it, so line ends are meant. */
  readonly typed?: boolean;
}

/** Text shows the Markdown of a message. */
export function Text({ text, live, typed = false }: Props) {
  const shown = useFrames(live);
  return (
    <div class="text" dir="auto">
      <Markdown text={live ? shown : text} lineEnds={typed} texts={texts.value} onLeave={leave} asset={asset} />
    </div>
  );
}

/** useFrames returns a text that grows, at most once for each frame of the screen. */
function useFrames(live: ReadonlySignal<string> | undefined): string {
  const [shown, setShown] = useState(() => live?.peek() ?? "");
  useEffect(() => {
    if (!live) return;
    let frame = 0;
    const show = (): void => {
      frame = 0;
      setShown(live.peek());
    };
    const end = effect(() => {
      void live.value;
      frame ||= requestAnimationFrame(show);
    });
    return () => {
      end();
      cancelAnimationFrame(frame);
    };
  }, [live]);
  return live ? shown : "";
}
