package backend

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// chatRequest is what of a chat-completions request matters here; the rest is
// accepted and left alone.
type chatRequest struct {
	Model         string          `json:"model"`
	Messages      []chatMessage   `json:"messages"`
	Stream        bool            `json:"stream"`
	StreamOptions *streamOptions  `json:"stream_options"`
	Tools         []tool          `json:"tools"`
	ToolChoice    json.RawMessage `json:"tool_choice"`
	Script        json.RawMessage `json:"loquat_script"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type chatMessage struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	ToolCalls json.RawMessage `json:"tool_calls"`
}

type tool struct {
	Function struct {
		Name       string          `json:"name"`
		Parameters json.RawMessage `json:"parameters"`
	} `json:"function"`
}

func readChat(w http.ResponseWriter, r *http.Request) (*chatRequest, *fault) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, refuse(http.StatusRequestEntityTooLarge, "", "request_too_large",
			"The request body is over %d bytes.", tooLarge.Limit)
	}
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "", "body_unreadable", "The request body ended early: %v.", err)
	}
	var req chatRequest
	if err := json.Unmarshal(data, &req); err != nil {
		return nil, refuse(http.StatusBadRequest, "", "invalid_json",
			"We could not parse the JSON body of your request: %v.", err)
	}
	if req.Model == "" {
		return nil, refuse(http.StatusBadRequest, "model", "missing_model",
			"You must provide a model; GET /v1/models lists what there is.")
	}
	if len(req.Messages) == 0 {
		return nil, refuse(http.StatusBadRequest, "messages", "empty_array",
			"Invalid 'messages': expected at least one message.")
	}
	return &req, nil
}

func (q *chatRequest) endsInToolResults() bool {
	return q.Messages[len(q.Messages)-1].Role == "tool"
}

// callID is an id for the i-th call of the answer: the same for the same request,
// and none that an earlier answer of the conversation had.
func (q *chatRequest) callID(i int) string {
	return fmt.Sprintf("call_%d_%d", len(q.Messages), i+1)
}

func (q *chatRequest) wantsUsage() bool {
	return q.StreamOptions != nil && q.StreamOptions.IncludeUsage
}

// lastUser is the text of the last user message, and how many images came with it.
func (q *chatRequest) lastUser() (text string, images int) {
	for i := len(q.Messages) - 1; i >= 0; i-- {
		if q.Messages[i].Role == "user" {
			return q.Messages[i].text()
		}
	}
	return "", 0
}

// text is the content, be it a string or a list of parts.
func (m chatMessage) text() (text string, images int) {
	if json.Unmarshal(m.Content, &text) == nil {
		return text, 0
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(m.Content, &parts) != nil {
		return "", 0
	}
	var texts []string
	for _, p := range parts {
		switch p.Type {
		case "text":
			texts = append(texts, p.Text)
		case "image_url":
			images++
		}
	}
	return strings.Join(texts, "\n"), images
}

// promptTokens guesses plausibly and always the same: four bytes of text make a
// token, and each message costs three more.
func (q *chatRequest) promptTokens() int {
	n := 0
	for _, m := range q.Messages {
		text, images := m.text()
		n += 3 + tokens(text) + 85*images + (len(m.ToolCalls)+3)/4
	}
	return n
}

func tokens(text string) int { return (len(text) + 3) / 4 }
