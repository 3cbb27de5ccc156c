package httpapi

import (
	"maps"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"loquat"
)

// variant is one form of a value. The value of one field selects the form.
type variant struct {
	value    string // of that field
	name     string // of the schema
	doc      string
	required []string
	optional []string
	fields   map[string]*huma.Schema // of this variant alone, or narrower than usual
}

// union registers the schema name, which is one of the variants. The field by selects the
// variant. usual has the schemas of the fields, and always names those that all variants have.
func (s schemas) union(name, by, doc string, usual map[string]*huma.Schema, always []string, variants []variant) {
	out := &huma.Schema{Description: doc, Discriminator: &huma.Discriminator{PropertyName: by, Mapping: map[string]string{}}}
	for _, v := range variants {
		properties := map[string]*huma.Schema{}
		for _, field := range slices.Concat(always, v.required, v.optional) {
			properties[field] = usual[field]
		}
		maps.Copy(properties, v.fields)
		properties[by] = oneText(v.value)
		s.registry.Map()[v.name] = &huma.Schema{
			Type: huma.TypeObject, Description: v.doc, Properties: properties, Required: slices.Concat(always, v.required),
		}
		ref := schemaPrefix + v.name
		out.OneOf = append(out.OneOf, &huma.Schema{Ref: ref})
		out.Discriminator.Mapping[v.value] = ref
	}
	s.registry.Map()[name] = out
}

// oneText is the schema of a text that has one value, as a list, which more generators know
// than `const`.
func oneText(value string) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Enum: []any{value}}
}

func refTo(name string) *huma.Schema { return &huma.Schema{Ref: schemaPrefix + name} }

func listOf(items *huma.Schema) *huma.Schema { return &huma.Schema{Type: huma.TypeArray, Items: items} }

func texts(values ...any) *huma.Schema { return &huma.Schema{Type: huma.TypeString, Enum: values} }

// The names of the schemas that are unions.
const (
	eventSchema      = "Event"
	attachmentSchema = "Attachment"
	metadataSchema   = "MessageMetadata"
)

// addAttachments describes the forms of an attachment, and where attachments stand.
func (s schemas) addAttachments() {
	forms := []struct{ name, field, doc string }{
		{"ImageByURL", "url", "An absolute http or https URL, which the backend loads."},
		{"ImageByDataURL", "data_url", "The image itself: data:image/png;base64,…"},
		{"ImageByAsset", "asset_id", "An image that was uploaded to the session."},
	}
	one := &huma.Schema{Description: "An image of a message. It has exactly one of url, data_url and asset_id."}
	for _, form := range forms {
		s.registry.Map()[form.name] = &huma.Schema{
			Type: huma.TypeObject, Required: []string{"type", form.field}, AdditionalProperties: false,
			Properties: map[string]*huma.Schema{"type": oneText("image"), form.field: {Type: huma.TypeString, Description: form.doc}},
		}
		one.OneOf = append(one.OneOf, refTo(form.name))
	}
	s.registry.Map()[attachmentSchema] = one
	s.registry.Map()[metadataSchema] = &huma.Schema{
		Type: huma.TypeObject, AdditionalProperties: true,
		Description: "What clients, the provider and tools keep with a message, such as model, usage, reasoning_content, tool_calls and incomplete. Any key may be there.",
		Properties:  map[string]*huma.Schema{"attachments": listOf(refTo(attachmentSchema))},
	}
	for _, body := range []any{loquat.NewMessage{}, loquat.Send{}} {
		s.properties(body)["attachments"].Items = refTo(attachmentSchema)
	}
	for _, message := range []any{loquat.Message{}, loquat.Delta{}} {
		s.properties(message)["metadata"] = refTo(metadataSchema)
	}
}

// properties returns the fields of the schema of v's type, to be changed.
func (s schemas) properties(v any) map[string]*huma.Schema {
	return s.registry.SchemaFromRef(s.of(v).Ref).Properties
}

// addEvents describes each type of event. docs/events.md has the same table.
func (s schemas) addEvents() {
	always := []string{"event_id", "type", "session_id"}
	ofRequest := func(fields ...string) []string { return append([]string{"request_id"}, fields...) }
	s.union(eventSchema, "type", "An event of the log. Clients ignore types and fields that they do not know.", s.properties(loquat.Event{}), always, []variant{
		{value: string(loquat.SessionCreated), name: "SessionCreatedEvent", doc: "A session was created or forked.",
			required: []string{"agent_id"}, optional: []string{"source_session_id", "session"}},
		{value: string(loquat.MessageAppended), name: "MessageAppendedEvent", doc: "A message was appended, by a client or by a send.",
			required: []string{"role", "content", "message"}, optional: []string{"metadata", "session"},
			fields: map[string]*huma.Schema{"metadata": refTo(metadataSchema)}},
		{value: string(loquat.MessageModified), name: "MessageModifiedEvent", doc: "The content of a message changed. `message` is there when more than its content changed.",
			required: []string{"index", "content"}, optional: []string{"message", "session"}},
		{value: string(loquat.MessagesDeleted), name: "MessagesDeletedEvent", doc: "Messages were deleted. The indices are those before the deletion.",
			required: []string{"indices"}, optional: []string{"session"}},
		{value: string(loquat.SessionDeleted), name: "SessionDeletedEvent", doc: "A session was deleted. No event of it follows."},
		{value: string(loquat.Checkpoint), name: "CheckpointEvent", doc: "The session was made durable. `agent_id` and `metadata` are there when they changed.",
			required: []string{"timestamp"}, optional: ofRequest("agent_id", "metadata")},
		{value: string(loquat.RequestStarted), name: "RequestStartedEvent", doc: "A request began.", required: ofRequest("stream")},
		{value: string(loquat.AssistantMessage), name: "AssistantMessageEvent", doc: "A streamed reply began or ended.", required: ofRequest("phase"),
			fields: map[string]*huma.Schema{"phase": texts(loquat.PhaseStart, loquat.PhaseEnd)}},
		{value: string(loquat.Partial), name: "PartialEvent", doc: "An increment of a streamed reply. `message.content` is what was added.", required: ofRequest("message")},
		{value: string(loquat.Final), name: "FinalEvent", doc: "A phase of the model ended. `messages` are those that it added.", required: ofRequest("messages")},
		{value: string(loquat.ToolCalls), name: "ToolCallsEvent", doc: "The model asks for tools.", required: ofRequest("tool_calls")},
		{value: string(loquat.ToolPartial), name: "ToolPartialEvent", doc: "The progress of a tool call. `payload` has a part, and at the end the result.",
			required: ofRequest("tool_call_id", "phase", "payload")},
		{value: string(loquat.ToolResults), name: "ToolResultsEvent", doc: "The tool messages of a round, in the order of the calls.", required: ofRequest("messages")},
		{value: string(loquat.RetryScheduled), name: "RetryScheduledEvent", doc: "A call of the backend will be made again. `status` is its HTTP status, if that is the cause.",
			required: ofRequest("attempt", "cause", "delay_seconds", "resume_at"), optional: []string{"status"}},
		{value: string(loquat.ErrorEvent), name: "ErrorEvent", doc: "The request failed.", required: ofRequest("detail")},
		{value: string(loquat.RequestCancelled), name: "RequestCancelledEvent", doc: "The request was cancelled.", required: ofRequest()},
		{value: string(loquat.RequestCompleted), name: "RequestCompletedEvent", doc: "The last event of a request, however it ended.", required: ofRequest()},
	})
}
