import { type Signal, signal } from "@preact/signals";
import { useEffect, useId, useMemo, useRef, useState } from "preact/hooks";
import { BlockView, Blocks, Parts } from "./block.tsx";
import { type Block, MarkdownDocument, type Note } from "./document.ts";
import { loadNames, missedNames } from "./entities.ts";
import { type Environment, EnvironmentContext } from "./environment.ts";
import { noteId } from "./inline.tsx";
import { type Texts, englishTexts, format } from "./texts.ts";

export interface MarkdownProps {
  /** The text so far. It may grow, or be replaced. */
  readonly text: string;
  readonly texts?: Texts;
  /** Added to the level of each heading; 2 by default. */
  readonly headingShift?: number;
  /** Line ends of the source are shown as line ends, as people expect of what they typed. */
  readonly lineEnds?: boolean;
  readonly frameUrl?: string;
  readonly onLeave?: (url: string) => boolean;
  readonly asset?: (src: string) => string | null;
}

/** Markdown shows hostile Markdown. Growth is cheap: a finished block is not touched again. */
export function Markdown(props: MarkdownProps) {
  const { document: doc, numbers, shown } = useDocument(props.text);
  const idPrefix = useId();
  const { texts = englishTexts, headingShift = 2, lineEnds = false, frameUrl = "/frame/mermaid.html", onLeave, asset } = props;
  const environment = useMemo<Environment>(
    () => ({ texts, headingShift, lineEnds, frameUrl, onLeave, asset, idPrefix, numbers }),
    [texts, headingShift, lineEnds, frameUrl, onLeave, asset, idPrefix, numbers],
  );
  return (
    <EnvironmentContext.Provider value={environment}>
      <div class="markdown" aria-busy={shown !== props.text}>
        <Parts of={doc.blocks} view={blockView} />
        {doc.notes.length > 0 && <Notes notes={doc.notes} texts={texts} idPrefix={idPrefix} />}
      </div>
    </EnvironmentContext.Provider>
  );
}

function blockView(block: Block) {
  return <BlockView key={block.key} node={block.node} />;
}

/** Of the time of the main thread, parsing takes at most one part in this number. */
const share = 5;
/** A parse that takes less than this many milliseconds never waits. */
const cheap = 3;

interface Shown {
  document: MarkdownDocument;
  readonly numbers: Signal<ReadonlyMap<string, number>>;
  /** The text that is parsed. */
  shown: string;
  /** When the next parse may begin. */
  next: number;
  /** Whether the text has a named character that was not known when it was parsed. */
  incomplete: boolean;
}

/**
 * useDocument parses the text. If parsing takes long, because one block is very long, parses are rarer: the text is
 * then shown a little later, and the last text is always shown.
 */
function useDocument(text: string): Shown {
  const state = useRef<Shown | null>(null);
  state.current ??= { document: new MarkdownDocument(), numbers: signal(new Map()), next: 0, shown: "", incomplete: false };
  const [, redraw] = useState(0);
  const { current } = state;
  const now = performance.now();
  const wait = current.shown === text ? 0 : current.next - now;
  if (current.shown !== text && wait <= 0) {
    const missed = missedNames();
    current.document.update(text);
    current.shown = text;
    current.incomplete ||= missedNames() > missed;
    const end = performance.now();
    current.next = end - now < cheap ? 0 : end + (end - now) * (share - 1);
    const numbers = new Map(current.document.notes.map((note) => [note.label, note.number]));
    if (!sameNumbers(numbers, current.numbers.peek())) current.numbers.value = numbers;
  }
  useEffect(() => {
    if (current.incomplete) return completeNames(current, () => redraw((n) => n + 1));
  }, [current.incomplete]);
  useEffect(() => {
    if (current.shown === text) return;
    const timer = setTimeout(() => redraw((n) => n + 1), Math.max(0, current.next - performance.now()));
    return () => clearTimeout(timer);
  });
  return current;
}

/** completeNames parses the text again once all named characters are known. It returns how to cancel that. */
function completeNames(shown: Shown, redraw: () => void): () => void {
  let here = true;
  void loadNames().then((loaded) => {
    if (!here) return;
    shown.incomplete = false;
    if (!loaded) return;
    shown.document = new MarkdownDocument();
    shown.shown = "";
    shown.next = 0;
    redraw();
  });
  return () => void (here = false);
}

function sameNumbers(a: ReadonlyMap<string, number>, b: ReadonlyMap<string, number>): boolean {
  if (a.size !== b.size) return false;
  for (const [label, number] of a) if (b.get(label) !== number) return false;
  return true;
}

function Notes({ notes, texts, idPrefix }: { notes: readonly Note[]; texts: Texts; idPrefix: string }) {
  return (
    <section class="md-notes" aria-label={texts.footnotes}>
      <ol dir="auto">
        {notes.map((note) => (
          <li key={note.label} id={noteId(idPrefix, note.number)} tabIndex={-1}>
            <Blocks nodes={note.children} />
            {note.references > 0 && <Back note={note} texts={texts} idPrefix={idPrefix} />}
          </li>
        ))}
      </ol>
    </section>
  );
}

function Back({ note, texts, idPrefix }: { note: Note; texts: Texts; idPrefix: string }) {
  const id = noteId(idPrefix, note.number);
  const back = (event: MouseEvent) => {
    const first = (event.currentTarget as Element).closest(".markdown")?.querySelector<HTMLElement>(`sup > [data-note="${CSS.escape(id)}"]`);
    event.preventDefault();
    first?.focus();
  };
  return (
    <a class="md-back" href={`#${id}`} aria-label={`${texts.backToText} (${format(texts.footnote, { number: note.number })})`} onClick={back}>
      ↩
    </a>
  );
}

