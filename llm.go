package loquat

import (
	"context"
	"encoding/json"
	"io"
	"time"
)

// LLMRequest is one call of a model: a phase of a request.
type LLMRequest struct {
	ProviderID string            // key under `providers`
	SessionID  string            // of the session that asks
	RequestID  string            // "" when no request asks, as for a summary
	Config     Object            // effective config of the request
	Concealed  Object            // the same with its secrets as {"set": true}, for plugins that have no need of them
	Messages   []Message         // oldest first
	Tools      []json.RawMessage // tool schemas in the chat-completions convention
	Stream     bool

	// OpenAsset opens an image of the session, for attachments that name one. Nil opens
	// none. It may be called again and again, as long as the phase runs.
	OpenAsset func(ctx context.Context, assetID string) (Asset, io.ReadCloser, error)

	// Params are merged over the fields that the adapter itself sends; a null
	// removes the field. Features fill it. The ReservedParams are not among them.
	Params Object
}

// ReservedParams are the fields of a call that the service itself decides.
func ReservedParams() []string { return []string{"messages", "model", "stream"} }

// Chunk is what a provider yields while a phase runs. The last one has Reply set.
// A chunk that comes together with an error may have Reply set too: it then holds
// what the dead stream had told, of which only Metadata's usage keys count.
type Chunk struct {
	Text             string // increment of visible text
	Reasoning        string // increment of metadata.reasoning
	ReasoningContent string // increment of metadata.reasoning_content
	Extra            Object // further metadata of the increment, such as reasoning_details
	Restarted        bool   // first chunk of a recovered stream: what came before is void
	Retry            *Retry // a wait or recovery that is about to begin; nothing else is set
	Reply            *Reply
}

// Reply is the model's whole answer of one phase.
type Reply struct {
	Content      string
	Metadata     Object // reasoning, usage, provider, model and what else came; not tool_calls
	ToolCalls    []ToolCall
	FinishReason string // what the backend said, or what follows from the reply
}

// Retry tells of an attempt that is about to be made again.
type Retry struct {
	Attempt  int // 1 for the first of its counter
	Cause    string
	Status   int // HTTP status, 0 when there was none
	Delay    time.Duration
	ResumeAt time.Time
}

// Model describes a model that a backend offers. Fields beyond id and name are the
// provider's and pass through.
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

// UnmarshalJSON reads what MarshalJSON writes.
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
