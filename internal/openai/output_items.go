package openai

import (
	"encoding/json"
	"fmt"

	"loquat"
)

// The types of items.
const (
	itemReasoning = "reasoning"
	itemMessage   = "message"
	itemCall      = "function_call"

	itemCompaction = "compaction"
)

// The states of items.
const (
	statusInProgress = "in_progress"
	statusCompleted  = "completed"
	statusIncomplete = "incomplete"
)

// outputItem is an item of the output of a response.
type outputItem struct {
	kind     string
	id       string
	text     string // of reasoning or a message; the arguments of a call
	refusal  bool   // text is a refusal
	call     loquat.ToolCall
	function function // of a call
	status   string
	late     bool // reasoning that came after the text
}

// body returns the item as clients read it.
func (o outputItem) body() map[string]any {
	out := map[string]any{"type": o.kind, "id": o.id}
	switch o.kind {
	case itemReasoning:
		out["summary"], out["content"] = []any{}, []any{}
		if o.status != statusInProgress {
			out["content"] = []any{o.part()}
		}
	case itemMessage:
		out["role"], out["status"], out["content"] = loquat.RoleAssistant, o.status, []any{}
		if o.status != statusInProgress {
			out["content"] = []any{o.part()}
		}
	case itemCall:
		out["status"], out["call_id"], out["arguments"] = o.status, o.call.ID, o.text
		o.function.setIn(out)
	}
	return out
}

// part returns the content part with the text.
func (o outputItem) part() map[string]any {
	switch {
	case o.kind == itemReasoning:
		return map[string]any{"type": "reasoning_text", "text": o.text}
	case o.refusal:
		return map[string]any{"type": "refusal", "refusal": o.text}
	}
	return map[string]any{"type": "output_text", "text": o.text, "annotations": []any{}, "logprobs": []any{}}
}

// itemID returns the id of an item of an assistant message.
func itemID(kind, messageID string) string {
	return map[string]string{itemReasoning: "rs_", itemMessage: "msg_", itemCall: "fc_"}[kind] + messageID
}

// reasoningOf returns the text of the reasoning in metadata, and its key.
func reasoningOf(metadata loquat.Object) (text, key string) {
	for _, key := range []string{loquat.MetaReasoningContent, loquat.MetaReasoning} {
		if text := metadata.String(key); text != "" {
			return text, key
		}
	}
	return "", ""
}

// splitReasoning divides reasoning into what came before the text and what came after it.
func splitReasoning(text string, metadata loquat.Object) (before, late string) {
	var n int
	if raw := metadata[loquat.MetaReasoningBefore]; len(raw) == 0 || json.Unmarshal(raw, &n) != nil || n < 0 || n >= len(text) {
		return text, ""
	}
	n = loquat.CharacterStart(text, n)
	return text[:n], text[n:]
}

// statusOf returns the status of the items of an assistant message.
func statusOf(m loquat.Message) string {
	if m.Metadata.String(loquat.MetaIncomplete) != "" {
		return statusIncomplete
	}
	return statusCompleted
}

// itemsOf returns the items of an assistant message of a request: reasoning, then text, then reasoning
// that came after the text, then the calls of the functions that the caller runs. The calls of the
// server's own tools are left out: they have their results already, and a program would run them again.
func itemsOf(m loquat.Message, functions functions) []outputItem {
	status := statusOf(m)
	var out []outputItem
	reasoning, _ := reasoningOf(m.Metadata)
	reasoning, late := splitReasoning(reasoning, m.Metadata)
	if reasoning != "" {
		out = append(out, outputItem{kind: itemReasoning, id: itemID(itemReasoning, m.ID), text: reasoning, status: status})
	}
	calls := m.ToolCalls()
	refusal := m.Metadata.String(loquat.MetaRefusal)
	switch message := (outputItem{kind: itemMessage, id: itemID(itemMessage, m.ID), text: m.Content, status: status}); {
	case m.Content == "" && refusal != "":
		message.text, message.refusal = refusal, true
		out = append(out, message)
	case m.Content != "" || len(calls) == 0 && len(out) == 0:
		out = append(out, message)
	}
	if late != "" {
		out = append(out, outputItem{kind: itemReasoning, id: itemID(itemReasoning, m.ID) + "-late", text: late, status: status, late: true})
	}
	for i, call := range calls {
		f, known := functions[call.Name]
		if functions == nil {
			f, known = function{Name: call.Name}, true
		}
		if known {
			out = append(out, outputItem{kind: itemCall, id: fmt.Sprintf("%s-%d", itemID(itemCall, m.ID), i), text: call.Arguments, call: call, function: f, status: statusCompleted})
		}
	}
	return out
}

// inputItems returns all items of a message. Those of a reply have the ids that its response gives them.
func inputItems(m loquat.Message) []map[string]any {
	id := m.ID
	switch m.Role {
	case loquat.RoleTool:
		return []map[string]any{{"type": "function_call_output", "id": "fco_" + id, "call_id": m.Metadata.String(loquat.MetaToolCallID), "output": m.Content, "status": statusCompleted}}
	case loquat.RoleUser, loquat.RoleSystem:
		parts := []any{}
		if m.Content != "" {
			parts = append(parts, map[string]any{"type": "input_text", "text": m.Content})
		}
		return []map[string]any{{"type": itemMessage, "id": "msg_" + id, "role": m.Role, "status": statusCompleted, "content": append(parts, imageParts(m)...)}}
	}
	var out []map[string]any
	for _, item := range itemsOf(m, nil) {
		out = append(out, item.body())
	}
	return out
}

// imageParts returns the images of a message as content parts.
func imageParts(m loquat.Message) (parts []any) {
	var list []loquat.Object
	if json.Unmarshal(m.Metadata[loquat.MetaAttachments], &list) != nil {
		return nil
	}
	for _, a := range list {
		var url any
		for _, key := range []string{"url", "data_url"} {
			if text := a.String(key); text != "" {
				url = text
			}
		}
		parts = append(parts, map[string]any{"type": "input_image", "image_url": url, "detail": "auto"})
	}
	return parts
}
