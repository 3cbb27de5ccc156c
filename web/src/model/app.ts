// The state of the whole page. It owns all other parts of the model.
import { isProblem, newId, type ConnectionState, type FollowedSession, type Outbox, type OutboxEntry, type SessionState } from "@loquat/client";
import { batch, computed, effect, signal, untracked, type ReadonlySignal, type Signal } from "@preact/signals";
import { fileSize, t } from "../i18n/index.ts";
import { addressOf, maxImageBytes, maxPieces, piecesOf, type Chosen, type Piece } from "./attachments.ts";
import { Composer, type Refused, type Taken } from "./composer.ts";
import { Conversation } from "./conversation.ts";
import { memoryFiles, type Files } from "./files.ts";
import { Library } from "./library.ts";
import { SessionList } from "./list.ts";
import { Notices } from "./notices.ts";
import { Preferences } from "./preferences.ts";
import { explain } from "./problems.ts";
import { signalOf } from "./readable.ts";
import { formatRoute, sessionOf, type Route } from "./route.ts";
import { Settings } from "./settings.ts";
import type { Storage } from "./storage.ts";
import { Transcript } from "./transcript.ts";
import type { Agent, Attachment, Me, Message, Queued } from "./types.ts";
import { Users } from "./users.ts";
import { asProblem, type BusyMode, type Followed, type Problem, type Send, type Wire } from "./wire.ts";

/** Overlay is the layer above the page, of which at most one is open. */
type Overlay = "palette" | "shortcuts" | "settings" | "import" | "";

type PageState = "live" | "connecting" | "waiting" | "signed-out" | "stopped";

/** How long the page waits after a lost call that has to be made, in milliseconds. */
const againMs = 2000;

export class App {
  readonly preferences: Preferences;
  readonly users: Users;
  readonly notices = new Notices();
  readonly list: SessionList;
  readonly library: Library;
  readonly conversation: Conversation;
  readonly settings: Settings;

  readonly connection: ReadonlySignal<ConnectionState>;
  readonly outgoing: ReadonlySignal<readonly OutboxEntry[]>;
  readonly me: Signal<Me | null> = signal(null);
  readonly agents: Signal<readonly Agent[]> = signal([]);
  readonly route: Signal<Route> = signal({ at: "new" });
  readonly transcript: Signal<Transcript | null> = signal(null);
  /** Why the session of the route cannot be shown. */
  readonly problem: Signal<Problem | null> = signal(null);
  readonly composer: Signal<Composer>;
  readonly overlay: Signal<Overlay> = signal("");
  /** The side panel of the session, on wide screens. */
  readonly panel = signal(false);
  /** The list of sessions on narrow screens. */
  readonly drawer = signal(false);
  /** Whether the sign-in dialog is open. */
  readonly signIn = signal(false);
  /** The part of the page that asks for the focus. The number makes a repeated wish a new value. */
  readonly focus: Signal<{ readonly part: "composer" | "list" | "transcript"; readonly n: number }> = signal({ part: "composer", n: 0 });

  readonly readOnly: ReadonlySignal<boolean> = computed(() => this.me.value?.scope === "read");
  /** A token of one session sees only this session. */
  readonly onlySession: ReadonlySignal<string> = computed(() => (this.me.value?.scope === "session" ? (this.me.value.session_id ?? "") : ""));
  /** Whether the user may create chats, and so import them. */
  readonly mayCreate: ReadonlySignal<boolean> = computed(() => this.me.value?.scope === "full" || this.me.value?.scope === "user");
  /** Whether replies come from the scripted backend. */
  readonly scripted: ReadonlySignal<boolean> = computed(() => this.agents.value.some((agent) => agent.provider === "scripted"));
  readonly state: ReadonlySignal<PageState> = computed(() => pageState(this.connection.value));
  readonly busy: ReadonlySignal<boolean> = computed(() => Boolean(this.transcript.value?.active.value));
  /** The sends of the open session that it does not show yet. */
  readonly pending: ReadonlySignal<readonly OutboxEntry[]> = computed(() => this.outgoing.value.filter((entry) => entry.sessionId === sessionOf(this.route.value) && !entry.withdrawn && !this.shows(entry)));

