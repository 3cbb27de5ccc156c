package backend

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"loquat"
)

// chatRequest holds the fields of a chat-completions request that the backend uses. Other
// fields are ignored.
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

func readChat(w http.ResponseWriter, r *http.Request) (*chatRequest, *apiError) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, newAPIError(http.StatusRequestEntityTooLarge, "", "request_too_large",
			"The request body is larger than %d bytes.", tooLarge.Limit)
	}
	if err != nil {
		return nil, newAPIError(http.StatusBadRequest, "", "body_unreadable", "The request body ended early: %v.", err)
	}
	var req chatRequest
	if err := json.Unmarshal(data, &req); err != nil {
		return nil, newAPIError(http.StatusBadRequest, "", "invalid_json",
			"We could not parse the JSON body of your request: %v.", err)
	}
	if req.Model == "" {
		return nil, newAPIError(http.StatusBadRequest, "model", "missing_model",
			"You must provide a model; GET /v1/models lists the models.")
	}
	if len(req.Messages) == 0 {
		return nil, newAPIError(http.StatusBadRequest, "messages", "empty_array",
			"Invalid 'messages': expected at least one message.")
	}
	return &req, nil
}

// endsInToolResults reports whether the last message is a tool message, or shows the
// images of tools.
func (q *chatRequest) endsInToolResults() bool {
	last := q.Messages[len(q.Messages)-1]
	if last.Role != "user" {
		return last.Role == "tool"
	}
	text, _ := last.content()
	return strings.HasPrefix(text, loquat.ToolImagesText)
}

// callID returns an id for the i-th tool call of the reply. It is the same for equal
// requests and differs from the ids of earlier replies in the conversation.
func (q *chatRequest) callID(i int) string {
	return fmt.Sprintf("call_%d_%d", len(q.Messages), i+1)
}

func (q *chatRequest) wantsUsage() bool {
	return q.StreamOptions != nil && q.StreamOptions.IncludeUsage
}

// lastUser returns the text of the last user message and the number of its images.
func (q *chatRequest) lastUser() (text string, images int) {
	for i := len(q.Messages) - 1; i >= 0; i-- {
		if q.Messages[i].Role == "user" {
			return q.Messages[i].content()
		}
	}
	return "", 0
}

// content returns the text of a message and the number of its images. The content field is
// a string or a list of parts.
func (m chatMessage) content() (text string, images int) {
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

// promptTokens estimates the tokens of the messages: one for four bytes of text, three more
// for each message and 85 for each image.
func (q *chatRequest) promptTokens() int {
	n := 0
	for _, m := range q.Messages {
		text, images := m.content()
		n += 3 + estimateTokens(text) + 85*images + (len(m.ToolCalls)+3)/4
	}
	return n
}

func estimateTokens(text string) int { return (len(text) + 3) / 4 }
