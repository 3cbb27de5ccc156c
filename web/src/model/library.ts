// The operations on whole sessions.
import type { App } from "./app.ts";
import { sessionOf } from "./route.ts";
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

  rename = (id: string, title: string): Promise<void> => this.patch(id, { title: title.trim() || null });
  pin = (id: string, pinned: boolean): Promise<void> => this.patch(id, { pinned });
  tag = (id: string, tags: readonly string[]): Promise<void> => this.patch(id, { tags: [...new Set(tags)].slice(0, 32) });

  async archive(id: string, archived: boolean): Promise<void> {
    await this.patch(id, { archived });
    this.app.notices.add({ kind: "info", text: t(archived ? "session.archived" : "session.unarchived"), action: { label: t("undo"), run: () => void this.patch(id, { archived: !archived }) } });
  }

  private async patch(id: string, metadata: Metadata): Promise<void> {
    const undo = this.app.list.patch(id, metadata);
    const done = await this.app.attempt(this.app.wire.call<Summary>("PATCH", sessionPath(id), { body: { metadata }, key: `${id} ${Date.now()}` }));
    if (!done) undo();
  }

  /** fork copies a session, up to and including the message at an index, and opens the copy. */
  async fork(id: string, index?: number): Promise<void> {
    const made = await this.app.attempt(this.app.wire.call<Summary>("POST", sessionPath(id, "/fork"), { body: index === undefined ? {} : { up_to_index: index }, key: `${id} ${Date.now()}` }));
    if (!made) return;
    this.app.go({ at: "session", id: made.session_id });
    this.app.notices.add({ kind: "info", text: t("session.forked") });
  }

  /** exportURL is the address of a session's export. */
  exportURL = (id: string, format: Format): string => sessionPath(id, `/export?format=${format}`);

  /** remove hides a session and deletes it after a while, unless the user takes that back. */
  remove(id: string): void {
    const deletion = { id, title: this.app.list.entry(id)?.title ?? "", at: Date.now() + undoMs };
    this.keep([...this.deletions().filter((d) => d.id !== id), deletion]);
    if (sessionOf(this.app.route.peek()) === id) this.app.go({ at: "new" }, true);
    this.await(deletion);
  }

  private await({ id, title, at }: Deletion): void {
    const left = Math.min(Math.max(at - Date.now(), 0), undoMs); // the clock may have been set back
    this.hide(id, true);
    const timer = setTimeout(() => void this.delete(id), left);
    const undo = (): void => {
      clearTimeout(timer);
      this.keep(this.deletions().filter((d) => d.id !== id));
      this.hide(id, false);
    };
    this.app.notices.add({ kind: "info", text: t("session.deleted", { title: title || t("session.untitled") }), action: { label: t("undo"), run: undo } }, left);
  }

  private async delete(id: string): Promise<void> {
    if (!this.deletions().some((d) => d.id === id)) return; // another tab took it back
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
    const stored = this.app.storage.get(key);
    return Array.isArray(stored) ? (stored as Deletion[]) : [];
  }

  private keep(deletions: readonly Deletion[]): void {
    this.app.storage.set(key, deletions.length ? deletions : undefined);
  }
}
