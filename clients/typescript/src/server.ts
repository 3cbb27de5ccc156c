// Access, and the state of the server.

import { type CallOptions, type Http, pathOf } from "./http.ts"
import type { AuditList, Caller, Claim, ClaimedDevice, ConfigReload, Device, Health, NewPairing, NewPushSubscription, NewToken, NewWebhook, Node, Pairing as PairingCode, PushServer, PushSubscribed, Readiness, SignedIn, Token, UsageList, Version, Webhook, WebhookDeliveries, WebhookPatch } from "./types.ts"

/** The browser's session: a cookie in place of a token. */
export class Auth {
  constructor(private readonly http: Http) {}

  /** Exchanges a token for a cookie that scripts cannot read. */
  signIn(token: string, options: CallOptions = {}): Promise<SignedIn> {
    return this.http.json({ method: "POST", path: "/auth/session", json: { token }, ...options })
  }

  /** Returns who makes the calls of this client, with which scope, and whether the server requires a token. */
  me(options: CallOptions = {}): Promise<Caller> {
    return this.http.json({ method: "GET", path: "/auth/me", ...options })
  }

  /** Ends the browser's session and removes the cookie. */
  signOut(options: CallOptions = {}): Promise<void> {
    return this.http.json({ method: "DELETE", path: "/auth/session", ...options })
  }
}

export class Tokens {
  constructor(private readonly http: Http) {}

  async list(options: CallOptions = {}): Promise<Token[]> {
    return (await this.http.json<{ tokens: Token[] }>({ method: "GET", path: "/tokens", ...options })).tokens
  }

  /** Makes a token. Only this answer has its secret. */
  create(token: NewToken, options: CallOptions = {}): Promise<Token> {
    return this.http.json({ method: "POST", path: "/tokens", json: token, ...options })
  }

  revoke(tokenId: string, options: CallOptions = {}): Promise<void> {
    return this.http.json({ method: "DELETE", path: pathOf`/tokens/${tokenId}`, ...options })
  }
}

export class Devices {
  constructor(private readonly http: Http) {}

  async list(options: CallOptions = {}): Promise<Device[]> {
    return (await this.http.json<{ devices: Device[] }>({ method: "GET", path: "/devices", ...options })).devices
  }

  remove(deviceId: string, options: CallOptions = {}): Promise<void> {
    return this.http.json({ method: "DELETE", path: pathOf`/devices/${deviceId}`, ...options })
  }
}

export class Pairing {
  constructor(private readonly http: Http) {}

  /** Makes a code with which a device can be paired once, for five minutes. */
  create(pairing: NewPairing = {}, options: CallOptions = {}): Promise<PairingCode> {
    return this.http.json({ method: "POST", path: "/pairing", json: pairing, ...options })
  }

  /** Exchanges a code for the token of a new device. */
  claim(claim: Claim, options: CallOptions = {}): Promise<ClaimedDevice> {
    return this.http.json({ method: "POST", path: "/pairing/claim", json: claim, ...options })
  }
}

export class Nodes {
  constructor(private readonly http: Http) {}

  /** Lists the live servers that share the sessions. */
  async list(options: CallOptions = {}): Promise<Node[]> {
    return (await this.http.json<{ nodes: Node[] }>({ method: "GET", path: "/nodes", ...options })).nodes
  }
}

/** Notifications of browsers when a request ends, by Web Push. */
export class Push {
  constructor(private readonly http: Http) {}

  /** Returns the key for `PushManager.subscribe`. It is absent if the server sends no notifications. */
  get(options: CallOptions = {}): Promise<PushServer> {
    return this.http.json({ method: "GET", path: "/push", ...options })
  }

  /** Sends what `PushSubscription.toJSON` returns. The subscription ends with the token of this client. */
  subscribe(subscription: NewPushSubscription, options: CallOptions = {}): Promise<PushSubscribed> {
    return this.http.json({ method: "POST", path: "/push/subscriptions", json: subscription, ...options })
  }

  unsubscribe(subscriptionId: string, options: CallOptions = {}): Promise<void> {
    return this.http.json({ method: "DELETE", path: pathOf`/push/subscriptions/${subscriptionId}`, ...options })
  }
}

/** URLs to which events are sent. */
export class Webhooks {
  constructor(private readonly http: Http) {}

