// The client: one property for each resource of the HTTP API.

import { Audit, Auth, Devices, Nodes, Pairing, Push, Server, Tokens, Usage, Webhooks } from "./server.ts"
import { Connection, type ConnectionOptions } from "./connection.ts"
import { Events } from "./events.ts"
import { ListFollower, SessionFollower, type Update } from "./follow.ts"
import { Http, type HttpOptions } from "./http.ts"
import { Actions, Agents, Config, Models, Plugins, Schemas } from "./catalog.ts"
import { Alternatives, Assets, Messages, Queue, Requests, Search, Sessions } from "./sessions.ts"
import type { CallOptions, ChangeOptions } from "./http.ts"
import type { ListFilter } from "./list.ts"
import type { EventLog } from "./log.ts"
import type { Send, SendResult, Snapshot } from "./types.ts"

export type LoquatOptions = HttpOptions

/**
 * A client of one server. It keeps no state of sessions: see `follow` and `Feed`.
 *
 * Calls that change something carry an Idempotency-Key where the API takes one, so the client
 * repeats a call whose answer was lost without doing anything twice. Calls without a key are not
 * repeated.
 */
export class Loquat {
  /** The calls themselves, for routes and options that this package does not know. */
  readonly http: Http
  readonly sessions: Sessions
  readonly messages: Messages
  readonly requests: Requests
  readonly queue: Queue
  readonly alternatives: Alternatives
  readonly assets: Assets
  readonly events: Events
  readonly agents: Agents
  readonly models: Models
  readonly plugins: Plugins
  readonly uiSchema: Schemas
  readonly config: Config
  readonly actions: Actions
  readonly auth: Auth
  readonly tokens: Tokens
  readonly devices: Devices
  readonly pairing: Pairing
  readonly nodes: Nodes
  readonly push: Push
  readonly usage: Usage
  readonly webhooks: Webhooks
  readonly audit: Audit
  readonly server: Server
  readonly search: Search["find"]

  constructor(options: LoquatOptions = {}) {
    const http = this.http = new Http(options)
    this.sessions = new Sessions(http)
    this.messages = new Messages(http)
    this.requests = new Requests(http)
    this.queue = new Queue(http)
    this.alternatives = new Alternatives(http)
    this.assets = new Assets(http)
    this.events = new Events(http)
    this.agents = new Agents(http)
    this.models = new Models(http)
    this.plugins = new Plugins(http)
    this.uiSchema = new Schemas(http)
    this.config = new Config(http)
    this.actions = new Actions(http)
    this.auth = new Auth(http)
    this.tokens = new Tokens(http)
    this.devices = new Devices(http)
    this.pairing = new Pairing(http)
    this.nodes = new Nodes(http)
    this.push = new Push(http)
    this.usage = new Usage(http)
    this.webhooks = new Webhooks(http)
    this.audit = new Audit(http)
    this.server = new Server(http)
    const search = new Search(http)
    this.search = (query, options) => search.find(query, options)
  }

  get baseURL(): string { return this.http.baseURL }

  /** Uses another token for the calls after this one. */
  setToken(token: LoquatOptions["token"]): void { this.http.token = token }

  /** Requests a reply. The reply comes as events. */
  send(sessionId: string, send: Send = {}, options?: ChangeOptions): Promise<SendResult> {
    return this.requests.send(sessionId, send, options)
  }

  /** Makes a connection to the log, for any number of followers. It opens when something is followed. */
  connect(options?: ConnectionOptions): Connection {
    return new Connection(this, options)
  }

  /** Keeps the state of a session, over a connection that others may share. A `snapshot` that a call has just returned saves loading it. */
  followSession(log: EventLog, sessionId: string, snapshot?: Snapshot): SessionFollower {
    return new SessionFollower(this, log, sessionId, snapshot)
  }

  /** Keeps the list of sessions, over a connection that others may share. */
  followList(log: EventLog, options?: { filter?: ListFilter; pageSize?: number }): ListFollower {
    return new ListFollower(this, log, options)
  }

  /**
   * Yields the state of a session, then its state after every event, over a connection of its own.
   * It ends when the session is deleted, and throws if it cannot be followed.
   */
  async *follow(sessionId: string, options: ConnectionOptions & { signal?: AbortSignal } = {}): AsyncGenerator<Update, void, undefined> {
    const { signal, ...rest } = options
    const log = this.connect(rest), follower = this.followSession(log, sessionId)
    const updates: Update[] = []
    let wake = () => {}
    const notify = () => wake()
    follower.onUpdate((update) => { updates.push(update); notify() })
    follower.subscribe(notify)
    log.state.subscribe(notify)
    signal?.addEventListener("abort", notify)
    try {
      for (;;) {
        signal?.throwIfAborted()
        const update = updates.shift()
        if (update) {
          yield update
          continue
        }
        const { status, error } = follower.get(), connection = log.state.get()
        if (status === "deleted") return
        if (status === "missing" || status === "failed") throw error
        if (connection.status === "stopped") throw connection.error
        await new Promise<void>((resolve) => { wake = resolve })
      }
    } finally {
      signal?.removeEventListener("abort", notify)
      follower.close()
      log.close()
    }
  }

  /** Stops a request. The text that it has written stays. */
  cancel(requestId: string, options?: CallOptions): ReturnType<Requests["cancel"]> {
    return this.requests.cancel(requestId, options)
  }
}


