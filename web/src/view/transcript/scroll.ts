// The scroll position of a transcript. It follows the end only while the user is there, and
// each session has a position of its own.
import { signal } from "@preact/signals";
import { atEnd, type Span } from "../../model/span.ts";

const close = 48;

interface Place {
  /** The row at the upper edge, and how far below the edge it begins. */
  readonly key: string;
  readonly offset: number;
  /** The rows that were rendered. */
  readonly span: Span;
  /** The row is marked, and gets the focus. */
  readonly mark?: boolean;
}

const places = new Map<string, Place>();

/** mark lets a row stand out for a moment. */
function mark(row: HTMLElement): void {
  row.tabIndex = -1;
  row.focus({ preventScroll: true });
  row.dataset.marked = "";
  setTimeout(() => delete row.dataset.marked, markMs);
}

const markMs = 2500;

export class Scroller {
  /** Whether the end is out of sight. */
  readonly away = signal(false);
  /** Whether earlier rows are needed. */
  readonly nearTop = signal(false);
  /** Whether later rows are needed. */
  readonly nearEnd = signal(false);
  /** The rows that are rendered. */
  span: Span;
  /** The key of the last row when the user was at the end. */
  seen = "";
  private box: HTMLElement | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private following = true;
  private last = 0;
  private held: { readonly element: Element; readonly top: number } | null = null;
  /** Where the user left the session. */
  private wanted: Place | null;

  constructor(private readonly session: string) {
    this.wanted = places.get(session) ?? null;
    this.span = this.wanted?.span ?? atEnd;
    this.following = this.wanted === null;
    this.away.value = !this.following;
  }

  attach(box: HTMLElement, inner: HTMLElement): () => void {
    this.box = box;
    const scrolled = (): void => this.scrolled();
    const resized = new ResizeObserver(() => this.resized());
    resized.observe(inner);
    resized.observe(box);
    // Some browsers scroll smoothly. Each row that comes in the first frames of that would bring the user back to
    // the end, so the wheel counts before the position has changed.
    const wheeled = (e: WheelEvent): void => {
      if (e.deltaY < 0 && !e.ctrlKey && box.scrollTop > 0) this.following = false;
    };
    box.addEventListener("scroll", scrolled, { passive: true });
    box.addEventListener("wheel", wheeled, { passive: true });
    return () => {
      resized.disconnect();
      box.removeEventListener("scroll", scrolled);
      box.removeEventListener("wheel", wheeled);
      clearTimeout(this.timer);
      this.remember();
      this.box = null;
    };
  }

  /** How far the end is below the visible part. */
  private get distance(): number {
    const box = this.box!;
    if (this.span.last !== null) return Infinity; // the end is not rendered
    return box.scrollHeight - box.clientHeight - box.scrollTop;
  }

  /** Whether the user edits a message in its place, which should stay in sight. */
  private get editing(): boolean {
    return this.box!.contains(document.activeElement) && document.activeElement instanceof HTMLTextAreaElement;
  }

  private scrolled(): void {
    const box = this.box;
    if (!box) return;
    const up = box.scrollTop < this.last - 1;
    const down = box.scrollTop > this.last + 1; // else the event is of a position that the page itself has set
    this.last = box.scrollTop;
    if (up && this.distance > 1) this.following = false;
    else if (down && this.distance <= close) this.following = true;
    this.away.value = !this.following && this.distance > close;
    this.look(box);
    if (up || this.following) this.wanted = null;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.remember(), 150);
  }

  private look(box: HTMLElement): void {
    this.nearTop.value = !this.wanted && box.scrollTop < 600 && box.scrollHeight > box.clientHeight;
    this.nearEnd.value = !this.wanted && this.span.last !== null && box.scrollHeight - box.clientHeight - box.scrollTop < 600;
  }

  private resized(): void {
    const box = this.box;
    if (!box) return;
    const wanted = this.wanted && this.rows().find((row) => row.dataset.key === this.wanted?.key);
    if (this.wanted && wanted) {
      box.scrollTop += wanted.getBoundingClientRect().top - box.getBoundingClientRect().top - this.wanted.offset;
      if (this.wanted.mark) mark(wanted);
      this.wanted = null;
    } else if ((this.following && !this.editing) || (this.wanted && this.rows().length)) {
      this.wanted = null; // also a row that is not there any more
      this.following = true;
      box.scrollTop = box.scrollHeight;
    }
    this.last = box.scrollTop;
    this.away.value = !this.following && this.distance > close;
    this.look(box);
  }

  /** goTo puts a row near the upper edge, as soon as it is rendered, and marks it. */
  goTo(key: string, span: Span): void {
    this.span = span;
    this.following = false;
    this.wanted = { key, offset: 24, span, mark: true };
    this.held = null;
  }

  /** arrive scrolls to the row of goTo, once it is rendered. */
  arrive(): void {
    if (this.wanted) this.resized();
  }

  private remember(): void {
    if (!this.box?.isConnected || this.wanted !== null) return;
    if (this.following) places.delete(this.session);
    else {
      const edge = this.box.getBoundingClientRect().top;
      const row = this.rows().find((element) => element.getBoundingClientRect().bottom > edge);
      if (row) places.set(this.session, { key: row.dataset.key ?? "", offset: row.getBoundingClientRect().top - edge, span: this.span });
    }
  }

  private rows(): HTMLElement[] {
    return [...(this.box?.querySelectorAll<HTMLElement>("[data-row]") ?? [])];
  }

  /** toEnd goes to the end and follows it. */
  toEnd(focus = false): void {
    this.following = true;
    this.away.value = false;
    this.span = atEnd;
    this.wanted = null;
    if (!this.box) return;
    this.box.scrollTop = this.box.scrollHeight;
    if (focus) this.box.focus({ preventScroll: true }); // the button that had it is gone
  }

  /** hold remembers where the row at the upper edge is, before rows in front of it come or go. */
  hold(): void {
    const edge = this.box?.getBoundingClientRect().top ?? 0;
    const element = this.rows().find((row) => row.getBoundingClientRect().bottom > edge);
    this.held = element ? { element, top: element.getBoundingClientRect().top } : null;
  }

  /** restore puts the row that was held back to its place. */
  restore(): void {
    const { box, held } = this;
    this.held = null;
    if (!box || !held?.element.isConnected) return;
    box.scrollTop += held.element.getBoundingClientRect().top - held.top;
    this.last = box.scrollTop;
  }
}
