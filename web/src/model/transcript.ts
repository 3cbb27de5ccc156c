// The rows of a transcript: messages, and replies that join the phases of a request with
// the tools that they called. Rows and parts that did not change stay the same objects, so
// the view renders only what changed. Text that is being written is in a signal of its own.
import { isRunning, reasoningOf, type Draft, type RequestState, type SessionInfo, type SessionState, type ToolRun } from "@loquat/client";
import { batch, signal, type ReadonlySignal, type Signal } from "@preact/signals";
import type { Message, Queued } from "./types.ts";

export interface TextPart {
  readonly kind: "text";
  readonly key: string;
  readonly text: string;
  /** The text so far, while it is being written. */
  readonly live?: ReadonlySignal<string>;
  readonly message?: Message;
  readonly index?: number;
}

export interface ReasoningPart {
  readonly kind: "reasoning";
  readonly key: string;
  readonly text: string;
  readonly live?: ReadonlySignal<string>;
  /** When the reasoning began and ended, in milliseconds since 1970, if the page saw it. */
  readonly began?: number;
  readonly ended?: number;
}

export interface ToolCall {
  readonly id: string;
  readonly name: string;
  readonly arguments: string;
  /** The output so far, while the tool runs. */
  readonly live?: ReadonlySignal<ToolRun | undefined>;
  readonly result?: Message;
  readonly index?: number;
}

export interface ToolsPart {
  readonly kind: "tools";
  readonly key: string;
  readonly calls: readonly ToolCall[];
}

export type Part = TextPart | ReasoningPart | ToolsPart;

/** MessageRow is a message of a user, the system, or a tool without a call. */
export interface MessageRow {
  readonly kind: "message";
  readonly key: string;
  readonly message: Message;
  readonly index: number;
}

/** ReplyRow is what the model wrote in answer to one message: messages from `from` to `to`. */
export interface ReplyRow {
  readonly kind: "reply";
  readonly key: string;
  readonly parts: readonly Part[];
  readonly from: number;
  readonly to: number;
  /** The last message of the model, which has usage and remarks. */
  readonly message?: Message;
  readonly running: boolean;
}

export type Row = MessageRow | ReplyRow;

/** Phase says what the running request does. */
type Phase = "idle" | "waiting" | "thinking" | "writing" | "tools" | "retrying";

const text = (value: unknown): string => (typeof value === "string" ? value : "");

interface Call {
  readonly id?: unknown;
  readonly function?: { readonly name?: unknown; readonly arguments?: unknown };
  readonly custom?: { readonly name?: unknown; readonly input?: unknown };
}

function callsOf(message: Message): ToolCall[] {
  const calls = message.metadata?.tool_calls;
  if (!Array.isArray(calls)) return [];
  return (calls as Call[]).map((call) => ({
    id: text(call?.id),
    name: text(call?.custom?.name) || text(call?.function?.name),
    arguments: call?.custom ? text(call.custom.input) : text(call?.function?.arguments),
  }));
}

/** Retry says when the server calls the backend again, in milliseconds since 1970. */
export interface Retry {
  readonly at: number;
  readonly attempt: number;
  readonly cause: string;
}

const activeOf = (state: SessionState): string => (isRunning(state) ? (state.request?.requestId ?? "") : "");

/** Transcript turns the states of one session into rows. */
export class Transcript {
  readonly rows: Signal<readonly Row[]> = signal([]);
  readonly about: Signal<SessionInfo | null> = signal(null);
  readonly active = signal("");
  readonly phase: Signal<Phase> = signal("idle");
  readonly retry: Signal<Retry | null> = signal(null);
  readonly last: Signal<RequestState | null> = signal(null);
  readonly queue: Signal<readonly Queued[]> = signal([]);
  readonly deleted = signal(false);
  readonly loaded = signal(false);
  /** When the running request began, in milliseconds since 1970, as far as the page knows. */
  readonly since = signal(0);
  /** When the phase began, in milliseconds since 1970. */
  readonly phaseSince = signal(0);
  messages: readonly Message[] = [];

  private view: SessionState | null = null;
  private readonly text = signal("");
  private readonly reasoning = signal("");
  private readonly outputs = new Map<string, Signal<ToolRun | undefined>>();
  /** The keys of texts that were written while the page followed. */
  private readonly keys = new Map<string, string>();
  private readonly thought = new Map<string, { began: number; ended?: number }>();
  private drafts = 0;

