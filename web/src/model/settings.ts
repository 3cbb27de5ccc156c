// What plugins show with the open session, the values of its settings, and its actions.
import { effectiveConfig, isProblem, newId, shownElements, type ConfigValue, type ElementContext, type Model, type UIElement } from "@loquat/client";
import { batch, computed, effect, signal, type ReadonlySignal, type Signal } from "@preact/signals";
import { t } from "../i18n/index.ts";
import type { App } from "./app.ts";
import { actionBody, actionLabel, actionsOf, attachmentKindsOf, elementsOf, faultsOf, inputsOf, labelOf, optionsOf, textsOf, withValue, type ActionElement, type AttachmentKinds, type Option, type ShownText } from "./elements.ts";
import { explain } from "./problems.ts";
import { sessionOf } from "./route.ts";
import type { Message } from "./types.ts";
import { asProblem, sessionPath, type Problem } from "./wire.ts";

type Values = { readonly [key: string]: ConfigValue };
type Json = { readonly [key: string]: unknown };

/** Asked is an action whose dialog is open. */
export interface Asked {
  readonly element: ActionElement;
  readonly message: MessageAt | null;
}

export interface MessageAt {
  readonly message: Message;
  readonly index: number;
}

/** Picker is the choice of a model. */
interface Picker {
  readonly key: string;
  readonly label: string;
  /** The model that is used, or "" if it is not known. */
  readonly value: string;
  /** The options of the setting; without them the backend is asked for its models. */
  readonly options: readonly Option[];
}

/** How long the answer to an action may take, in milliseconds: as long as the server lets it run. */
const actionMs = 15 * 60_000;

/** How long the elements of a session wait for the first word of a reply, in milliseconds. */
const afterWordMs = 200;

/** Settings has the elements of the open session. They are loaded again when the agent or the overrides change, not with each event. */
export class Settings {
  readonly elements: Signal<readonly UIElement[]> = signal([]);
  readonly values: Signal<Values> = signal({});
  /** Whether the elements of the open session are here. */
  readonly loaded = signal(false);
  readonly problem: Signal<Problem | null> = signal(null);
  /** The settings that are being saved. */
  readonly saving: Signal<ReadonlySet<string>> = signal(new Set());
  /** What the server said about settings that it refused, by key. */
  readonly refused: Signal<{ readonly [key: string]: string }> = signal({});
  /** The setting that was saved last. */
  readonly saved: Signal<{ readonly key: string; readonly n: number }> = signal({ key: "", n: 0 });
  /** The actions that run: their labels by plugin and element. */
  readonly running: Signal<ReadonlyMap<string, string>> = signal(new Map());
  readonly asked: Signal<Asked | null> = signal(null);
  /** The result of an action that the user looks at. */
  readonly result: Signal<{ readonly label: string; readonly value: unknown } | null> = signal(null);

  readonly config: ReadonlySignal<{ [key: string]: unknown }> = computed(() => effectiveConfig(this.elements.value, this.values.value));
  readonly attachmentKinds: ReadonlySignal<AttachmentKinds> = computed(() => (this.loaded.value ? attachmentKindsOf(this.elements.value, this.config.value) : { known: false, images: true, urls: true, accept: "image/*" }));
  readonly status: ReadonlySignal<readonly ShownText[]> = computed(() => this.statusTexts());
  readonly picker: ReadonlySignal<Picker | null> = computed(() => this.findPicker());

