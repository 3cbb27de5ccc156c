// What the user can do with the messages of the open session: change, delete, ask again,
// step through alternatives, and change the sends that wait.
import { isProblem, type Alternative, type Message } from "@loquat/client";
import { effect, signal, untracked, type Signal } from "@preact/signals";
import { t } from "../i18n/index.ts";
import type { App } from "./app.ts";
import { quoted } from "./blocks.ts";
import { sessionOf } from "./route.ts";
import type { Transcript } from "./transcript.ts";
import type { Queued } from "./types.ts";
import { contextOf } from "./usage.ts";

export const undoMs = 5000;

/** Choice is where an alternative stands among those at its index. */
export interface Choice {
  readonly at: number;
  readonly total: number;
}

interface Removal {
  readonly session: string;
  readonly ids: readonly string[];
}

export class Conversation {
  /** The alternatives of the session by the index at which they begin. */
  readonly alternatives: Signal<ReadonlyMap<number, readonly Alternative[]>> = signal(new Map());
  /** The id of the message that is being changed in its place. */
  readonly editing = signal("");
  /** The ids of messages that are deleted unless the user takes it back. */
  readonly removed: Signal<ReadonlySet<string>> = signal(new Set());
  /** The context of each model, in tokens. */
  readonly contexts: Signal<ReadonlyMap<string, number>> = signal(new Map());

  private session = "";
  private before: readonly Message[] = [];
  /** The transcript of the session, also while the user leaves it. */
  private transcript: Transcript | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private readonly removals = new Map<Removal, ReturnType<typeof setTimeout>>();
  private models: Promise<void> | undefined;

  constructor(private readonly app: App) {
    effect(() => {
      const transcript = app.transcript.value;
      const session = sessionOf(app.route.value) ?? "";
      if (session !== this.session) untracked(() => this.enter(session));
      if (!transcript?.loaded.value || !session) return;
      this.transcript = transcript;
      void transcript.rows.value; // which change with the messages
      void transcript.active.value;
      untracked(() => this.changed(transcript.messages));
    });
  }

  private enter(session: string): void {
    void this.settle();
    this.deleting = Promise.resolve(); // changes of another session need not wait for this one
    this.session = session;
    this.transcript = null;
    this.before = [];
    this.alternatives.value = new Map();
    this.editing.value = "";
    this.models = undefined;
  }

  /** changed loads the alternatives again if messages came in the place of others. */
  private changed(messages: readonly Message[]): void {
    const before = this.before;
    if (messages === before && this.running === this.app.busy.peek()) return;
    const replaced = before.length > 0 && messages[before.length - 1]?.id !== before[before.length - 1]?.id;
    const opened = before.length === 0 && messages.length > 0;
    const ended = this.running && !this.app.busy.peek() && this.alternatives.peek().size > 0;
    this.before = messages;
    this.running = this.app.busy.peek();
    if (!replaced && !opened && !ended) return;
    clearTimeout(this.timer);
    const isFirst = this.running && messages.length === 1; // probably a new chat, which has none
    this.timer = setTimeout(() => void this.load(), isFirst ? 500 : opened ? 0 : 100);
  }
  private running = false;

  private async load(): Promise<void> {
    const session = this.session;
    if (!session) return;
    const list = await this.app.wire.sdk.alternatives.list(session).then(({ alternatives }) => alternatives, () => null);
    if (!list || session !== this.session || this.steps) return;
    const map = new Map<number, Alternative[]>();
    for (const alternative of list) map.set(alternative.index, [...(map.get(alternative.index) ?? []), alternative]);
    this.alternatives.value = map;
  }

  /** choiceAt returns the place of what the session shows among the alternatives at an index. */
  choiceAt(index: number): Choice | null {
    const list = this.alternatives.value.get(index);
    const at = list?.findIndex((alternative) => alternative.in_place) ?? -1;
    if (!list?.length) return null;
    // What is being written is not an alternative yet.
    return at < 0 ? { at: list.length, total: list.length + 1 } : list.length > 1 ? { at, total: list.length } : null;
  }