  constructor(private readonly now: () => number = Date.now) {}

  /** The newest checkpoint of what is shown. */
  get checkpoint(): string | undefined {
    return this.view?.checkpoint;
  }

  /** update shows the next state of the session. */
  update(view: SessionState): void {
    const before = this.view;
    this.view = view;
    batch(() => {
      this.stream(before, view);
      if (!before || this.structureChanged(before, view)) this.rebuild(before, view);
      this.about.value = view.session;
      const active = activeOf(view);
      if (active !== this.active.peek()) this.since.value = active ? this.now() : 0;
      this.active.value = active;
      const retry = view.request?.retry;
      if (retry !== before?.request?.retry) this.retry.value = retry ? { at: this.now() + retry.delay_seconds * 1000, attempt: retry.attempt, cause: retry.cause } : null;
      this.last.value = view.request ?? null;
      this.queue.value = view.queue;
      this.deleted.value = view.deleted;
      const phase = this.phaseOf(view);
      if (phase !== this.phase.peek()) this.phaseSince.value = this.now();
      this.phase.value = phase;
      this.loaded.value = true;
    });
  }

  private stream(before: SessionState | null, view: SessionState): void {
    const draft = view.draft;
    if (draft && draft !== before?.draft) {
      if (!before?.draft || before.draft.requestId !== draft.requestId || this.next) this.beginDraft();
      const thought = draft.reasoning;
      if (thought && !this.thought.has(this.key)) this.thought.set(this.key, { began: this.now() });
      const timing = this.thought.get(this.key);
      if (draft.content && timing && timing.ended === undefined) this.thought.set(this.key, { ...timing, ended: this.now() });
      this.text.value = draft.content;
      this.reasoning.value = thought;
    }
    if (view.tools !== before?.tools) for (const [id, run] of Object.entries(view.tools)) this.outputOf(id).value = run;
  }

  private next = true;
  private get key(): string {
    return `d${this.drafts}`;
  }

  private beginDraft(): void {
    this.drafts++;
    this.next = false;
  }

  private outputOf(id: string): Signal<ToolRun | undefined> {
    let found = this.outputs.get(id);
    if (!found) this.outputs.set(id, (found = signal<ToolRun | undefined>(undefined)));
    return found;
  }

  private structureChanged(before: SessionState, view: SessionState): boolean {
    const shape = (draft: Draft | undefined): string => (draft ? `${draft.requestId} ${Boolean(draft.content)} ${Boolean(draft.reasoning)}` : "");
    return before.messages !== view.messages || activeOf(before) !== activeOf(view) || before.deleted !== view.deleted || shape(before.draft) !== shape(view.draft);
  }

  /** rebuild makes the rows again and keeps those that are equal to a row before. */
  private rebuild(before: SessionState | null, view: SessionState): void {
    if (before?.draft && !view.draft) this.settle(before, view);
    this.messages = view.messages;
    const made = this.rowsOf(view);
    const old = new Map(this.rows.peek().map((row) => [row.key, row]));
    this.rows.value = made.map((row) => {
      const known = old.get(row.key);
      return known && sameRow(known, row) ? known : row.kind === "reply" && known?.kind === "reply" ? { ...row, parts: keepParts(known.parts, row.parts) } : row;
    });
  }

  /** settle gives a message that has just been written the key of its draft, so that the view keeps what it rendered. */
  private settle(before: SessionState, view: SessionState): void {
    const known = new Set(before.messages.map((m) => m.id));
    const written = view.messages.find((m) => m.role === "assistant" && !known.has(m.id));
    if (written) this.keys.set(written.id, this.key);
    const timing = this.thought.get(this.key);
    if (timing && timing.ended === undefined) this.thought.set(this.key, { ...timing, ended: this.now() });
    this.next = true;
  }

