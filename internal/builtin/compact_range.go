package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"loquat"
	"loquat/internal/plugin"
	"loquat/internal/ui"
)

// CompactRange replaces some messages of a session by a summary, which the session's model
// writes.
type CompactRange struct{}

// compactRange is the action_id.
const compactRange = "compact_range"

// Name is the plugin's reference.
func (CompactRange) Name() string { return "loquat.features.compact_range" }

// Kind is feature.
func (CompactRange) Kind() string { return plugin.KindFeature }

// Actions returns compact_range.
func (CompactRange) Actions() []string { return []string{compactRange} }

// UIElements returns a session action whose dialog asks for the range.
func (CompactRange) UIElements(context.Context, ui.Input) ([]loquat.Object, error) {
	type input struct {
		Name        string `json:"name"`
		Type        string `json:"type"`
		Label       string `json:"label"`
		Required    bool   `json:"required"`
		Placeholder string `json:"placeholder,omitempty"`
	}
	return []loquat.Object{loquat.Object{}.
		Set("ui_type", "session_action").
		Set("id", compactRange).
		Set("label", "Compact messages").
		Set("icon", "compress").
		Set("order", 100).
		Set("action_id", compactRange).
		Set("param_map", map[string]string{"start": "$dialog.start", "end": "$dialog.end", "instructions": "$dialog.instructions"}).
		Set("dialog", map[string]any{
			"kind": "form", "title": "Compact messages",
			"message": "A summary, written by the model of this session, replaces these messages. The first message of the session has the number 0.",
			"inputs": []input{
				{Name: "start", Type: "number", Label: "First message", Required: true, Placeholder: "0"},
				{Name: "end", Type: "number", Label: "Last message", Required: true},
				{Name: "instructions", Type: "multiline", Label: "Instructions", Placeholder: "What the summary should keep"},
			},
		}).
		Set("condition", map[string]any{"path": "messages.0", "exists": true})}, nil
}

// span holds the params of the action: two indices, both included.
type span struct {
	start, end   int
	instructions string
}

// Act compacts a range of messages. It holds no lock while the model writes. If the session
// changes meanwhile, Act changes nothing.
func (CompactRange) Act(ctx context.Context, call plugin.ActionCall) (plugin.ActionResult, error) {
	if call.SessionID == "" {
		return plugin.ActionResult{}, loquat.Errorf(loquat.CodeInvalid, "%s is about a session; call it at /sessions/{session_id}/actions/%s", compactRange, compactRange)
	}
	p, err := readSpan(call.Params)
	if err != nil {
		return plugin.ActionResult{}, err
	}
	messages, err := call.Host.Sessions.Messages(ctx, call.SessionID)
	if err != nil {
		return plugin.ActionResult{}, err
	}
	if err := p.within(len(messages)); err != nil {
		return plugin.ActionResult{}, err
	}
	if err := call.Host.Sessions.RequireIdle(ctx, call.SessionID); err != nil {
		return plugin.ActionResult{}, err
	}
	was := messages[p.start : p.end+1]
	reply, err := call.Host.Sessions.Ask(ctx, call.SessionID, AskForSummary(was, p.instructions))
	if err != nil {
		return plugin.ActionResult{}, err
	}
	summary, err := SummaryOf(reply)
	if err != nil {
		return plugin.ActionResult{}, err
	}
	err = call.Host.Sessions.Compact(ctx, call.SessionID, plugin.Compaction{Start: p.start, End: p.end, Was: was, Content: summary})
	if err != nil {
		return plugin.ActionResult{}, err
	}
	return plugin.ActionResult{Result: loquat.Object{}.Set("result", map[string]any{
		"index": p.start, "content": summary, "compacted": len(was),
	})["result"]}, nil
}

// SummaryOf returns the text of a summary, or an error if the summary is incomplete.
func SummaryOf(reply loquat.Reply) (string, error) {
	summary := strings.TrimSpace(reply.Content)
	reason := reply.Metadata.String(loquat.MetaFinishReason)
	switch {
	case reason == "length" || reason == "content_filter":
		return "", loquat.Errorf(loquat.CodeBackendError, "the summary of the model is cut (finish_reason %s); nothing was changed", reason)
	case summary == "":
		why := "wrote no summary"
		if refusal := reply.Metadata.String(loquat.MetaRefusal); refusal != "" {
			why = "refused: " + loquat.Clip(refusal, loquat.Excerpt)
		}
		return "", loquat.Errorf(loquat.CodeBackendError, "the model %s; nothing was changed", why)
	}
	return summary, nil
}

func readSpan(params loquat.Object) (p span, err error) {
	var faults []loquat.FieldError
	read := func(name string, required bool, into any, expected string) {
		raw, given := params[name]
		switch {
		case !given || string(raw) == "null":
			if required {
				faults = append(faults, loquat.FieldError{Location: "body.params." + name, Message: "is missing; it has to be " + expected})
			}
		case json.Unmarshal(raw, into) != nil:
			faults = append(faults, loquat.FieldError{Location: "body.params." + name, Message: "has to be " + expected})
		}
	}
	read("start", true, &p.start, "the index of a message")
	read("end", true, &p.end, "the index of a message")
	read("instructions", false, &p.instructions, "a text")
	if len(faults) > 0 {
		return p, &loquat.Error{Code: loquat.CodeInvalid, Detail: faults[0].Location + " " + faults[0].Message, Fields: faults}
	}
	return p, nil
}

// within checks that the range is within a session with the given number of messages.
func (p span) within(count int) error {
	switch {
	case count == 0:
		return loquat.Invalid("body.params.start", "is %d; the session has no messages", p.start)
	case p.start < 0 || p.start >= count:
		return loquat.Invalid("body.params.start", "is %d; the messages of this session are 0 to %d", p.start, count-1)
	case p.end < p.start || p.end >= count:
		return loquat.Invalid("body.params.end", "is %d; it has to be from start to %d, the last message of this session", p.end, count-1)
	}
	return nil
}

const summaryTask = "You compact conversations. You are given part of a conversation between a user and an assistant. " +
	"Write a summary that can take its place, so that the conversation can go on without it: keep facts, decisions, names, numbers, " +
	"code and open questions, leave out what no longer matters. Answer with the summary alone."

// AskForSummary returns what asks a model for a summary of messages: a single user message with their
// text, so that every backend accepts it, whatever roles and tool calls the messages have.
func AskForSummary(messages []loquat.Message, instructions string) []loquat.Message {
	task := summaryTask
	if instructions != "" {
		task += "\n\nFurther instructions: " + instructions
	}
	var text strings.Builder
	for _, m := range messages {
		fmt.Fprintf(&text, "[%s]\n", m.Role)
		if m.Content != "" {
			fmt.Fprintf(&text, "%s\n", m.Content)
		}
		var attached []json.RawMessage
		if json.Unmarshal(m.Metadata[loquat.MetaAttachments], &attached) == nil && len(attached) > 0 {
			fmt.Fprintf(&text, "(with %d attached images)\n", len(attached))
		}
		for _, c := range m.ToolCalls() {
			fmt.Fprintf(&text, "(calls the tool %s with %s)\n", c.Name, c.Arguments)
		}
		text.WriteString("\n")
	}
	return []loquat.Message{{Role: loquat.RoleSystem, Content: task}, {Role: loquat.RoleUser, Content: text.String()}}
}

// The plugin interfaces that this plugin implements.
var (
	_ plugin.Plugin   = CompactRange{}
	_ plugin.Elements = CompactRange{}
	_ plugin.Actor    = CompactRange{}
)
