package openai

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"loquat"
	"loquat/internal/chat"
)

// The prefixes of ids. The rest is the id of a request or a session.
const (
	responsePrefix     = "resp_"
	conversationPrefix = "conv_"
)

// The states of a response that an item does not have.
const (
	statusFailed    = "failed"
	statusCancelled = "cancelled"
)

// openAIResponse describes a response.
type openAIResponse struct {
	_      struct{}          `additionalProperties:"true"`
	ID     string            `json:"id"`
	Object string            `json:"object" enum:"response"`
	Status string            `json:"status" enum:"in_progress,completed,incomplete,failed,cancelled"`
	Model  string            `json:"model"`
	Output []json.RawMessage `json:"output"`
}

// defaults are the fields of a response that its request did not set.
var defaults = loquat.Object{}.
	Set("previous_response_id", nil).Set("instructions", nil).Set("tools", []any{}).Set("tool_choice", "auto").
	Set("truncation", "disabled").Set("parallel_tool_calls", true).Set("text", map[string]any{"format": map[string]any{"type": "text"}}).
	Set("top_p", 1).Set("presence_penalty", 0).Set("frequency_penalty", 0).Set("top_logprobs", 0).Set("temperature", 1).
	Set("reasoning", nil).Set("max_output_tokens", nil).Set("max_tool_calls", nil).Set("store", true).Set("background", false).
	Set("service_tier", "default").Set("metadata", map[string]any{}).Set("safety_identifier", nil).Set("prompt_cache_key", nil)

// response is a response with its messages.
type response struct {
	chat.Exchange
	functions functions
}

func newResponse(e chat.Exchange) response {
	return response{e, functionsOf(e.Marker.Object("echo")["tools"])}
}

// replies returns the assistant messages.
func (r response) replies() (out []loquat.Message) {
	for _, m := range r.Replies {
		if m.Role == loquat.RoleAssistant {
			out = append(out, m)
		}
	}
	return out
}

// items returns the output.
func (r response) items() (out []outputItem) {
	for _, m := range r.replies() {
		out = append(out, itemsOf(m, r.functions)...)
	}
	return out
}

// begun returns the resource as it was before there was any output.
func (r response) begun() loquat.Object {
	out := defaults.Clone()
	for key, value := range r.Marker.Object("echo") {
		out[key] = value
	}
	out.Set("id", responsePrefix+r.RequestID).Set("object", "response").Set("status", statusInProgress).
		Set("created_at", unix(r.StartedAt)).Set("completed_at", nil).Set("incomplete_details", nil).Set("error", nil).
		Set("output", []any{}).Set("usage", nil).Set("conversation", map[string]string{"id": conversationPrefix + r.SessionID})
	return out
}

func unix(t *time.Time) int64 {
	if t == nil {
		return 0
	}
	return t.Unix()
}

// resource returns the response as it is now.
func (r response) resource() loquat.Object {
	out, output := r.begun(), []any{}
	for _, item := range r.items() {
		output = append(output, item.body())
	}
	status, reason := r.status()
	out.Set("output", output).Set("status", status).Set("usage", r.usage())
	switch status {
	case statusCompleted:
		out.Set("completed_at", unix(r.EndedAt))
	case statusIncomplete:
		out.Set("incomplete_details", map[string]string{"reason": reason})
	case statusFailed:
		out.Set("error", map[string]string{"code": typeServer, "message": r.Error})
	}
	return out
}

// status returns the status, and why the response is incomplete.
func (r response) status() (status, reason string) {
	switch r.Status {
	case loquat.StatusCancelled:
		return statusCancelled, ""
	case loquat.StatusFailed:
		return statusFailed, ""
	case loquat.StatusCompleted:
	default:
		return statusInProgress, ""
	}
	replies := r.replies()
	if len(replies) == 0 {
		return statusCompleted, ""
	}
	switch replies[len(replies)-1].Metadata.String(loquat.MetaFinishReason) {
	case "length":
		return statusIncomplete, "max_output_tokens"
	case "content_filter":
		return statusIncomplete, "content_filter"
	}
	return statusCompleted, ""
}

// usage returns the sum of what the backend reported for all calls, nil if it reported nothing.
func (r response) usage() any { return usageOf(r.replies()) }

// usageOf returns the sum of what the backend reported with replies, nil if it reported nothing.
func usageOf(replies []loquat.Message) any {
	var input, output, cached, reasoning int64
	reported := false
	for _, m := range replies {
		var u struct {
			PromptTokens        int64 `json:"prompt_tokens"`
			CompletionTokens    int64 `json:"completion_tokens"`
			PromptTokensDetails struct {
				CachedTokens int64 `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
			CompletionTokensDetails struct {
				ReasoningTokens int64 `json:"reasoning_tokens"`
			} `json:"completion_tokens_details"`
		}
		if raw := m.Metadata[loquat.MetaUsage]; len(raw) == 0 || json.Unmarshal(raw, &u) != nil {
			continue
		}
		reported = true
		input, output = input+u.PromptTokens, output+u.CompletionTokens
		cached, reasoning = cached+u.PromptTokensDetails.CachedTokens, reasoning+u.CompletionTokensDetails.ReasoningTokens
	}
	if !reported {
		return nil
	}
	return newUsage(input, output, cached, reasoning)
}

func newUsage(input, output, cached, reasoning int64) map[string]any {
	return map[string]any{
		"input_tokens": input, "output_tokens": output, "total_tokens": input + output,
		"input_tokens_details":  map[string]int64{"cached_tokens": cached},
		"output_tokens_details": map[string]int64{"reasoning_tokens": reasoning},
	}
}

// Bounds of what the references of one input may have read and repeated. Without them a small body could
// repeat a large item many times.
const (
	maxReferenced = 4 << 20 // bytes of text
	maxResponses  = 64
)

// errReferenced says that an input refers to more than the bounds allow.
var errReferenced = loquat.Errorf(loquat.CodeTooLarge, "the item_references of the input are of more than %d responses or %d bytes; use previous_response_id, or send the items themselves",
	maxResponses, maxReferenced)

// itemsByID returns a function that finds items of responses by their ids.
func (a *API) itemsByID(ctx context.Context, by chat.By) itemLookup {
	return lookupIn(func(requestID string) ([]outputItem, error) {
		e, err := a.exchange(ctx, by, requestID)
		return newResponse(e).items(), err
	})
}

// lookupIn returns a function that finds items by their ids, which name the request of the response that
// load returns the items of. It loads each response once.
func lookupIn(load func(requestID string) ([]outputItem, error)) itemLookup {
	known, left := map[string]map[string]outputItem{}, maxReferenced
	return func(id string) (loquat.Object, error) {
		notFound := loquat.Errorf(loquat.CodeNotFound, "item %q not found", loquat.Clip(id, loquat.Excerpt))
		_, rest, _ := strings.Cut(id, "_")
		requestID, ok := chat.RequestOfReply(rest)
		if !ok {
			return nil, notFound
		}
		if known[requestID] == nil {
			if len(known) == maxResponses {
				return nil, errReferenced
			}
			items, err := load(requestID)
			if err != nil {
				return nil, err
			}
			known[requestID] = map[string]outputItem{}
			for _, item := range items {
				known[requestID][item.id] = item
			}
		}
		item, ok := known[requestID][id]
		if !ok {
			return nil, notFound
		}
		if left -= len(item.text); left < 0 {
			return nil, errReferenced
		}
		out := loquat.Object{}
		for key, value := range item.body() {
			out.Set(key, value)
		}
		return out, nil
	}
}
