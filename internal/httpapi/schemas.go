package httpapi

import (
	"github.com/danielgtaylor/huma/v2"

	"loquat"
	"loquat/internal/httpapi/route"
)

// newSchemas returns the schemas of the API. Those that Go types cannot express are added.
func newSchemas() route.Schemas {
	s := route.NewSchemas()
	s.Alias(loquat.EventID(0), eventIDText(""))
	s.Alias(loquat.RequestStatus(""), statusText(""))
	s.Alias(loquat.Model{}, modelText{})
	s.Alias(loquat.ToolCall{}, toolCallText{})
	addAttachments(s)
	addEvents(s)
	addElements(s)
	s.Require(loquat.MadeToken{}, "token", "created_at")
	return s
}

// eventIDText is how JSON shows a loquat.EventID.
type eventIDText string

func (eventIDText) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Pattern: `^[0-9]{16}$`, Description: "An id of the event log: 16 decimal digits."}
}

// statusText is how JSON shows a loquat.RequestStatus.
type statusText string

func (statusText) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Enum: []any{string(loquat.StatusQueued), string(loquat.StatusRunning),
		string(loquat.StatusCompleted), string(loquat.StatusFailed), string(loquat.StatusCancelled)}}
}

// modelText is how JSON shows a loquat.Model.
type modelText struct {
	_    struct{} `additionalProperties:"true"`
	ID   string   `json:"id"`
	Name string   `json:"name,omitempty"`
}

// toolCallText is how JSON shows a loquat.ToolCall.
type toolCallText struct {
	_        struct{}     `additionalProperties:"true"`
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function functionText `json:"function"`
}

type functionText struct {
	_         struct{} `additionalProperties:"true"`
	Name      string   `json:"name"`
	Arguments string   `json:"arguments"`
}