  /** step shows the alternative before or after the one in place. Steps follow each other, and the choice shows the last one at once. */
  async step(index: number, by: -1 | 1): Promise<void> {
    const list = this.alternatives.peek().get(index);
    const next = list?.[this.choiceAt(index)!.at + by];
    if (!next) return;
    const { session } = this;
    this.steps++;
    this.alternatives.value = new Map(this.alternatives.peek()).set(index, list.map((one) => ({ ...one, in_place: one === next })));
    await (this.stepping = this.stepping.then(async () => {
      await this.settle();
      await this.app.attempt(this.app.wire.sdk.alternatives.switch(session, next.alternative_id));
    }));
    if (!--this.steps) await this.load();
  }
  private steps = 0;
  private stepping = Promise.resolve();

  /** save replaces the text of a message. It reports whether it was saved. */
  async save({ id }: Message, content: string): Promise<boolean> {
    const done = await this.app.attempt(this.at(id, (session, index, options) => this.app.wire.sdk.messages.modify(session, index, { content }, options)));
    if (done && this.editing.peek() === id) this.editing.value = "";
    return Boolean(done);
  }

  /** askAgain sends a message in the place of another one, which is kept as an alternative with all that follows. It reports whether it is on its way. */
  async askAgain({ id, metadata }: Message, content: string): Promise<boolean> {
    this.editing.value = "";
    const attachments = metadata?.attachments;
    const at = await this.settled(id);
    return at !== undefined && this.app.store(at.session, { content, ...(attachments?.length && { attachments }), delete_from: at.index, keep: true, stream_tools: true }, { ifMatch: at.ifMatch });
  }

  quote(text: string): void {
    const composer = this.app.composer.peek();
    const before = composer.text.peek().trimEnd();
    composer.write((before ? `${before}\n\n` : "") + quoted(text));
    this.app.ask("composer");
  }

  /** remove hides messages and deletes them after a while, unless the user takes that back. */
  remove(messages: readonly Message[]): void {
    const removal: Removal = { session: this.session, ids: messages.map((message) => message.id) };
    this.hide(removal.ids, true);
    this.removals.set(removal, setTimeout(() => void this.delete([removal]), undoMs));
    const undo = (): void => {
      const timer = this.removals.get(removal);
      if (timer === undefined) return;
      clearTimeout(timer);
      this.removals.delete(removal);
      this.hide(removal.ids, false);
    };
    this.app.notices.add({ kind: "info", text: t("transcript.deleted"), action: { label: t("undo"), run: undo } }, undoMs);
  }

  /** settle deletes at once what waits to be deleted, so that what comes next does not see it. */
  async settle(): Promise<void> {
    await this.delete([...this.removals.keys()]);
  }

  /** settled settles, and returns where a message is in its session then, and at which checkpoint. If it is gone, it says so and returns undefined. */
  async settled(id: string): Promise<{ readonly session: string; readonly index: number; readonly shown: () => Transcript | null; readonly ifMatch: string | undefined } | undefined> {
    const { session } = this;
    const shown = this.shown();
    await this.settle();
    const index = indexOf(this.left(shown), id);
    return index < 0 ? this.gone() : { session, index, shown, ifMatch: this.match(session, shown) };
  }

  private gone(): undefined {
    this.app.notices.add({ kind: "error", text: t("transcript.gone") });
  }

  /** at settles, and makes a call about a message by its index, if the session is as the page shows it: see asShown. If the message is gone, it says so and returns undefined. */
  async at<T>(id: string, call: (session: string, index: number, options: { ifMatch?: string | undefined }) => Promise<T>): Promise<T | undefined> {
    const at = await this.settled(id);
    return at && this.asShown(at.session, at.shown, async (messages, options) => {
      const index = indexOf(messages, id);
      return index < 0 ? this.gone() : call(at.session, index, options);
    });
  }

  /** shown returns what says later how the page shows the session that is open now, or showed it last. */
  private shown(): () => Transcript | null {
    const { session } = this;
    const before = this.transcript;
    return () => (this.session === session && this.transcript) || before;
  }

