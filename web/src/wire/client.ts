// The wire of the page: the SDK, one connection that follows the log, and the outbox.
import { isProblem, Loquat, Outbox, type EventLog, type FollowedSession, type ListFilter, type Snapshot } from "@loquat/client";
import { connectShared } from "@loquat/client/shared";
import { asProblem, type CallOptions, type Followed, type FollowedPages, type Wire } from "../model/wire.ts";
import { scriptURL } from "./trusted.ts";

const pageSize = 100;

/**
 * worker returns what starts the SharedWorker, where the browser has one. In Firefox one of the tabs holds the
 * connection instead: its SharedWorkers keep connections open whose requests were aborted, once a second tab
 * uses the worker (seen in Firefox 153), and a browser opens only six to a server.
 */
function worker(): ((name: string) => SharedWorker) | undefined {
  const url = document.body.dataset.worker;
  return url && "SharedWorker" in globalThis && !/firefox/i.test(navigator.userAgent) ? (name) => new SharedWorker(scriptURL(url), { type: "module", name }) : undefined;
}

export class Client implements Wire {
  /** A deletion that the page begins when it is closed has to arrive. */
  readonly sdk = new Loquat({ fetch: (input, init) => fetch(input, { ...init, keepalive: init?.method === "DELETE" }) });
  readonly outbox: Outbox;
  private readonly log: EventLog;
  readonly connection: EventLog["state"];
  begin: () => void = () => {};

  /** The outbox and the connection have the suffix in their names, so that each user has others. */
  constructor(suffix: string) {
    this.outbox = new Outbox(this.sdk, { name: this.sdk.baseURL + suffix });
    this.hold();
    this.log = connectShared(this.sdk, { worker: worker(), ...(suffix && { name: `loquat${suffix}` }) });
    this.connection = this.log.state;
  }

  hold(): void {
    this.outbox.wait(new Promise<void>((resolve) => (this.begin = resolve)));
  }

  async call<T>(method: string, path: string, { query, body, key }: CallOptions = {}): Promise<T> {
    try {
      return await this.sdk.http.json<T>({ method, path, query, json: body, keyed: key !== undefined, idempotencyKey: key });
    } catch (thrown) {
      if (isProblem(thrown, "unauthorized") && path !== "/auth/session" && path !== "/pairing/claim") this.log.report(thrown);
      throw asProblem(thrown);
    }
  }

  expectSession(): void {
    this.log.expectSession();
  }

  retryNow(): void {
    this.log.retryNow();
    this.outbox.retryNow();
  }

  session(id: string, snapshot?: Snapshot): Followed<FollowedSession> {
    return this.sdk.followSession(this.log, id, snapshot);
  }

  sessions(filter: ListFilter): FollowedPages {
    return this.sdk.followList(this.log, { filter, pageSize });
  }
}
