package loquat

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"time"
)

// LLMRequest is one call of a model: a phase of a request.
type LLMRequest struct {
	ProviderID string            // key under `providers`
	SessionID  string            // of the session that the call is for
	RequestID  string            // "" if the call belongs to no request, such as the call for a summary
	Config     Object            // effective config of the request
	Redacted   Object            // Config with its secrets as {"set": true}, for plugins that do not need the secrets
	Messages   []Message         // oldest first, after those of Earlier; only after OwnMessages may they be changed
	Tools      []json.RawMessage // tool schemas in the chat-completions convention
	Stream     bool

	// Earlier has the messages before Messages, nil if there are none. A provider that does not
	// read it, and a plugin that edits messages, get them in Messages: see ReadEarlier.
	Earlier *EarlierMessages

	// OpenAsset opens an image of the session for an attachment that refers to it. It may
	// be called any number of times while the phase runs. If it is nil, the request has no
	// images to open.
	OpenAsset func(ctx context.Context, assetID string) (Asset, io.ReadCloser, error)

	// Attempted is told of each call of the backend after its end, before Chat ends. A provider that
	// does not call it has made one call. It may be nil.
	Attempted func(Attempt)

	// Params are merged over the fields that the provider's adapter sends. A null removes
	// the field. Features set Params, which do not contain the ReservedParams.
	Params Object
}

// EarlierMessages are stored messages of a session that are read only when they are needed.
type EarlierMessages struct {
	SessionID string
	Version   string // equal as long as no message was changed or removed, only appended
	Count     int

	// Read returns the messages from an index on. The caller must not change them.
	Read func(ctx context.Context, from int) ([]Message, error)
}

// ReadEarlier reads the earlier messages and puts them before Messages.
func (r *LLMRequest) ReadEarlier(ctx context.Context) error {
	if r.Earlier == nil {
		return nil
	}
	earlier, err := r.Earlier.Read(ctx, 0)
	if err != nil {
		return err
	}
	r.Messages, r.Earlier = slices.Concat(earlier, r.Messages), nil
	return nil
}

// OwnMessages reads the earlier messages, and copies all messages, so that a change of them is
// for this call alone.
func (r *LLMRequest) OwnMessages(ctx context.Context) error {
	if err := r.ReadEarlier(ctx); err != nil {
		return err
	}
	r.Messages = slices.Clone(r.Messages)
	for i := range r.Messages {
		r.Messages[i].Metadata = r.Messages[i].Metadata.Clone()
	}
	return nil
}

// ToolImagesText begins the user message that shows a model the images of tools, which
// follows their results: most backends take only text in tool messages.
const ToolImagesText = "[Images that the tools returned:]"

// ReservedParams returns the fields of a call that only the service sets.
func ReservedParams() []string { return []string{"messages", "model", "stream"} }

// IsReservedParam reports whether a field is one of the ReservedParams in any spelling:
// backends that read JSON without regard to case take "Stream" for "stream".
func IsReservedParam(name string) bool {
	return slices.ContainsFunc(ReservedParams(), func(reserved string) bool { return strings.EqualFold(reserved, name) })
}

// Chunk is what a provider yields while a phase runs. The last chunk has Reply set.
// A chunk that comes with an error may have Reply set too. Reply then describes the part
// of the stream before the error, and only the usage keys of its Metadata count.
type Chunk struct {
	Text             string // increment of visible text
	Reasoning        string // increment of metadata.reasoning
	ReasoningContent string // increment of metadata.reasoning_content
	Extra            Object // further metadata of the increment, such as reasoning_details
	Restarted        bool   // first chunk of a recovered stream: earlier chunks of the phase are void
	Retry            *Retry // a retry or recovery that is about to begin; no other field is set
	Reply            *Reply
}

// Reply is the model's whole answer of one phase.
type Reply struct {
	Content      string
	Metadata     Object // reasoning, usage, provider, model and unknown fields; not tool_calls
	ToolCalls    []ToolCall
	FinishReason string // from the backend, or derived from the reply if the backend sent none
}

// Retry announces the next attempt of a call.
type Retry struct {
	Attempt  int // counted from 1, separately for retries and recoveries
	Cause    string
	Status   int // HTTP status; 0: none
	Delay    time.Duration
	ResumeAt time.Time
}

// Model describes a model that a backend offers. Extra holds the fields other than id and
// name, which are passed on unchanged.
type Model struct {
	ID    string
	Name  string
	Extra Object
}

// MarshalJSON writes {id, name?, …}.
func (m Model) MarshalJSON() ([]byte, error) {
	out := m.Extra.Clone().Set("id", m.ID)
	if m.Name != "" {
		out.Set("name", m.Name)
	}
	return json.Marshal(map[string]json.RawMessage(out))
}

// UnmarshalJSON reads the form that MarshalJSON writes.
func (m *Model) UnmarshalJSON(b []byte) error {
	var all Object
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	*m = Model{ID: all.String("id"), Name: all.String("name")}
	delete(all, "id")
	delete(all, "name")
	if len(all) > 0 {
		m.Extra = all
	}
	return nil
}