  /** left returns the messages that are not deleted. */
  private left(shown: () => Transcript | null): readonly Message[] {
    return (shown()?.messages ?? []).filter(({ id }) => !this.deleted.has(id));
  }

  /** match returns the checkpoint of what is shown, or of a later deletion of this page, whose messages are not among those that are left. */
  private match(session: string, shown: () => Transcript | null): string | undefined {
    const { checkpoint } = shown() ?? {};
    const own = this.deletedAt.get(session) ?? "";
    return checkpoint && own > checkpoint ? own : checkpoint;
  }

  /** asShown makes a change to messages by their indices, if the session is as the page shows it. Otherwise it makes it once more when the page shows what has changed. */
  private async asShown<T>(session: string, shown: () => Transcript | null, change: (messages: readonly Message[], options: { ifMatch?: string | undefined }) => Promise<T>): Promise<T> {
    const ifMatch = this.match(session, shown);
    const attempt = (): Promise<T> => change(this.left(shown), { ifMatch: this.match(session, shown) });
    return attempt().catch(async (thrown: unknown) => {
      if (!isProblem(thrown, "precondition_failed")) throw thrown;
      for (let i = 0; i < 20 && this.match(session, shown) === ifMatch; i++) await new Promise((done) => setTimeout(done, 50));
      return attempt();
    });
  }

  /** delete deletes the messages of removals in one call, and calls one after the other, because a deletion changes the indices of the messages after it. */
  private delete(removals: readonly Removal[]): Promise<void> {
    const due = removals.filter((removal) => {
      clearTimeout(this.removals.get(removal));
      return this.removals.delete(removal);
    });
    const { session } = this;
    const shown = this.shown();
    const ids = due.filter((removal) => removal.session === session).flatMap((removal) => removal.ids);
    return (this.deleting = this.deleting.then(async () => {
      const done = ids.length > 0 && (await this.app.attempt(this.asShown(session, shown, async (messages, options) => {
        const indices = messages.flatMap(({ id }, i) => (ids.includes(id) ? [i] : []));
        return indices.length === 0 || this.app.wire.sdk.messages.delete(session, indices, options);
      })));
      if (done) for (const id of ids) this.deleted.add(id);
      if (done && done !== true) this.deletedAt.set(session, done.cursor_event_id);
      this.hide(due.flatMap((removal) => removal.ids), false);
    }));
  }
  private deleting: Promise<void> = Promise.resolve();
  /** The ids of messages that the server has deleted. The page may still show them until it hears of that. */
  private readonly deleted = new Set<string>();
  /** The checkpoint of the last deletion in each session, of which the page may not have heard either. */
  private readonly deletedAt = new Map<string, string>();

  private hide(ids: readonly string[], hidden: boolean): void {
    const next = new Set(this.removed.peek());
    for (const id of ids) {
      if (hidden) next.add(id);
      else next.delete(id);
    }
    this.removed.value = next;
  }

  /** change replaces the text of a send that waits. */
  async change(queued: Queued, content: string): Promise<boolean> {
    const done = await this.app.attempt(this.app.wire.sdk.queue.patch(this.session, queued.request_id, { content }));
    return Boolean(done);
  }

  /** steer lets a send that waits go into the running reply, or wait again. */
  async steer(queued: Queued, steering: boolean): Promise<void> {
    await this.app.attempt(this.app.wire.sdk.queue.patch(this.session, queued.request_id, { on_busy: steering ? "steer" : "queue" }));
  }

  /** learnModels loads what the models of the session can take. It asks once for each session that is opened. */
  learnModels(): void {
    const session = this.session;
    if (!session) return;
    this.models ??= this.app.wire.sdk.models.list({ session_id: session }).then(
      (models) => {
        const next = new Map(this.contexts.peek());
        for (const model of models) {
          const length = contextOf(model);
          if (length) next.set(model.id, length);
        }
        this.contexts.value = next;
      },
      () => {}, // the gauge is not shown
    );
  }
}

const indexOf = (messages: readonly Message[], id: string): number => messages.findIndex((message) => message.id === id);
