// The operations on whole sessions.
import { newId } from "@loquat/client";
import type { App } from "./app.ts";
import { formatRoute, sessionOf } from "./route.ts";
import type { Metadata, Summary } from "./types.ts";
import { sessionPath } from "./wire.ts";
import { t } from "../i18n/index.ts";

/** The formats of an export, with their names. */
export const formatNames = { json: "JSON", markdown: "Markdown", html: "HTML" } as const;
type Format = keyof typeof formatNames;
export const formats = Object.keys(formatNames) as readonly Format[];

export const undoMs = 5000;

interface Deletion {
  readonly id: string;
  readonly title: string;
  /** When the session is deleted, in milliseconds since 1970. */
  readonly at: number;
}

const key = "deletions";

/** Library changes sessions of the list. A deletion waits, so that the user can undo it. */
export class Library {
  constructor(private readonly app: App) {}

  /** resume goes on with the deletions that waited before a reload. */
  resume(): void {
    for (const deletion of this.deletions()) this.await(deletion);
  }

  rename = (id: string, title: string): Promise<boolean> => this.patch(id, { title: title.trim() || null });
  pin = (id: string, pinned: boolean): Promise<boolean> => this.patch(id, { pinned });
  tag = (id: string, tags: readonly string[]): Promise<boolean> => this.patch(id, { tags: [...new Set(tags)].slice(0, 32) });

  async archive(id: string, archived: boolean): Promise<void> {
    if (!(await this.patch(id, { archived }))) return;
    this.app.notices.add({ kind: "info", text: t(archived ? "session.archived" : "session.unarchived"), action: { label: t("undo"), run: () => void this.patch(id, { archived: !archived }) } });
  }

  /** patch changes the metadata of a session, after the changes before it. It reports whether the server took it. */
  private async patch(id: string, metadata: Metadata): Promise<boolean> {
    const undo = this.app.list.patch(id, metadata);
    const done = await (this.tail = this.tail.then(() => this.app.attempt(this.app.wire.call<Summary>("PATCH", sessionPath(id), { body: { metadata }, key: newId() }))));
    if (!done) undo();
    return Boolean(done);
  }
  private tail: Promise<unknown> = Promise.resolve();

  /** fork copies a session, up to and including a message, and opens the copy unless the user has gone elsewhere. */
  async fork(id: string, message?: string): Promise<void> {
    const { app } = this;
    const from = formatRoute(app.route.peek());
    const { sessions } = app.wire.sdk;
    if (!message) await app.conversation.settle();
    const made = await app.attempt(message ? app.conversation.at(message, (session, index, options) => sessions.fork(session, { up_to_index: index }, options)) : sessions.fork(id));
    if (!made) return;
    if (formatRoute(app.route.peek()) === from) app.go({ at: "session", id: made.session_id });
    this.app.notices.add({ kind: "info", text: t("session.forked") });
  }

  /** exportURL is the address of a session's export. */
  exportURL = (id: string, format: Format): string => sessionPath(id, `/export?format=${format}`);

  /** remove hides a session and deletes it after a while, unless the user takes that back. */
  remove(id: string): void {
    const deletion = { id, title: this.app.list.entry(id)?.title ?? "", at: Date.now() + undoMs };
    this.keep([...this.deletions().filter((d) => d.id !== id), deletion]);
    const open = sessionOf(this.app.route.peek()) === id;
    if (open) this.app.go({ at: "new" }, "replace");
    this.await(deletion, open);
  }

  /** await deletes a session when its time has come. If the user takes that back, a session that was open is shown again. */
  private await({ id, title, at }: Deletion, open = false): void {
    const left = Math.min(Math.max(at - Date.now(), 0), undoMs); // the clock may have been set back
    this.hide(id, true);
    const timer = setTimeout(() => void this.delete(id), left);
    const undo = (): void => {
      clearTimeout(timer);
      this.keep(this.deletions().filter((d) => d.id !== id));
      this.hide(id, false);
      if (open && this.app.route.peek().at === "new") this.app.go({ at: "session", id }, "replace");
    };
    this.app.notices.add({ kind: "info", text: t("session.deleted", { title: title || t("session.untitled") }), action: { label: t("undo"), run: undo } }, left);
  }

  private async delete(id: string): Promise<void> {
    if (!this.deletions().some((d) => d.id === id)) return this.hide(id, false); // another tab took it back
    const problem = await this.app.wire.call("DELETE", sessionPath(id)).then(() => null, (thrown: { code?: string }) => thrown);
    this.keep(this.deletions().filter((d) => d.id !== id));
    if (!problem || problem.code === "not_found") return;
    this.hide(id, false);
    await this.app.attempt(Promise.reject(problem));
  }

  private hide(id: string, hidden: boolean): void {
    const next = new Set(this.app.list.hidden.peek());
    if (hidden) next.add(id);
    else next.delete(id);
    this.app.list.hidden.value = next;
  }

  private deletions(): readonly Deletion[] {
    const stored = this.app.users.storage.get(key);
    return Array.isArray(stored) ? (stored as Deletion[]) : [];
  }

  private keep(deletions: readonly Deletion[]): void {
    this.app.users.storage.set(key, deletions.length ? deletions : undefined);
  }
}
