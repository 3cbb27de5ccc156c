package loquat

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Object is a JSON object whose values stay undecoded, so that fields which the service
// does not know are passed on unchanged.
type Object map[string]json.RawMessage

// Clone returns a copy that shares only the raw values.
func (o Object) Clone() Object { return maps.Clone(o) }

// Set sets key to the JSON of v and returns the object, which Set creates if o is nil. It
// panics if v cannot be encoded, which is a programming error.
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

// String returns the string at key, or "" if key holds no string.
func (o Object) String(key string) string {
	s, _ := StringOf(o[key])
	return s
}

// StringOf returns the text of a JSON string. ok is false if raw is something else.
func StringOf(raw json.RawMessage) (s string, ok bool) {
	if s, ok = plainString(raw); ok || len(raw) == 0 || raw[0] == 'n' {
		return s, ok
	}
	return s, json.Unmarshal(raw, &s) == nil
}

// plainString returns the text of a JSON string that has neither escapes nor broken UTF-8.
func plainString(raw json.RawMessage) (string, bool) {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
		return "", false
	}
	text := raw[1 : len(raw)-1]
	for _, c := range text {
		if c < ' ' || c == '"' || c == '\\' {
			return "", false
		}
	}
	return string(text), utf8.Valid(text)
}

// Bool reports whether the value at key is true.
func (o Object) Bool(key string) bool { return string(o[key]) == "true" }

// Object returns the object at key, or nil if key holds no object.
func (o Object) Object(key string) Object {
	raw := o[key]
	if len(raw) == 0 {
		return nil
	}
	var v Object
	if json.Unmarshal(raw, &v) != nil {
		return nil
	}
	return v
}

// Clean applies CleanText to the keys and CleanRaw to the values, in place.
func (o Object) Clean() {
	for key, raw := range o {
		o[key] = CleanRaw(raw)
		if name := CleanText(key); name != key {
			o[name] = o[key]
			delete(o, key)
		}
	}
}

// secretNames are the keys whose values are secret in every object.
var secretNames = []string{"api_key", "token", "password", "secret", "authorization"}

// SecretName reports whether the name of a key alone marks its value as secret.
func SecretName(key string) bool { return slices.Contains(secretNames, strings.ToLower(key)) }

// The roles of a message.
const (
	RoleUser      = "user"
	RoleAssistant = "assistant"
	RoleSystem    = "system"
	RoleTool      = "tool"
)

// ValidRole reports whether a message may have the role.
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
	MetaReasoningBefore  = "reasoning_before_text" // of a response: bytes of the reasoning that came before the text; absent if all did
	MetaToolCalls        = "tool_calls"
	MetaToolCallID       = "tool_call_id"
	MetaToolName         = "tool_name"
	MetaDisplay          = "display"
	MetaIsError          = "is_error"         // true on a tool message that reports an error
	MetaIncomplete       = "incomplete"       // why the text ends early: cancelled, error or interrupted
	MetaFinishReason     = "finish_reason"    // why the model ended, unless it is stop or tool calls
	MetaRefusal          = "refusal"          // why the model refused to answer, in its own words
	MetaStreamRestarted  = "stream_restarted" // on a partial: earlier partials of the phase are void
	MetaAttachments      = "attachments"
	MetaProvider         = "provider" // the provider_id that made an assistant message
	MetaModel            = "model"    // the model that made an assistant message
	MetaUsage            = "usage"
	MetaUsagePrompt      = "usage_prompt_tokens"
	MetaUsageCompletion  = "usage_completion_tokens"
	MetaUsageReasoning   = "usage_reasoning_tokens"
	MetaTitle            = "title"     // session metadata
	MetaOverrides        = "overrides" // session metadata
	MetaPinned           = "pinned"    // session metadata, see Labels
	MetaArchived         = "archived"  // session metadata, see Labels
	MetaTags             = "tags"      // session metadata, see Labels
)

// Message is one entry of a session. Its index in the session is its position, from 0.
type Message struct {
	ID        string    `json:"id"`
	Role      string    `json:"role" enum:"user,assistant,system,tool"`
	Content   string    `json:"content"`
	Metadata  Object    `json:"metadata,omitempty"`
	CreatedAt time.Time `json:"created_at"`
}

// NewMessage is a message that a client wants to append.
type NewMessage struct {
	Role        string            `json:"role" enum:"user,assistant,system,tool"`
	Content     string            `json:"content"`
	Metadata    Object            `json:"metadata,omitempty"`
	Attachments []json.RawMessage `json:"attachments,omitempty" doc:"Images: {type, url}, {type, data_url} or {type, asset_id}."`
}

// MessagePatch describes a change of a message: its new content.
type MessagePatch struct {
	Content string `json:"content"`
}

// MessageResult answers a call that appends or modifies a message.
type MessageResult struct {
	Index         int     `json:"index"`
	Message       Message `json:"message"`
	CursorEventID EventID `json:"cursor_event_id"`
}

// MessageIndices selects messages of a session.
type MessageIndices struct {
	Indices []int `json:"indices,omitempty" doc:"From 0; the order does not matter."`
}

// DeleteResult answers a call that deletes messages.
type DeleteResult struct {
	Indices       []int   `json:"indices"`
	CursorEventID EventID `json:"cursor_event_id"`
}

// ToolCalls returns the tool calls of an assistant message. It returns nil if they cannot
// be decoded.
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

// AssetIDs returns the ids of the assets that the message's attachments refer to. It skips
// attachments that cannot be decoded.
func (m Message) AssetIDs() []string {
	raw := m.Metadata[MetaAttachments]
	// Decoding inline images is expensive, so skip it if no attachment can have an asset_id.
	// A backslash may belong to an escaped spelling of that name.
	if !bytes.Contains(raw, []byte("asset_id")) && !bytes.ContainsRune(raw, '\\') {
		return nil
	}
	var list []json.RawMessage
	_ = json.Unmarshal(raw, &list) // anything but a list leaves it empty
	var ids []string
	for _, raw := range list {
		var attachment Object
		_ = json.Unmarshal(raw, &attachment) // anything but an object leaves it empty
		if id := attachment.String("asset_id"); id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

// ToolCall is a tool call of a model, in the chat-completions convention. Extra and
// FunctionExtra hold the fields that the service does not know. They are sent back to the
// backend unchanged.
type ToolCall struct {
	ID            string
	Name          string
	Arguments     string // JSON as the model wrote it; may be empty or invalid
	Extra         Object // other fields of the call, including `type`
	FunctionExtra Object // other fields of its `function`
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

// UnmarshalJSON reads the form that MarshalJSON writes. If `id` is missing, it uses
// `tool_call_id`.
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