  /** The sends of the open session that wait behind a reply. */
  readonly queued: ReadonlySignal<readonly Queued[]> = computed(() => this.transcript.value?.queue.value ?? []);

  /** The message that the transcript shows next, by its index. A repeated wish is a new object. */
  readonly target: Signal<{ readonly session: string; readonly index: number } | null> = signal(null);

  private readonly composers = new Map<string, Composer>();
  private stopFollowing: () => void = () => {};
  private started = false;

  constructor(
    readonly wire: Wire,
    storage: Storage,
    private readonly files: Files = memoryFiles(),
  ) {
    this.preferences = new Preferences(storage);
    this.users = new Users(storage);
    this.connection = signalOf(wire.connection);
    this.outgoing = signalOf(wire.outbox);
    this.list = new SessionList(wire, () => sessionOf(this.route.peek()));
    this.library = new Library(this);
    this.composer = signal(this.composerOf("new"));
    this.conversation = new Conversation(this);
    this.settings = new Settings(this);
  }

  /** start connects, and shows the session of the route. */
  start(): void {
    if (this.started) return;
    this.started = true;
    effect(() => {
      if (this.state.value === "signed-out") {
        this.out = this.signIn.value = true;
        this.wire.hold();
      } else if (this.out && this.state.value === "live") untracked(() => void this.signedIn()); // in another tab
    });
    effect(() => {
      if (this.composer.value.id === "new" && this.composer.value.ready.value && this.mayCreate.value) this.wire.expectSession();
    });
    this.show(this.route.peek());
    void this.identify();
    this.library.resume();
    this.settings.start();
  }

  /** identify learns who the user is and what the user may do. The list begins after that, because a token of one session has none. Without a connection it tries again. */
  private async identify(): Promise<void> {
    const later = (thrown: unknown): boolean => {
      clearTimeout(this.identifying);
      const again = /^(connection|unavailable|rate_limited)$/.test(asProblem(thrown).code);
      if (again) this.identifying = setTimeout(() => void this.identify(), againMs);
      return again;
    };
    try {
      const me = await this.wire.call<Me>("GET", "/auth/me");
      this.users.enter(me.user ?? "");
      if (this.users.changed) return this.reload();
      this.me.value = me;
      this.wire.begin();
    } catch (thrown) {
      if (isProblem(thrown, "unauthorized")) return; // the sign-in dialog is open
      if (!later(thrown)) this.wire.begin();
      this.me.value ??= { requires_token: false, scope: "full", browser: false }; // what is followed shows whether there is a connection
    }
    const only = this.onlySession.peek();
    if (only) this.go({ at: "session", id: only }, "replace");
    else this.list.show(this.route.peek().at === "archived", this.list.tag.peek());
    if (!only && this.me.peek()?.scope !== "user") void this.list.loadElements();
    this.agents.value = await this.wire.call<{ agents: Agent[] }>("GET", "/agents").then(({ agents }) => agents, (thrown) => (later(thrown), []));
  }
  private identifying: ReturnType<typeof setTimeout> | undefined;
  private out = false;

  /** signedIn goes on with the rights that the user now has. */
  async signedIn(): Promise<void> {
    this.out = this.signIn.value = false;
    this.start();
    await this.identify();
    if (this.users.changed) return;
    this.wire.retryNow();
    this.list.load();
    if (this.problem.peek()) this.reopen();
  }

  /** signOut ends the session of the browser. Without a connection it does nothing, and what is not sent yet stays. */
  async signOut(): Promise<void> {
    const done = this.wire.call("DELETE", "/auth/session").then(() => true, (thrown) => isProblem(thrown, "unauthorized") || Promise.reject(thrown));
    if (!(await this.attempt(done))) return;
    await this.wire.outbox.clear();
    this.reload(); // so that nothing of the user stays
  }

  /** How main.tsx writes the address of the next route: as a new entry of the history, the same once the page is idle, or instead of the present entry. */
  address: "push" | "later" | "replace" = "push";

  /** go shows a route; main.tsx writes it into the address. */
  go(route: Route, address: App["address"] = "push"): void {
    if (formatRoute(route) === formatRoute(this.route.peek())) return this.aim(route);
    this.address = address;
    this.show(route);
  }

