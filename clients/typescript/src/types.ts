// The types of the HTTP API, by their names in the OpenAPI document.
//
// Data of the API keep the API's names, such as session_id. Only names that this package itself
// adds are in camel case.

import type { components } from "./schema.ts"

type Schemas = components["schemas"]

/** An id of the log: 16 digits, so that texts compare like numbers. */
export type EventId = string

export type Session = Schemas["Session"]
/** A session with its messages and its cursor, read together. */
export type Snapshot = Schemas["Snapshot"] & {
  /** The newest checkpoint of the session, for `ifMatch`. */
  checkpoint?: EventId
}
/** A session in a list: without messages, with their number. */
export type SessionSummary = Schemas["SessionSummary"]
export type SessionList = Schemas["SessionList"]
export type NewSession = Schemas["NewSession"]
export type SessionPatch = Schemas["SessionPatch"]
export type ForkOptions = Schemas["Fork"]
export type ImportReport = Schemas["ImportReport"]
export type ImportedSession = Schemas["ImportedSession"]

export type Message = Schemas["Message"]
export type Role = Message["role"]
export type MessageMetadata = Schemas["MessageMetadata"]
export type NewMessage = Schemas["NewMessage"]
export type MessagePatch = Schemas["MessagePatch"]
export type MessagePage = Schemas["MessagePage"]
export type MessageResult = Schemas["MessageResult"]
export type DeleteResult = Schemas["DeleteResult"]
/** A message as an event has it. An increment has no id. */
export type Delta = Schemas["Delta"]
export type ToolCall = Schemas["ToolCall"]
export type Attachment = Schemas["Attachment"]
export type Asset = Schemas["Asset"]

export type Send = Schemas["Send"]
export type SendResult = Schemas["SendResult"]
export type Request = Schemas["Request"]
export type RequestStatus = Request["status"]
export type CancelResult = Schemas["CancelResult"]
export type Queue = Schemas["Queue"]
export type QueuedSend = Schemas["QueuedSend"]
export type QueuedPatch = Schemas["QueuedPatch"]

export type Alternative = Schemas["Alternative"]
export type AlternativeList = Schemas["AlternativeList"]
export type AlternativeMessages = Schemas["AlternativeMessages"]
export type SwitchResult = Schemas["SwitchResult"]

/** An event of the log: a union by `type`. Later servers may send further types. */
export type LogEvent = Schemas["Event"]
export type EventType = LogEvent["type"]
/** The event of one type. */
export type EventOf<T extends EventType> = Extract<LogEvent, { type: T }>
export type EventList = Schemas["EventList"]

export type SearchResult = Schemas["SearchResult"]
export type SearchHit = Schemas["SearchHit"]
export type SearchMatch = Schemas["SearchMatch"]
export type Snippet = Schemas["Snippet"]

export type Agent = Schemas["Agent"]
export type Model = Schemas["Model"]
export type Plugin = Schemas["Plugin"]
export type Node = Schemas["Node"]

export type UISchema = Schemas["UISchema"]
/** What a plugin shows: a union by `ui_type`. Later servers may send further types. */
export type UIElement = Schemas["UIElement"]
export type UIElementOf<T extends UIElement["ui_type"]> = Extract<UIElement, { ui_type: T }>
export type DialogInput = Schemas["DialogInput"]
export type ElementDialog = Schemas["ElementDialog"]
export type ElementOption = Schemas["ElementOption"]
export type ConfigValue = Schemas["ConfigValue"]
export type ConfigValues = Schemas["ConfigValues"]
export type Action = Schemas["Action"]
export type ActionResult = Schemas["ActionResult"]

export type SignedIn = Schemas["SignedIn"]
/** Who makes a call, and what it may do. */
export type Caller = Schemas["Caller"]
export type Token = Schemas["Token"]
export type Webhook = Schemas["Webhook"]
export type NewWebhook = Schemas["NewWebhook"]
export type WebhookPatch = Schemas["WebhookPatch"]
export type WebhookDeliveries = Schemas["WebhookDeliveries"]
export type AuditEntry = Schemas["AuditEntry"]
export type AuditList = Schemas["AuditList"]
export type UsageRow = Schemas["UsageRow"]
export type UsageList = Schemas["UsageList"]
export type NewToken = Schemas["NewToken"]
export type Device = Schemas["Device"]
export type Pairing = Schemas["Pairing"]
export type NewPairing = Schemas["NewPairing"]
export type Claim = Schemas["Claim"]
export type PushServer = Schemas["PushServer"]
export type NewPushSubscription = Schemas["NewPushSubscription"]
export type PushSubscribed = Schemas["PushSubscribed"]
export type ClaimedDevice = Schemas["ClaimedDevice"]

export type Health = Schemas["Health"]
export type Readiness = Schemas["Readiness"]
export type Version = Schemas["Version"]
export type ConfigReload = Schemas["ConfigReload"]

export type ProblemDocument = Schemas["Problem"]
export type FieldError = Schemas["FieldError"]