  private rowsOf(view: SessionState): Row[] {
    const rows: Row[] = [];
    const running = isRunning(view);
    const called = new Set<string>();
    let reply: { parts: Part[]; from: number; to: number; message?: Message; key: string } | null = null;
    const close = (running: boolean): void => {
      if (reply) rows.push({ kind: "reply", running, ...reply });
      reply = null;
    };
    view.messages.forEach((message, index) => {
      if (message.role === "assistant") {
        reply ??= { parts: [], from: index, to: index, key: `reply ${view.messages[index - 1]?.id ?? ""}` };
        this.addPhase(reply.parts, view.messages, index, called, running);
        reply.message = message;
        reply.to = index;
      } else if (message.role === "tool" && reply && called.has(text(message.metadata?.tool_call_id))) {
        reply.to = index;
      } else {
        close(false);
        rows.push({ kind: "message", key: message.id, message, index });
      }
    });
    if (running && view.draft) {
      const end = view.messages.length;
      reply ??= { parts: [], from: end, to: end, key: `reply ${view.messages[end - 1]?.id ?? ""}` };
      (reply as { parts: Part[] }).parts.push(...this.draftParts(view.draft));
    }
    close(running);
    return rows;
  }

  /** addPhase adds a message of the assistant with the results of its calls: those before the next one, because backends use ids of calls again. */
  private addPhase(parts: Part[], messages: readonly Message[], index: number, called: Set<string>, running: boolean): void {
    const message = messages[index]!;
    const results = new Map<string, number>();
    for (let at = index + 1; messages[at] && messages[at]!.role !== "assistant"; at++) results.set(text(messages[at]!.metadata?.tool_call_id), at);
    const key = this.keys.get(message.id) ?? message.id;
    const thought = reasoningOf(message);
    if (thought) parts.push({ kind: "reasoning", key: `${key} reasoning`, text: thought, ...this.thought.get(key) });
    if (message.content) parts.push({ kind: "text", key: `${key} text`, text: message.content, message, index });
    const calls = callsOf(message);
    if (!calls.length) return;
    const made = calls.map((call): ToolCall => {
      called.add(call.id);
      const at = results.get(call.id);
      if (at) return { ...call, result: messages[at]!, index: at };
      return running ? { ...call, live: this.outputOf(call.id) } : call;
    });
    parts.push({ kind: "tools", key: `${key} tools`, calls: made });
  }

  private draftParts(draft: Draft): Part[] {
    const parts: Part[] = [];
    const thought = draft.reasoning;
    const timing = this.thought.get(this.key);
    if (thought) parts.push(draft.content ? { kind: "reasoning", key: `${this.key} reasoning`, text: thought, ...timing } : { kind: "reasoning", key: `${this.key} reasoning`, text: "", live: this.reasoning, ...timing });
    if (draft.content) parts.push({ kind: "text", key: `${this.key} text`, text: "", live: this.text });
    return parts;
  }

  private phaseOf(view: SessionState): Phase {
    if (!isRunning(view)) return "idle";
    if (view.request?.retry) return "retrying";
    if (view.draft) return view.draft.content ? "writing" : "thinking";
    const row = this.rows.peek().at(-1);
    const part = row?.kind === "reply" ? row.parts.at(-1) : undefined;
    return part?.kind === "tools" && part.calls.some((call) => !call.result) ? "tools" : "waiting";
  }
}

function sameRow(a: Row, b: Row): boolean {
  if (a.kind === "message") return b.kind === "message" && a.message === b.message && a.index === b.index;
  if (b.kind === "message") return false;
  return a.running === b.running && a.from === b.from && a.to === b.to && a.message === b.message && a.parts.length === b.parts.length && a.parts.every((part, i) => samePart(part, b.parts[i]!));
}

function samePart(a: Part, b: Part): boolean {
  if (a.kind !== b.kind || a.key !== b.key) return false;
  if (a.kind === "tools") return b.kind === "tools" && a.calls.length === b.calls.length && a.calls.every((call, i) => sameCall(call, b.calls[i]!));
  if (b.kind === "tools" || a.text !== b.text || a.live !== b.live) return false;
  if (a.kind === "text") return b.kind === "text" && a.message === b.message && a.index === b.index;
  return b.kind === "reasoning" && a.ended === b.ended;
}

const sameCall = (a: ToolCall, b: ToolCall): boolean => a.id === b.id && a.name === b.name && a.arguments === b.arguments && a.result === b.result && a.live === b.live && a.index === b.index;

/** keepParts returns the new parts, with those that did not change as the objects that they were. */
function keepParts(before: readonly Part[], parts: readonly Part[]): readonly Part[] {
  const known = new Map(before.map((part) => [part.key, part]));
  return parts.map((part) => {
    const old = known.get(part.key);
    return old && samePart(old, part) ? old : part;
  });
}
