// The list of sessions: what the SDK follows, with the changes that are on their way.
import { elementText, shownElements, type FollowedList, type UIElement } from "@loquat/client";
import { computed, signal, type ReadonlySignal, type Signal } from "@preact/signals";
import { elementsOf } from "./elements.ts";
import { whenIdle } from "./idle.ts";
import type { Metadata, Summary } from "./types.ts";
import type { FollowedPages, Problem, Wire } from "./wire.ts";

export interface Entry {
  readonly id: string;
  readonly summary: Pick<Summary, "session_id" | "agent_id" | "updated_at" | "metadata" | "source_session_id">;
  readonly title: string;
  readonly pinned: boolean;
  readonly archived: boolean;
  readonly tags: readonly string[];
  readonly running: boolean;
  /** A reply ended while the session was not open. */
  readonly unread: boolean;
}

type GroupName = "pinned" | "today" | "yesterday" | "week" | "month";

export interface Group {
  readonly name: GroupName;
  readonly key: string;
  /** A moment of the group's month. */
  readonly time: number;
  readonly entries: readonly Entry[];
}

const day = 86_400_000;

const textsOf = (value: unknown): readonly string[] => (Array.isArray(value) ? value.filter((v): v is string => typeof v === "string") : []);

/** entryOf returns what the list shows of a session. */
export function entryOf(summary: Entry["summary"], running: boolean, unread: boolean): Entry {
  const { title, pinned, archived, tags } = summary.metadata as Metadata;
  return { id: summary.session_id, summary, title: typeof title === "string" ? title : "", pinned: pinned === true, archived: archived === true, tags: textsOf(tags), running, unread };
}

/** groupsOf divides sorted entries by the date of their last change. */
export function groupsOf(entries: readonly Entry[], now: number): Group[] {
  const midnight = new Date(now).setHours(0, 0, 0, 0);
  const groups: { name: GroupName; key: string; time: number; entries: Entry[] }[] = [];
  for (const entry of entries) {
    const time = Date.parse(entry.summary.updated_at) || 0;
    const [name, key] = groupOf(entry, time, midnight);
    const last = groups.at(-1);
    if (last?.key === key) last.entries.push(entry);
    else groups.push({ name, key, time, entries: [entry] });
  }
  return groups;
}

function groupOf(entry: Entry, time: number, midnight: number): [GroupName, string] {
  if (entry.pinned) return ["pinned", "pinned"];
  if (time >= midnight) return ["today", "today"];
  if (time >= midnight - day) return ["yesterday", "yesterday"];
  if (time >= midnight - 7 * day) return ["week", "week"];
  const date = new Date(time);
  return ["month", `${date.getFullYear()}-${date.getMonth() + 1}`];
}

/** Patch is a change of the metadata that the events do not have yet. */
interface Patch {
  readonly metadata: Metadata;
  readonly cursor: string;
}

const nothing: FollowedList = { status: "loading", list: undefined, more: false, error: undefined };

/** SessionList is the list that the page shows. */
export class SessionList {
  readonly archived = signal(false);
  readonly tag = signal("");
  /** Sessions that are about to be deleted, and are not shown. */
  readonly hidden: Signal<ReadonlySet<string>> = signal(new Set());
  /** What plugins show of each session. */
  readonly elements: Signal<readonly UIElement[]> = signal([]);
  /** The present time, for the groups; main.tsx sets it each minute. */
  readonly now: Signal<number>;

  /** The newest state, and the one that is shown. */
  private newest = nothing;
  private readonly followed: Signal<FollowedList> = signal(nothing);
  private due = false;
  private readonly unread: Signal<ReadonlySet<string>> = signal(new Set());
  private readonly patches: Signal<ReadonlyMap<string, Patch>> = signal(new Map());
  private readonly known = new WeakMap<object, Entry>();
  private follower: FollowedPages | null = null;

  readonly loaded = computed(() => this.followed.value.list !== undefined);
  readonly loading = computed(() => this.followed.value.status === "loading");
  readonly problem: ReadonlySignal<Problem | undefined> = computed(() => (this.followed.value.status === "failed" ? this.followed.value.error : undefined));
  readonly sorted: ReadonlySignal<readonly Entry[]> = computed(() => this.entries());
  readonly groups: ReadonlySignal<readonly Group[]> = computed(() => groupsOf(this.sorted.value, this.now.value));
  private readonly byId = computed(() => new Map(this.sorted.value.map((entry) => [entry.id, entry])));
  readonly tags: ReadonlySignal<readonly string[]> = computed(() => [...new Set(this.sorted.value.flatMap((entry) => entry.tags))].sort((a, b) => a.localeCompare(b)));

  constructor(
    private readonly wire: Wire,
    private readonly opened: () => string | null,
    now: () => number = Date.now,
    private readonly soon = whenIdle,
  ) {
    this.now = signal(now());
  }

