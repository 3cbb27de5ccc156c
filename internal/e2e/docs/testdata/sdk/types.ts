// The types that openapi-typescript makes are exact: a switch over the type of an event
// knows its fields, and what is wrong does not compile.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

type Schemas = components["schemas"];

export function show(e: Schemas["Event"]): string {
  const id: string = e.event_id;
  switch (e.type) {
    case "session_created": return e.agent_id + (e.source_session_id ?? "");
    case "message_appended": return `${e.role}: ${e.content} ${e.metadata?.attachments?.length ?? 0}`;
    case "message_modified": return `${e.index}: ${e.content}`;
    case "messages_deleted": return e.indices.map((i) => i + 1).join();
    case "session_deleted": return e.session_id;
    case "checkpoint": return e.timestamp + (e.request_id ?? "");
    case "request_started": return e.stream ? e.request_id : id;
    case "assistant_message": { const phase: "start" | "end" = e.phase; return phase; }
    case "partial": return e.message.content;
    case "final": return e.messages.map((m) => m.content).join();
    case "tool_calls": return e.tool_calls.map((c) => c.function.name + c.function.arguments).join();
    case "tool_partial": { const phase: "start" | "stream" | "end" = e.phase; return phase + e.tool_call_id + (e.payload.part ?? ""); }
    case "tool_results": return e.messages.map((m) => m.role).join();
    case "retry_scheduled": { const cause: "rate_limit" | "status" | "timeout" | "stream" = e.cause; return cause + e.delay_seconds; }
    case "error": return e.detail.toUpperCase();
    case "queue_changed": return (e.queue ?? []).map((q) => q.request_id + q.message.content).join();
    case "request_cancelled": return e.request_id;
    case "request_completed": return e.request_id;
    default: { const none: never = e; return none; }
  }
}

export function draw(element: Schemas["UIElement"]): string {
  switch (element.ui_type) {
    case "config": return element.key + (element.options ?? []).map((o) => typeof o === "string" ? o : o.label ?? "").join();
    case "session_action":
    case "message_action": return element.action_id + (element.dialog?.inputs ?? []).map((i) => i.name).join();
    case "message_footer":
    case "status_bar": return element.template ?? element.data ?? "";
    case "session_list_field": return element.data ?? "";
    case "composer_attachment": return element.supports_url ? "url" : "file";
    case "model_picker": return String(element.order);
    default: { const none: never = element; return none; }
  }
}

const api = createClient<paths>({ baseUrl: "http://127.0.0.1:1" });

export async function compileOnly(e: Schemas["Event"]) {
  // @ts-expect-error: only some events have a message
  e.message;
  // @ts-expect-error: an unknown phase
  const phase: Schemas["AssistantMessageEvent"]["phase"] = "stream";
  // @ts-expect-error: a kind of a wrong type
  const wrong: Schemas["Attachment"] = { type: "image", url: 7 };
  // @ts-expect-error: no kind
  const none: Schemas["Attachment"] = { type: "image" };
  // @ts-expect-error: an unknown field
  const more: Schemas["Attachment"] = { type: "image", url: "https://a/b.png", bogus: 1 };
  // @ts-expect-error: files of the page are not operations
  await api.GET("/app.js");
  // @ts-expect-error: an unknown policy
  await api.POST("/sessions/{session_id}/send", { params: { path: { session_id: "s" } }, body: { on_busy: "wait" } });
  const { data, error } = await api.POST("/sessions/{session_id}/send", {
    params: { path: { session_id: "s" } },
    body: { content: "hi", attachments: [{ type: "image", url: "https://a/b.png" }], on_busy: "queue" },
  });
  return [data?.request_id, error?.code, error?.errors?.[0]?.location, phase, wrong, none, more];
}