  /** show shows a route that the address has already. */
  show(route: Route): void {
    const from = this.route.peek();
    const before = sessionOf(from);
    const id = sessionOf(route);
    const lists = route.at === "archived" || (from.at === "archived" && route.at === "new"); // only the list changes
    batch(() => {
      this.route.value = route;
      if (!lists) this.drawer.value = false;
      this.aim(route);
      this.composer.value = this.composerOf(id ?? "new");
      if (!id) this.leave();
    });
    if (!this.started) return;
    if (id && (id !== before || !this.transcript.peek())) this.follow(id);
    if (this.me.peek() && !this.onlySession.peek() && (route.at === "archived" || (route.at === "new" && this.list.archived.peek()))) this.list.show(route.at === "archived", "");
  }

  private aim(route: Route): void {
    this.target.value = route.at === "session" && route.message !== undefined ? { session: route.id, index: route.message } : null;
  }

  /** shows reports whether the open session has a send already. Its events may come before the answer to the send. */
  private shows({ id, status }: OutboxEntry): boolean {
    const transcript = this.transcript.value;
    return status !== "failed" && (transcript?.last.value?.requestId === id || this.queued.value.some((queued) => queued.request_id === id));
  }

  private leave(): void {
    this.stopFollowing();
    this.stopFollowing = () => {};
    this.transcript.value = null;
    this.problem.value = null;
  }

  /** reopen tries again to show the session of the route. */
  reopen(): void {
    const id = sessionOf(this.route.peek());
    if (id) this.follow(id);
  }

  /** follow opens a session. One that the outbox still has to create is shown empty until it exists. */
  private follow(id: string): void {
    this.leave();
    const transcript = new Transcript();
    this.transcript.value = transcript;
    this.list.read(id);
    let follower: Followed<FollowedSession> | undefined;
    const end = effect(() => {
      if (this.creates(id) || follower) return;
      const made = (follower = this.wire.session(id, this.wire.outbox.created(id)));
      made.subscribe((followed) => {
        if (this.transcript.peek() === transcript) this.changed(id, transcript, followed);
      });
    });
    this.stopFollowing = () => {
      end();
      follower?.close();
    };
  }

  /** creates reports whether the outbox still has to create a session. */
  private creates(id: string): boolean {
    return this.outgoing.value.some((entry) => entry.sessionId === id && entry.create);
  }

  private changed(id: string, transcript: Transcript, { status, state, error }: FollowedSession): void {
    if (status === "deleted") {
      return this.rescue(id);
    }
    if (status === "missing" || status === "failed") this.problem.value = error ?? null;
    // After a reload, the outbox may not have been read yet that has to create the session.
    if (status === "missing") void this.wire.outbox.ready.then(() => {
      if (this.transcript.peek() !== transcript) return;
      if (this.creates(id)) this.follow(id);
      else if (this.wire.outbox.of(id).length) this.rescue(id);
    });
    if (status !== "ready" || !state) return;
    this.problem.value = null;
    const ended = transcript.active.peek();
    transcript.update(state);
    this.wire.outbox.settle(state);
    if (ended && !transcript.active.peek()) this.ended(state);
  }

  /** rescue goes to a new session with what the user wrote in one that was deleted: the draft, and what was not sent. */
  private rescue(id: string): void {
    this.notices.add({ kind: "info", text: t("session.deleted_elsewhere") });
    const draft = this.composer.peek();
    this.go({ at: "new" }, "replace");
    draft.heir = this.composer.peek();
    draft.putBack(draft.take());
    draft.save();
    for (const entry of this.wire.outbox.of(id).reverse()) void this.takeBack(entry);
  }

  /** reload loads the page again; main.tsx does it. */
  reload: () => void = () => {};

  /** partFailed says that a part of the page cannot be loaded. With a connection, the server has another version of the page by now. */
  partFailed(): void {
    this.notices.add({ kind: "error", text: t("problem.part"), action: { label: t("retry"), run: this.reload } });
  }

  /** What the page does when a reply ends; main.tsx notifies the user. */
  onReply: (title: string, text: string) => void = () => {};

  /** download saves what an address of this server has as a file; main.tsx does it. */
  download: (url: string) => void = () => {};