  entry(id: string): Entry | undefined {
    return this.byId.value.get(id);
  }

  /** loadElements loads what plugins show in the list. Without a plugin, or without the right to ask, that is nothing. */
  async loadElements(): Promise<void> {
    this.elements.value = await this.wire.call("GET", "/application/ui-schema").then(elementsOf, () => []);
  }

  /** fields returns the texts that plugins show of a session. */
  fields(entry: Entry): string[] {
    const context = { session: entry.summary };
    return shownElements(this.elements.value, "session_list_field", context).map((element) => elementText(element, context)).filter((text): text is string => Boolean(text));
  }

  /** show chooses the sessions that are listed, and follows them. The old ones stay until the new ones are here. */
  show(archived: boolean, tag: string): void {
    if (this.follower && this.archived.peek() === archived && this.tag.peek() === tag) return;
    this.archived.value = archived;
    this.tag.value = tag;
    this.follower?.close();
    const follower = this.wire.sessions({ ...(archived && { archived: true }), ...(tag && { tag }) });
    this.follower = follower;
    follower.subscribe((state) => {
      if (this.follower === follower) this.take(state);
    });
  }

  load(): void {
    this.follower?.reload();
  }

  async loadMore(): Promise<void> {
    await this.follower?.loadMore().catch(() => {}); // the next scroll tries again
  }

  /** take takes the next state of the list. A message on its way and its reply go before the list, so changes are shown when the page is idle. */
  private take(state: FollowedList): void {
    const before = this.newest.list;
    if (before && state.list && before !== state.list) this.mark(before.sessions, state.list.sessions);
    this.newest = state.list ? state : { ...state, list: before };
    if (!before) return this.draw();
    if (this.due) return;
    this.due = true;
    this.soon(() => this.draw());
  }

  private draw(): void {
    this.due = false;
    this.followed.value = this.newest;
    this.forget();
  }

  /** mark marks the sessions whose reply has ended while they were not open. */
  private mark(before: readonly Summary[], after: readonly Summary[]): void {
    const running = new Set(before.filter((s) => s.active_request_id).map((s) => s.session_id));
    if (!running.size) return;
    const ended = after.filter((s) => running.has(s.session_id) && !s.active_request_id && s.session_id !== this.opened()).map((s) => s.session_id);
    if (ended.length) this.unread.value = new Set([...this.unread.peek(), ...ended]);
  }

  /** forget removes the patches that the events include. */
  private forget(): void {
    const patches = this.patches.peek();
    if (!patches.size) return;
    const cursors = new Map((this.followed.peek().list?.sessions ?? []).map((s) => [s.session_id, s.cursor_event_id]));
    const left = [...patches].filter(([id, patch]) => (cursors.get(id) ?? "~") <= patch.cursor);
    if (left.length < patches.size) this.patches.value = new Map(left);
  }

  private entries(): readonly Entry[] {
    const patches = this.patches.value;
    const hidden = this.hidden.value;
    const archived = this.archived.value;
    const made = (this.followed.value.list?.sessions ?? []).map((summary) => this.entryFor(summary, patches.get(summary.session_id)));
    const shown = made.filter((entry) => !hidden.has(entry.id) && entry.archived === archived);
    return patches.size ? [...shown.filter((entry) => entry.pinned), ...shown.filter((entry) => !entry.pinned)] : shown;
  }

  /** entryFor returns the same entry for the same session, so that its row is not rendered again. */
  private entryFor(summary: Summary, patch: Patch | undefined): Entry {
    const unread = this.unread.value.has(summary.session_id);
    const running = summary.active_request_id !== undefined;
    const known = this.known.get(summary);
    if (known && !patch && known.unread === unread) return known;
    const merged = patch ? { ...summary, metadata: withoutNull({ ...summary.metadata, ...patch.metadata }) } : summary;
    const entry = entryOf(merged, running, unread);
    if (!patch) this.known.set(summary, entry);
    return entry;
  }

  /** patch shows a change of the metadata before the server has answered. It returns a function that takes the change back. */
  patch(id: string, metadata: Metadata): () => void {
    const summary = this.followed.peek().list?.sessions.find((s) => s.session_id === id);
    if (!summary) return () => {};
    const patch = { metadata: { ...this.patches.peek().get(id)?.metadata, ...metadata }, cursor: summary.cursor_event_id };
    this.patches.value = new Map(this.patches.peek()).set(id, patch);
    return () => {
      if (this.patches.peek().get(id) === patch) this.patches.value = new Map([...this.patches.peek()].filter(([key]) => key !== id));
    };
  }

  read(id: string): void {
    if (this.unread.peek().has(id)) this.unread.value = new Set([...this.unread.peek()].filter((other) => other !== id));
  }
}

const withoutNull = (metadata: Metadata): { [key: string]: unknown } => Object.fromEntries(Object.entries(metadata).filter(([, value]) => value !== null));