  private readonly session = computed((): Json | null => {
    const transcript = this.app.transcript.value;
    const about = transcript?.about.value;
    return about && transcript?.rows.value ? { ...about, messages: transcript.messages } : null;
  });
  /** The session that is open and loaded, with what its elements depend on. */
  private readonly basis = computed((): string => {
    const id = sessionOf(this.app.route.value);
    const about = this.app.transcript.value?.about.value;
    return id && about?.session_id === id ? JSON.stringify([id, about.agent_id, about.metadata.overrides ?? null]) : "";
  });
  /** The basis, once it is the turn of the elements: a message that is being sent goes before them, unless it has images to upload. */
  private readonly turn = computed((): string => {
    const sending = !this.loaded.value && this.app.pending.value.some(({ status, files }) => status === "sending" && !files?.length);
    return sending ? "" : this.basis.value;
  });
  /** The session whose elements these are. */
  of = "";
  private loads = 0;
  private tail: Promise<unknown> = Promise.resolve();

  constructor(private readonly app: App) {}

  /** start loads the elements from now on. */
  start(): void {
    effect(() => {
      const id = sessionOf(this.app.route.value);
      if (id !== this.of) this.clear(id ?? "");
      if (!this.turn.value) return;
      if (this.loaded.peek() || this.app.transcript.peek()?.phase.peek() !== "waiting") return void this.load();
      const timer = setTimeout(() => void this.load(), afterWordMs);
      return () => clearTimeout(timer);
    });
  }

  private clear(id: string): void {
    this.of = id;
    this.choosing = undefined;
    this.loads++;
    batch(() => {
      this.elements.value = [];
      this.values.value = {};
      this.loaded.value = false;
      this.problem.value = null;
      this.refused.value = {};
      this.asked.value = null;
    });
  }

  /** load loads the elements and values. The answer to an earlier call does not replace that to a later one. */
  async load(): Promise<void> {
    const id = this.of;
    const n = ++this.loads;
    if (!id) return;
    try {
      const [core, application, config] = await Promise.all([this.optional(sessionPath(id, "/ui-schema")), this.optional(sessionPath(id, "/application/ui-schema")), this.optional(sessionPath(id, "/config"))]);
      if (n !== this.loads) return;
      batch(() => {
        this.elements.value = [...elementsOf(core), ...elementsOf(application)];
        this.values.value = (config as { values?: Values } | null)?.values ?? {};
        this.loaded.value = true;
        this.problem.value = null;
      });
    } catch (thrown) {
      if (n === this.loads) this.problem.value = asProblem(thrown);
    }
  }

  /** optional returns null for what the server does not have, or does not allow to this user. */
  private async optional(path: string): Promise<unknown> {
    try {
      return await this.app.wire.call("GET", path);
    } catch (thrown) {
      if (isProblem(thrown, "not_found", "forbidden")) return null;
      throw thrown;
    }
  }

  /**
   * set saves a setting of a session; null removes its override. It returns whether the server took it. Each change
   * waits for the one before. If it fails after the user has left the session, a notice shows the label and the error.
   */
  set(key: string, value: unknown, id = this.of, label = key): Promise<boolean> {
    if (!id || this.app.readOnly.peek()) return Promise.resolve(false);
    const done = this.tail.then(() => this.put(id, key, value, label));
    this.tail = done;
    return done;
  }

  private async put(id: string, key: string, value: unknown, label: string): Promise<boolean> {
    const mark = (on: boolean): void => void (this.saving.value = new Set([...this.saving.peek()].filter((k) => k !== key).concat(on ? key : [])));
    mark(true);
    try {
      await this.app.wire.call("PUT", sessionPath(id, `/config/${encodeURIComponent(key)}`), { body: { value: value ?? null }, key: newId() });
      if (id !== this.of) return true;
      const { [key]: _, ...others } = this.refused.peek();
      this.refused.value = others;
      await this.load();
      this.saved.value = { key, n: this.saved.peek().n + 1 };
      return true;
    } catch (thrown) {
      const problem = asProblem(thrown);
      const text = "errors" in problem && problem.errors.length ? problem.errors.map((e) => e.message).join(" ") : explain(problem);
      if (id === this.of) this.refused.value = { ...this.refused.peek(), [key]: text };
      else this.app.notices.add({ kind: "error", text: `${label}: ${text}` });
      return false;
    } finally {
      mark(false);
    }
  }