  private ended(state: SessionState): void {
    const last = state.messages.at(-1);
    const title = state.session.metadata.title;
    this.onReply(typeof title === "string" ? title : "", last?.role === "assistant" ? last.content : "");
  }

  composerOf(id: string): Composer {
    let found = this.composers.get(id);
    if (!found) {
      const made = (found = new Composer(id, this.users.storage, this.files));
      this.composers.set(id, made);
      void made.restored.then(() => {
        const lost = made.lost.peek();
        if (lost.length) this.notices.add({ kind: "error", text: t("composer.lost", { n: lost.length, names: namesOf(lost) }) });
      });
    }
    return found;
  }

  /** keepDraft stores the draft again when another tab has sent, and so removed, its own at the same place. */
  keepDraft(): void {
    this.composer.peek().save();
  }

  /** attach adds files to the draft, and says which it does not take. */
  async attach(files: readonly Chosen[]): Promise<void> {
    if (!files.length || this.readOnly.peek()) return;
    const { refused, unkept } = await this.composer.peek().attach(files);
    for (const why of new Set(refused.map((file) => file.why))) {
      this.notices.add({ kind: "error", text: t(`composer.refused_${why}`, { names: namesOf(refused.filter((file: Refused) => file.why === why).map((file) => file.name)), max: maxPieces, size: fileSize(maxImageBytes) }) });
    }
    if (unkept.length) this.notices.add({ kind: "info", text: t("composer.unkept", { n: unkept.length }) });
    this.ask("composer");
  }

  /** attachAddress adds the address of an image. It returns false if the text is none. */
  attachAddress(text: string): boolean {
    const address = addressOf(text);
    if (!address || this.readOnly.peek()) return false;
    if (!this.composer.peek().refer(address, { type: "image", url: address })) this.notices.add({ kind: "error", text: t("composer.refused_count", { names: address, max: maxPieces }) });
    return true;
  }

  /** suggest sends a text in the place of the draft, which comes along into the new session. */
  suggest = (text: string): Promise<void> => this.give({ text, pieces: [] });

  /** send sends the draft. The box is empty from then on, so a second call sends nothing. */
  async send(mode?: BusyMode): Promise<void> {
    const composer = this.composer.peek();
    if (composer.ready.peek() && !this.readOnly.peek()) await this.give(composer.take(), mode);
  }

  private async give(taken: Taken, mode?: BusyMode): Promise<void> {
    const composer = this.composer.peek();
    const attachments = taken.pieces.flatMap((piece) => piece.attachment ?? []);
    const files = taken.pieces.flatMap(({ name, image }) => (image ? { image, ...(name && { name }) } : []));
    const send: Send = { content: taken.text, stream_tools: true, ...(attachments.length && { attachments }), ...((this.busy.peek() || this.pending.peek().length > 0) && { on_busy: this.busy.peek() ? (mode ?? this.preferences.get("busy")) : "queue" }) };
    const id = sessionOf(this.route.peek());
    const session = id ?? newId();
    if (!id) this.wire.expectSession(); // it may have been too long ago that the user began to write
    await this.conversation.settle();
    if (!(await this.store(session, send, { ...(!id && { create: composer.newSession() }), ...(files.length && { files }) }))) return composer.putBack(taken);
    composer.sent(taken);
    if (id || this.composer.peek() !== composer) return;
    this.composerOf(session).putBack(composer.take()); // what the user wrote meanwhile
    composer.save();
    this.go({ at: "session", id: session }, "later"); // browsers have much to do for a new address, and the first word is on its way
  }

  /** store gives a send to the outbox. It returns false if the browser cannot store it. */
  async store(...send: Parameters<Outbox["add"]>): Promise<boolean> {
    try {
      return Boolean(await this.wire.outbox.add(...send));
    } catch {
      this.notices.add({ kind: "error", text: t("composer.not_stored") });
      return false;
    }
  }

  /** editLast changes the last message of the user in its place. It reports whether there is one. */
  editLast(): boolean {
    const message = this.transcript.peek()?.messages.findLast(({ role, id }) => role === "user" && !this.conversation.removed.peek().has(id));
    if (!message || this.busy.peek() || this.readOnly.peek()) return false;
    this.conversation.editing.value = message.id;
    return true;
  }

