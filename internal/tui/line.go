package tui

import (
	"fmt"
	"strings"
	"time"

	"loquat"
	"loquat/internal/readable"
)

// pipeWidth is the length of a line in characters if there is no terminal with a width.
const pipeWidth = 200

// Line writes an event as one line with aligned columns: id, type, session, request, and the
// beginning of a summary.
func (s *Screen) Line(e loquat.Event) {
	width := s.Width
	if width == 0 {
		width = pipeWidth
	}
	request := e.RequestID
	if request == "" {
		request = "-"
	}
	text := fmt.Sprintf("%s  %-17s  %s  %-12s  %s", e.EventID, e.Type, e.SessionID, request, summarizeEvent(e))
	s.print(plain, loquat.Clip(strings.TrimRight(OneLine(text), " "), width)+"\n")
}

// summarizeEvent returns the content of an event as one short text.
func summarizeEvent(e loquat.Event) string {
	switch e.Type {
	case loquat.AssistantMessage:
		return e.Phase
	case loquat.Partial:
		return summarizePartial(e.Message)
	case loquat.Final, loquat.ToolResults:
		return summarizeMessages(e.Messages)
	case loquat.ToolCalls:
		return summarizeCalls(e.ToolCalls)
	case loquat.ToolPartial:
		return summarizeToolPartial(e)
	case loquat.ErrorEvent:
		return e.Detail
	case loquat.RetryScheduled:
		return retryNotice(e)
	case loquat.Checkpoint:
		if e.Timestamp != nil {
			return e.Timestamp.Format(time.RFC3339)
		}
	case loquat.SessionCreated:
		if e.SourceSessionID != "" {
			return "agent " + e.AgentID + ", fork of " + e.SourceSessionID
		}
		return "agent " + e.AgentID
	case loquat.MessageAppended, loquat.MessageModified:
		return summarizeChange(e)
	case loquat.MessagesDeleted:
		return fmt.Sprint(e.Indices)
	}
	return ""
}

func summarizePartial(d *loquat.Delta) string {
	if d == nil {
		return ""
	}
	text := d.Content
	if text == "" && reasoning(d.Metadata) != "" {
		text = "(reasoning) " + reasoning(d.Metadata)
	}
	if d.Metadata.Bool(loquat.MetaStreamRestarted) {
		text = "(restarted) " + text
	}
	return text
}

func summarizeMessages(messages []loquat.Message) string {
	parts := make([]string, len(messages))
	for i, m := range messages {
		parts[i] = m.Role + ": " + readable.Displayed(m)
		for _, key := range []string{loquat.MetaRefusal, loquat.MetaFinishReason, loquat.MetaIncomplete} {
			if why := m.Metadata.String(key); why != "" {
				parts[i] += " (" + key + ": " + why + ")"
			}
		}
	}
	return strings.Join(parts, "; ")
}

func summarizeCalls(calls []loquat.ToolCall) string {
	parts := make([]string, len(calls))
	for i, c := range calls {
		parts[i] = c.Name + " " + c.Arguments
	}
	return strings.Join(parts, "; ")
}

func summarizeToolPartial(e loquat.Event) string {
	text := e.Phase + " " + e.ToolCallID
	if e.Payload != nil && e.Payload.Part != nil {
		text += " " + *e.Payload.Part
	}
	return text
}

func summarizeChange(e loquat.Event) string {
	text := ""
	switch {
	case e.Content != nil:
		text = *e.Content
	case e.Message != nil:
		text = e.Message.Content
	}
	if e.Index != nil {
		return fmt.Sprintf("[%d] %s", *e.Index, text)
	}
	return e.Role + ": " + text
}
