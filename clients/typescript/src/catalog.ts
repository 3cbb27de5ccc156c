// What there is to choose, and what plugins show.

import { type CallOptions, type ChangeOptions, type Http, pathOf } from "./http.ts"
import type { Action, ActionResult, Agent, ConfigValues, EventId, Model, Plugin, Snapshot, UISchema } from "./types.ts"

export class Agents {
  constructor(private readonly http: Http) {}

  async list(options: CallOptions = {}): Promise<Agent[]> {
    return (await this.http.json<{ agents: Agent[] }>({ method: "GET", path: "/agents", ...options })).agents
  }
}

export class Models {
  constructor(private readonly http: Http) {}

  /** Lists the models of an agent's provider, or of a session's. The list is empty if the backend has none. */
  async list(query: { agent_id?: string; session_id?: string; refresh?: boolean } = {}, options: CallOptions = {}): Promise<Model[]> {
    return (await this.http.json<{ models: Model[] }>({ method: "GET", path: "/models", query, ...options })).models
  }
}

export class Plugins {
  constructor(private readonly http: Http) {}

  async list(options: CallOptions = {}): Promise<Plugin[]> {
    return (await this.http.json<{ plugins: Plugin[] }>({ method: "GET", path: "/plugins", ...options })).plugins
  }
}

/** The elements that plugins show. */
export class Schemas {
  constructor(private readonly http: Http) {}

  session(sessionId: string, options: CallOptions = {}): Promise<UISchema> {
    return this.http.json({ method: "GET", path: pathOf`/sessions/${sessionId}/ui-schema`, ...options })
  }

  /** The elements of application plugins in a session. */
  application(sessionId: string, query: { plugin?: string } = {}, options: CallOptions = {}): Promise<UISchema> {
    return this.http.json({ method: "GET", path: pathOf`/sessions/${sessionId}/application/ui-schema`, query, ...options })
  }

  /** The elements of application plugins outside of sessions. */
  global(query: { plugin?: string } = {}, options: CallOptions = {}): Promise<UISchema> {
    return this.http.json({ method: "GET", path: "/application/ui-schema", query, ...options })
  }
}

/** The settings of a session. */
export class Config {
  constructor(private readonly http: Http) {}

  /** Loads the effective value of every setting, with its source. */
  get(sessionId: string, options: CallOptions = {}): Promise<ConfigValues> {
    return this.http.json({ method: "GET", path: pathOf`/sessions/${sessionId}/config`, ...options })
  }

  /** Sets the override of one setting. Null removes it. */
  set(sessionId: string, key: string, value: unknown, options: ChangeOptions = {}): Promise<Snapshot> {
    return this.http.json({ method: "PUT", path: pathOf`/sessions/${sessionId}/config/${key}`, json: { value: value ?? null }, keyed: true, ...options })
  }
}

/** Actions of plugins. They are not repeated, because the API has no key for them. */
export class Actions {
  constructor(private readonly http: Http) {}

  async run(sessionId: string, actionId: string, action: Action, options: CallOptions & { ifMatch?: EventId } = {}): Promise<unknown> {
    const path = pathOf`/sessions/${sessionId}/actions/${actionId}`
    return (await this.http.json<ActionResult>({ method: "POST", path, json: action, timeout: 600_000, ...options })).result
  }

  async runGlobal(actionId: string, action: Action, options: CallOptions = {}): Promise<unknown> {
    return (await this.http.json<ActionResult>({ method: "POST", path: pathOf`/actions/${actionId}`, json: action, timeout: 600_000, ...options })).result
  }
}