  /** context returns the roots of paths. The session and the config are read when a path needs them, so that a signal depends on no more. */
  private context(at: MessageAt | null): ElementContext {
    const { session, config } = this;
    return {
      get session() { return session.value; },
      get config() { return config.value; },
      ...(at && { message: { ...at.message, index: at.index } }),
    };
  }

  /** footers returns what plugins show below a message. */
  footers = (at: MessageAt): readonly ShownText[] => textsOf(this.elements.value, "message_footer", this.context(at));

  /** statusTexts returns what plugins say about the last reply, without what is shown below the reply. */
  private statusTexts(): readonly ShownText[] {
    const transcript = this.app.transcript.value;
    if (!transcript?.rows.value.length) return [];
    const index = transcript.messages.findLastIndex((m) => m.role === "assistant");
    const message = transcript.messages[index];
    if (!message) return [];
    const below = new Set<unknown>([message.metadata?.model, ...this.footers({ message, index }).map(({ text }) => text)]);
    return textsOf(this.elements.value, "status_bar", this.context({ message, index })).filter(({ text }) => !below.has(text));
  }

  sessionActions = (): readonly ActionElement[] => (this.app.readOnly.value || !this.session.value ? [] : actionsOf(this.elements.value, "session_action", this.context(null)));

  messageActions = (at: MessageAt): readonly ActionElement[] => (this.app.readOnly.value ? [] : actionsOf(this.elements.value, "message_action", this.context(at)));

  /** begin runs an action, or asks first for what it needs. */
  begin(element: ActionElement, message: MessageAt | null): void {
    if (element.dialog) this.asked.value = { element, message };
    else void this.run({ element, message }, {});
  }

  /** isRunning reports whether an action runs. */
  isRunning = (element: ActionElement): boolean => this.running.value.has(keyOf(element));

  /** run runs an action. It returns the problem of one that failed, for its dialog; without an open one, a notice says it. An action that still runs is not started again. */
  async run(asked: Asked, inputs: Json): Promise<Problem | null> {
    const { element, message } = asked;
    const id = this.of;
    const key = keyOf(element);
    if (!id || this.running.peek().has(key)) return null;
    const label = actionLabel(element);
    this.running.value = new Map(this.running.peek()).set(key, label);
    try {
      const { conversation } = this.app;
      const act = async (context: ElementContext, options = {}): Promise<{ result: unknown }> =>
        ({ result: await this.app.wire.sdk.actions.run(id, element.action_id, actionBody(element, context, inputs), { timeout: actionMs, ...options }) });
      if (!message) await conversation.settle();
      const done = message ? await conversation.at(message.message.id, (_, index, options) => act(this.context({ ...message, index }), options)) : await act(this.context(null));
      if (!done) return null;
      this.report(label, done.result);
      if (id === this.of) void this.load(); // an action of an application plugin may have changed what the plugin shows
      return null;
    } catch (thrown) {
      const problem = asProblem(thrown);
      if (this.asked.peek() === asked) return problem;
      this.app.notices.add({ kind: "error", text: `${label}: ${explain(problem)}` });
      return null;
    } finally {
      this.running.value = new Map([...this.running.peek()].filter(([other]) => other !== key));
    }
  }

  private report(label: string, result: unknown): void {
    const said = typeof result === "string" ? result : labelOf((result as { message?: unknown } | null)?.message);
    const more = (typeof result === "object" && result !== null && Object.keys(result).length > 0) || said.length > 200;
    const text = said ? `${label}: ${said.length > 200 ? `${said.slice(0, 200)}…` : said}` : t("plugins.done", { label });
    this.app.notices.add({ kind: "info", text, ...(more && { action: { label: t("plugins.result"), run: () => void (this.result.value = { label, value: result }) } }) }, more ? 10_000 : 5000);
  }

