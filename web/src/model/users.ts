// Whose drafts and unsent messages the page has: users may share a browser, one after the other.
import type { Storage } from "./storage.ts";

/** The first and the last user of the browser. */
interface Seen {
  readonly first: string;
  readonly last: string;
}

const key = "users";

export class Users {
  /** What the names end with under which the page keeps things of its user. The first user of a browser has none. */
  readonly suffix: string;
  /** The values of the page's user. */
  readonly storage: Storage;

  constructor(private readonly all: Storage) {
    const suffix = (this.suffix = this.lastSuffix);
    this.storage = { get: (name) => all.get(name + suffix), set: (name, value) => all.set(name + suffix, value) };
  }

  private get seen(): Seen | undefined {
    return this.all.get(key) as Seen | undefined;
  }

  private get lastSuffix(): string {
    const { first = "", last = "" } = this.seen ?? {};
    return first === last ? "" : `@${last}`;
  }

  /** Whether the page has things of another user than the last one of the browser, who may have come in another tab. */
  get changed(): boolean {
    return this.suffix !== this.lastSuffix;
  }

  /** enter notes who uses the browser now. */
  enter(user: string): void {
    const seen = this.seen;
    if (seen?.last === user) return;
    const next: Seen = { first: seen?.first ?? user, last: user };
    this.all.set(key, undefined); // so that a browser that does not store the next one keeps none, and the page is loaded again once
    this.all.set(key, next);
  }
}
