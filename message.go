package loquat

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
)

// Object is a JSON object whose values are kept as they came, so that what this
// service does not know passes through unharmed.
type Object map[string]json.RawMessage

// Clone returns a copy that shares only the raw values.
func (o Object) Clone() Object { return maps.Clone(o) }

// Set encodes v under key, making the object when it is nil, and returns it.
// It panics when v cannot be encoded, which is a programmer's mistake.
func (o Object) Set(key string, v any) Object {
	b, err := json.Marshal(v)
	if err != nil {
		panic("loquat: Object.Set " + key + ": " + err.Error())
	}
	if o == nil {
		o = Object{}
	}
	o[key] = b
	return o
}

// String returns the string at key, or "" when there is none.
func (o Object) String(key string) string {
	var s string
	if json.Unmarshal(o[key], &s) != nil {
		return ""
	}
	return s
}

// Bool reports whether the value at key is true.
func (o Object) Bool(key string) bool { return string(o[key]) == "true" }

// Object returns the object at key, or nil when there is none.
func (o Object) Object(key string) Object {
	var v Object
	if json.Unmarshal(o[key], &v) != nil {
		return nil
	}
	return v
}

// Clean does to all values, and to the keys, what CleanText and CleanRaw do, in place.
func (o Object) Clean() {
	for key, raw := range o {
		o[key] = CleanRaw(raw)
		if name := CleanText(key); name != key {
			o[name] = o[key]
			delete(o, key)
		}
	}
}

// secretNames are the keys whose values are secret wherever they stand.
var secretNames = []string{"api_key", "token", "password", "secret", "authorization"}

// SecretName reports whether the value at a key is secret by the key's name alone.
func SecretName(key string) bool { return slices.Contains(secretNames, strings.ToLower(key)) }

// The roles of a message.
const (
	RoleUser      = "user"
	RoleAssistant = "assistant"
	RoleSystem    = "system"
	RoleTool      = "tool"
)

// ValidRole reports whether role is one of the four that a message may have.
func ValidRole(role string) bool {
	switch role {
	case RoleUser, RoleAssistant, RoleSystem, RoleTool:
		return true
	}
	return false
}

// The keys of message metadata that the service defines.
const (
	MetaReasoning        = "reasoning"
	MetaReasoningContent = "reasoning_content"
	MetaReasoningDetails = "reasoning_details"
	MetaToolCalls        = "tool_calls"
	MetaToolCallID       = "tool_call_id"
	MetaToolName         = "tool_name"
	MetaDisplay          = "display"
	MetaIsError          = "is_error"         // true on a tool message that tells of a failure
	MetaIncomplete       = "incomplete"       // cancelled, error or interrupted: why the text ends early
	MetaStreamRestarted  = "stream_restarted" // on a partial: what the phase streamed before is void
	MetaAttachments      = "attachments"
	MetaProvider         = "provider" // the provider_id that made an assistant message
	MetaModel            = "model"    // the model that made an assistant message
	MetaUsage            = "usage"
	MetaTitle            = "title"     // session metadata
	MetaOverrides        = "overrides" // session metadata
)

// Message is one entry of a session. Its index is its place in the session.
type Message struct {
	ID        string    `json:"id"`
	Role      string    `json:"role" enum:"user,assistant,system,tool"`
	Content   string    `json:"content"`
	Metadata  Object    `json:"metadata,omitempty"`
	CreatedAt time.Time `json:"created_at"`
}

// NewMessage is a message as a client gives it.
type NewMessage struct {
	Role        string            `json:"role" enum:"user,assistant,system,tool"`
	Content     string            `json:"content"`
	Metadata    Object            `json:"metadata,omitempty"`
	Attachments []json.RawMessage `json:"attachments,omitempty" doc:"Images: {type, url}, {type, data_url} or {type, asset_id}."`
}

// MessagePatch replaces the content of a message.
type MessagePatch struct {
	Content string `json:"content"`
}

// MessageResult answers an append and a modification.
type MessageResult struct {
	Index         int     `json:"index"`
	Message       Message `json:"message"`
	CursorEventID EventID `json:"cursor_event_id"`
}

// MessageIndices names messages of a session.
type MessageIndices struct {
	Indices []int `json:"indices,omitempty" doc:"From 0; the order does not matter."`
}

// DeleteResult answers a deletion of messages.
type DeleteResult struct {
	Indices       []int   `json:"indices"`
	CursorEventID EventID `json:"cursor_event_id"`
}

// ToolCalls returns the calls that an assistant message asks for. A value that
// cannot be read counts as none.
func (m Message) ToolCalls() []ToolCall {
	raw, ok := m.Metadata[MetaToolCalls]
	if !ok {
		return nil
	}
	var calls []ToolCall
	if json.Unmarshal(raw, &calls) != nil {
		return nil
	}
	return calls
}

// AssetIDs returns the assets that the message's attachments name. A value that cannot
// be read counts as none.
func (m Message) AssetIDs() []string {
	raw := m.Metadata[MetaAttachments]
	// Most attachments are none, and inline images are too large to be parsed for nothing.
	// A name may hide behind escapes.
	if !bytes.Contains(raw, []byte("asset_id")) && !bytes.ContainsRune(raw, '\\') {
		return nil
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return nil
	}
	var ids []string
	for _, raw := range list {
		var attachment Object
		if json.Unmarshal(raw, &attachment) != nil {
			continue
		}
		if id := attachment.String("asset_id"); id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

// ToolCall is a call that a model asks for, in the chat-completions convention.
// Fields that this service does not know stay in Extra and FunctionExtra and go
// back to the backend as they came.
type ToolCall struct {
	ID            string
	Name          string
	Arguments     string // JSON, as the model wrote it: may be empty or broken
	Extra         Object // further fields of the call, `type` among them
	FunctionExtra Object // further fields of its `function`
}

// MarshalJSON writes {id, …, function: {name, arguments, …}}.
func (c ToolCall) MarshalJSON() ([]byte, error) {
	fn := c.FunctionExtra.Clone().Set("name", c.Name).Set("arguments", c.Arguments)
	out := c.Extra.Clone().Set("id", c.ID).Set("function", fn)
	if _, ok := out["type"]; !ok {
		out.Set("type", "function")
	}
	return json.Marshal(map[string]json.RawMessage(out))
}

// UnmarshalJSON reads what MarshalJSON writes; `tool_call_id` stands in for a
// missing `id`.
func (c *ToolCall) UnmarshalJSON(b []byte) error {
	var all Object
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	*c = ToolCall{ID: all.String("id")}
	if c.ID == "" {
		c.ID = all.String("tool_call_id")
	}
	fn := all.Object("function")
	c.Name, c.Arguments = fn.String("name"), fn.String("arguments")
	delete(fn, "name")
	delete(fn, "arguments")
	delete(all, "id")
	delete(all, "function")
	if len(fn) > 0 {
		c.FunctionExtra = fn
	}
	if len(all) > 0 {
		c.Extra = all
	}
	return nil
}
