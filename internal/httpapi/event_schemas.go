package httpapi

import (
	"github.com/danielgtaylor/huma/v2"

	"loquat"
	"loquat/internal/httpapi/route"
)

// The names of the schemas that are unions.
const (
	eventSchema      = "Event"
	attachmentSchema = "Attachment"
	metadataSchema   = "MessageMetadata"
)

// addAttachments describes the forms of an attachment, and the fields with attachments.
func addAttachments(s route.Schemas) {
	forms := []struct{ name, field, doc string }{
		{"ImageByURL", "url", "An absolute http or https URL, which the backend loads."},
		{"ImageByDataURL", "data_url", "The image itself: data:image/png;base64,…"},
		{"ImageByAsset", "asset_id", "An image that was uploaded to the session."},
	}
	one := &huma.Schema{Description: "An image of a message. It has exactly one of url, data_url and asset_id."}
	for _, form := range forms {
		s.Map()[form.name] = &huma.Schema{
			Type: huma.TypeObject, Required: []string{"type", form.field}, AdditionalProperties: false,
			Properties: map[string]*huma.Schema{"type": route.OneText("image"), form.field: {Type: huma.TypeString, Description: form.doc}},
		}
		one.OneOf = append(one.OneOf, route.RefTo(form.name))
	}
	s.Map()[attachmentSchema] = one
	s.Map()[metadataSchema] = &huma.Schema{
		Type: huma.TypeObject, AdditionalProperties: true,
		Description: "What clients, the provider and tools keep with a message, such as model, usage, reasoning_content, tool_calls and incomplete. Any key may be there.",
		Properties:  map[string]*huma.Schema{"attachments": route.ListOf(route.RefTo(attachmentSchema))},
	}
	for _, body := range []any{loquat.NewMessage{}, loquat.Send{}, loquat.QueuedPatch{}} {
		s.Properties(body)["attachments"].Items = route.RefTo(attachmentSchema)
	}
	for _, message := range []any{loquat.Message{}, loquat.Delta{}} {
		s.Properties(message)["metadata"] = route.RefTo(metadataSchema)
	}
}

// addEvents describes each type of event. docs/events.md has the same table.
func addEvents(s route.Schemas) {
	always := []string{"event_id", "type", "session_id"}
	ofRequest := func(fields ...string) []string { return append([]string{"request_id"}, fields...) }
	s.Union(eventSchema, "type", "An event of the log. Clients ignore types and fields that they do not know.", s.Properties(loquat.Event{}), always, []route.Variant{
		{Value: string(loquat.SessionCreated), Name: "SessionCreatedEvent", Doc: "A session was created or forked.",
			Required: []string{"agent_id"}, Optional: []string{"source_session_id", "created_at", "session", "user"}},
		{Value: string(loquat.MessageAppended), Name: "MessageAppendedEvent", Doc: "A message was appended, by a client or by a send.",
			Required: []string{"role", "content", "message"}, Optional: []string{"metadata", "session"},
			Fields: map[string]*huma.Schema{"metadata": route.RefTo(metadataSchema)}},
		{Value: string(loquat.MessageModified), Name: "MessageModifiedEvent", Doc: "The content of a message changed. `message` is present if more than its content changed.",
			Required: []string{"index", "content"}, Optional: []string{"message", "session"}},
		{Value: string(loquat.MessagesDeleted), Name: "MessagesDeletedEvent", Doc: "Messages were deleted. The indices are those before the deletion.",
			Required: []string{"indices"}, Optional: []string{"session"}},
		{Value: string(loquat.SessionDeleted), Name: "SessionDeletedEvent", Doc: "A session was deleted. No event of it follows.", Optional: []string{"user"}},
		{Value: string(loquat.Checkpoint), Name: "CheckpointEvent", Doc: "The session was stored. `agent_id` and `metadata` are present if they changed; events of older versions have no `message_count`.",
			Required: []string{"timestamp"}, Optional: ofRequest("agent_id", "metadata", "message_count", "updated_at", "user")},
		{Value: string(loquat.RequestStarted), Name: "RequestStartedEvent", Doc: "A request began. With `steered_into` it has already ended, because that request took in its message.",
			Required: ofRequest("stream"), Optional: []string{"steered_into", "user"}},
		{Value: string(loquat.AssistantMessage), Name: "AssistantMessageEvent", Doc: "A streamed reply began or ended.", Required: ofRequest("phase"),
			Fields: map[string]*huma.Schema{"phase": route.Texts(loquat.PhaseStart, loquat.PhaseEnd)}},
		{Value: string(loquat.Partial), Name: "PartialEvent", Doc: "An increment of a streamed reply. `message.content` is what was added.", Required: ofRequest("message")},
		{Value: string(loquat.Final), Name: "FinalEvent", Doc: "A phase of the model ended. `messages` are those that it added.", Required: ofRequest("messages")},
		{Value: string(loquat.ToolCalls), Name: "ToolCallsEvent", Doc: "The model asks for tools.", Required: ofRequest("tool_calls")},
		{Value: string(loquat.ToolPartial), Name: "ToolPartialEvent", Doc: "The progress of a tool call. `payload` has a part, and at the end the result.",
			Required: ofRequest("tool_call_id", "phase", "payload")},
		{Value: string(loquat.ToolResults), Name: "ToolResultsEvent", Doc: "The tool messages of a round, in the order of the calls.", Required: ofRequest("messages")},
		{Value: string(loquat.RetryScheduled), Name: "RetryScheduledEvent", Doc: "The server will call the backend again. `status` is its HTTP status, if that is the cause.",
			Required: ofRequest("attempt", "cause", "delay_seconds", "resume_at"), Optional: []string{"status"}},
		{Value: string(loquat.QueueChanged), Name: "QueueChangedEvent", Doc: "The queue of the session changed. `queue` has all sends that wait now; it is left out, with `queue_omitted`, if they are over 64 KiB.",
			Optional: []string{"queue", "queue_omitted"}},
		{Value: string(loquat.ErrorEvent), Name: "ErrorEvent", Doc: "The request failed.", Required: ofRequest("detail")},
		{Value: string(loquat.RequestCancelled), Name: "RequestCancelledEvent", Doc: "The request was cancelled.", Required: ofRequest()},
		{Value: string(loquat.RequestCompleted), Name: "RequestCompletedEvent", Doc: "The last event of a request, however it ended.", Required: ofRequest(), Optional: []string{"user"}},
	})
}