  /** faults sorts the errors of a refused action by input. The key "" has what belongs to no input. */
  faults(element: ActionElement, problem: Problem): { readonly [input: string]: string } {
    const faults = faultsOf(element, inputsOf(element), problem);
    return Object.keys(faults).length ? faults : { "": explain(problem) };
  }

  private findPicker(): Picker | null {
    if (!sessionOf(this.app.route.value)) return this.newPicker();
    const element = shownElements(this.elements.value, "model_picker", this.context(null))[0];
    const key = labelOf(element?.key) || "model";
    const setting = element && this.elements.value.find((e) => e.ui_type === "config" && e.key === key);
    if (!setting) return null; // without the setting a choice could not be stored
    return { key, label: labelOf(element.label), value: labelOf(this.values.value[key]?.value), options: optionsOf(setting as { options?: unknown }) };
  }

  /** newPicker is the choice for a session that does not exist yet. */
  private newPicker(): Picker | null {
    const agent = this.newAgent.value;
    if (!agent) return null;
    const overrides = this.app.composer.value.metadata.value.overrides as Json | undefined;
    return { key: "model", label: "", value: labelOf(overrides?.model, agent.model), options: [] };
  }

  /** The agent of the open session, or of the session that the next message creates. */
  readonly agent: ReadonlySignal<string> = computed(() => (sessionOf(this.app.route.value) ? (this.app.transcript.value?.about.value?.agent_id ?? "") : (this.newAgent.value?.agent_id ?? "")));

  private readonly newAgent = computed(() => {
    const chosen = this.app.composer.value.agent.value;
    const agents = this.app.agents.value;
    return agents.find((agent) => agent.agent_id === (chosen || "default")) ?? agents[0]; // the server chooses in the same way
  });

  /** models returns the models that may be chosen, with the present one. */
  async models(): Promise<readonly Option[]> {
    const picker = this.picker.peek();
    if (!picker) return [];
    if (picker.options.length) return withValue(picker.options, picker.value || null);
    const id = sessionOf(this.app.route.peek());
    const query = id ? { session_id: id } : { agent_id: this.agent.peek() };
    const { models } = await this.app.wire.call<{ models: readonly Model[] }>("GET", "/models", { query });
    return withValue(models.map((model) => ({ value: model.id, label: labelOf(model.name, model.id) })), picker.value || null);
  }

  /** chooseModel chooses the model of the open session, or of the session that the next message creates. */
  async chooseModel(value: unknown): Promise<void> {
    const picker = this.picker.peek();
    if (!picker || this.app.readOnly.peek()) return;
    if (sessionOf(this.app.route.peek())) {
      const text = !(await this.set(picker.key, value)) && this.refused.peek()[picker.key];
      if (text) this.app.notices.add({ kind: "error", text });
      return;
    }
    const composer = this.app.composer.peek();
    const metadata = composer.metadata.peek();
    composer.choose({ metadata: { ...metadata, overrides: { ...(metadata.overrides as Json | undefined), [picker.key]: value } } });
  }

  /** chooseAgent chooses the agent of the session that the next message creates, or changes that of the open one. */
  async chooseAgent(agent: string): Promise<void> {
    const id = sessionOf(this.app.route.peek());
    if (this.app.readOnly.peek() || agent === (this.choosing ?? this.agent.peek())) return;
    if (id) {
      this.choosing = agent;
      await (this.tail = this.tail.then(() => this.app.attempt(this.app.wire.call("PATCH", sessionPath(id), { body: { agent_id: agent }, key: newId() }))));
      if (this.choosing === agent) this.choosing = undefined;
      return;
    }
    const composer = this.app.composer.peek();
    const { overrides: _, ...metadata } = composer.metadata.peek(); // the settings of another agent differ
    composer.choose({ agent, metadata });
  }
  /** The agent that was chosen last, while it is being saved. */
  private choosing: string | undefined;
}

const keyOf = (element: ActionElement): string => `${element.plugin} ${element.id}`;