  /** regenerate asks for the reply that begins with a message again and keeps the old one as an alternative. */
  regenerate(message: Message | undefined): void {
    if (message) void this.again({ keep: true }, message.id);
  }

  /** resend runs a request on the messages as they stand. */
  resend(): void {
    void this.again({});
  }

  /** continueReply asks for the rest of a reply that was cut. A backend answers only messages of users and results of tools. */
  continueReply(): void {
    if (this.transcript.peek()?.messages.at(-1)?.role !== "assistant") return this.resend();
    void this.again({ content: t("transcript.continue_text") });
  }

  /** again asks for another reply, instead of the message from and those after it if there is one. While a send is on its way it does nothing, so that a double click asks once. */
  private async again(send: Send, from?: string): Promise<void> {
    const id = sessionOf(this.route.peek());
    const sending = this.asking || this.busy.peek() || this.pending.peek().some(({ status }) => status !== "failed");
    if (!id || sending || this.readOnly.peek()) return;
    this.asking = true;
    try {
      const at = from ? await this.conversation.settled(from) : await this.conversation.settle();
      if (at || !from) await this.store(id, { ...send, ...(at && { delete_from: at.index }), stream_tools: true }, { ...(at && { ifMatch: at.ifMatch }) });
    } finally {
      this.asking = false;
    }
  }
  private asking = false;

  /** takeBack puts a send that did not arrive back into the message box. */
  async takeBack(entry: OutboxEntry): Promise<void> {
    const { id, sessionId, create } = entry;
    if (this.withdrawing.has(id)) return;
    this.withdrawing.add(id);
    const alone = create && this.wire.outbox.of(sessionId).length === 1; // the session does not exist before this send arrives
    if (alone) this.go({ at: "new" }, "replace");
    if (await this.wire.outbox.withdraw(id)) this.putBack(this.composerOf(alone ? "new" : sessionId), entry.send.content ?? "", piecesOf(entry));
    else if (alone) this.go({ at: "session", id: sessionId }, "replace");
    this.withdrawing.delete(id);
  }

  /** withdraw takes a send out of the queue and puts it back into the message box. One that has begun meanwhile is stopped, and its message stays. */
  async withdraw(queued: Queued): Promise<void> {
    const composer = this.composer.peek();
    const id = queued.request_id;
    if (this.withdrawing.has(id)) return;
    this.withdrawing.add(id);
    let lost = false;
    const done = await this.attempt(this.wire.sdk.cancel(id).catch((thrown) => {
      lost = asProblem(thrown).code === "connection";
      throw thrown;
    }));
    if (done?.status !== "cancelled") this.withdrawing.delete(id);
    if (lost) setTimeout(() => void this.withdraw(queued), againMs); // else the text could be nowhere
    if (done?.status === "cancelled") this.putBack(composer, queued.message.content, piecesOf({ id, send: { attachments: (queued.message.metadata?.attachments ?? []) as Attachment[] } }));
  }

  /** The sends that were taken back, or are being. */
  private readonly withdrawing = new Set<string>();

  private putBack(composer: Composer, text: string, pieces: readonly Piece[]): void {
    composer.putBack({ text, pieces });
    if (composer === this.composer.peek()) this.ask("composer");
  }

  async stop(): Promise<void> {
    const request = this.transcript.peek()?.active.peek();
    if (request) await this.attempt(this.wire.sdk.cancel(request));
  }

  /** attempt shows the problem of a call as a notice. It returns undefined if the call failed. */
  async attempt<T>(call: Promise<T>): Promise<T | undefined> {
    try {
      return await call;
    } catch (thrown) {
      this.notices.add({ kind: "error", text: explain(asProblem(thrown)) });
      return undefined;
    }
  }

  ask(part: "composer" | "list" | "transcript"): void {
    this.focus.value = { part, n: this.focus.peek().n + 1 };
  }
}

function pageState({ status, error }: ConnectionState): PageState {
  if (status === "stopped") return isProblem(error, "unauthorized") ? "signed-out" : "stopped";
  if (status === "waiting") return "waiting";
  return status === "live" ? "live" : "connecting";
}

/** namesOf names at most three files. */
const namesOf = (names: readonly string[]): string => names.slice(0, 3).map((name) => name || "?").join(", ") + (names.length > 3 ? ", …" : "");