  async list(options: CallOptions = {}): Promise<Webhook[]> {
    return (await this.http.json<{ webhooks: Webhook[] }>({ method: "GET", path: "/webhooks", ...options })).webhooks
  }

  get(webhookId: string, options: CallOptions = {}): Promise<Webhook> {
    return this.http.json({ method: "GET", path: pathOf`/webhooks/${webhookId}`, ...options })
  }

  /** Makes a webhook. Only this answer has its secret. */
  create(webhook: NewWebhook, options: CallOptions = {}): Promise<Webhook> {
    return this.http.json({ method: "POST", path: "/webhooks", json: webhook, ...options })
  }

  patch(webhookId: string, patch: WebhookPatch, options: CallOptions = {}): Promise<Webhook> {
    return this.http.json({ method: "PATCH", path: pathOf`/webhooks/${webhookId}`, json: patch, ...options })
  }

  delete(webhookId: string, options: CallOptions = {}): Promise<void> {
    return this.http.json({ method: "DELETE", path: pathOf`/webhooks/${webhookId}`, ...options })
  }

  /** Lists the events that were not delivered. */
  deliveries(webhookId: string, query: { failed?: boolean; limit?: number; page_token?: string } = {}, options: CallOptions = {}): Promise<WebhookDeliveries> {
    return this.http.json({ method: "GET", path: pathOf`/webhooks/${webhookId}/deliveries`, query: { ...query }, ...options })
  }

  /** Sends events again that were given up: one, or all. */
  resend(webhookId: string, eventId?: string, options: CallOptions = {}): Promise<void> {
    return this.http.json({ method: "POST", path: pathOf`/webhooks/${webhookId}/resend`, json: eventId === undefined ? {} : { event_id: eventId }, ...options })
  }
}

/** Who changed what. */
export class Audit {
  constructor(private readonly http: Http) {}

  page(query: { action?: string; target?: string; limit?: number; page_token?: string } = {}, options: CallOptions = {}): Promise<AuditList> {
    return this.http.json({ method: "GET", path: "/audit", query: { ...query }, ...options })
  }
}

export interface UsageQuery {
  /** The first day, in UTC, such as `2026-11-01`. */
  from?: string
  /** The last day. */
  to?: string
  /** Only that of this user. A token of scope `user` does not need it. */
  user?: string
  agent_id?: string
  provider_id?: string
  model?: string
  /** By default all. */
  group_by?: UsageField | readonly UsageField[]
  limit?: number
  page_token?: string
}

export type UsageField = "day" | "user" | "agent_id" | "provider_id" | "model"

/** What requests have used. */
export class Usage {
  constructor(private readonly http: Http) {}

  page(query: UsageQuery = {}, options: CallOptions = {}): Promise<UsageList> {
    return this.http.json({ method: "GET", path: "/usage", query: { ...query }, ...options })
  }

  /** Returns all rows as a CSV text. */
  async csv(query: Omit<UsageQuery, "limit" | "page_token"> = {}, options: CallOptions = {}): Promise<string> {
    return (await this.http.response({ method: "GET", path: "/usage", query: { ...query, format: "csv" }, ...options })).text()
  }
}

export class Server {
  constructor(private readonly http: Http) {}

  version(options: CallOptions = {}): Promise<Version> {
    return this.http.json({ method: "GET", path: "/version", ...options })
  }

  health(options: CallOptions = {}): Promise<Health> {
    return this.http.json({ method: "GET", path: "/healthz", ...options })
  }

  /** Returns what /readyz says. A server that is not ready is a problem with the code `unavailable`. */
  ready(options: CallOptions = {}): Promise<Readiness> {
    return this.http.json({ method: "GET", path: "/readyz", retries: 0, ...options })
  }

  /** Makes the server take up its changed configuration file. */
  reloadConfig(options: CallOptions = {}): Promise<ConfigReload> {
    return this.http.json({ method: "POST", path: "/config/reload", ...options })
  }

  /** Loads the metrics as a text in the format of Prometheus. */
  async metrics(options: CallOptions = {}): Promise<string> {
    return (await this.http.response({ method: "GET", path: "/metrics", ...options })).text()
  }

  /** Loads the OpenAPI document. */
  openapi(options: CallOptions = {}): Promise<Record<string, unknown>> {
    return this.http.json({ method: "GET", path: "/openapi.json", ...options })
  }
}
