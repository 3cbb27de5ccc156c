package tui

import (
	"fmt"
	"strings"
	"time"

	"loquat"
)

// pipeWidth is how many characters of an event a line has where no terminal sets
// a width.
const pipeWidth = 200

// Line writes an event as one readable line, aligned with those before and after:
// id, type, session, request, and a beginning of what it says.
func (s *Screen) Line(e loquat.Event) {
	width := s.Width
	if width == 0 {
		width = pipeWidth
	}
	request := e.RequestID
	if request == "" {
		request = "-"
	}
	text := fmt.Sprintf("%s  %-17s  %s  %-12s  %s", e.EventID, e.Type, e.SessionID, request, gist(e))
	s.print(plain, loquat.Clip(strings.TrimRight(OneLine(text), " "), width)+"\n")
}

// gist is what an event says, in short.
func gist(e loquat.Event) string {
	switch e.Type {
	case loquat.AssistantMessage:
		return e.Phase
	case loquat.Partial:
		return partialGist(e.Message)
	case loquat.Final, loquat.ToolResults:
		return messagesGist(e.Messages)
	case loquat.ToolCalls:
		return callsGist(e.ToolCalls)
	case loquat.ToolPartial:
		return toolPartialGist(e)
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
		return changeGist(e)
	case loquat.MessagesDeleted:
		return fmt.Sprint(e.Indices)
	}
	return ""
}

func partialGist(d *loquat.Delta) string {
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

func messagesGist(messages []loquat.Message) string {
	parts := make([]string, len(messages))
	for i, m := range messages {
		parts[i] = m.Role + ": " + displayed(m)
		for _, key := range []string{loquat.MetaRefusal, loquat.MetaFinishReason, loquat.MetaIncomplete} {
			if why := m.Metadata.String(key); why != "" {
				parts[i] += " (" + key + ": " + why + ")"
			}
		}
	}
	return strings.Join(parts, "; ")
}

func callsGist(calls []loquat.ToolCall) string {
	parts := make([]string, len(calls))
	for i, c := range calls {
		parts[i] = c.Name + " " + c.Arguments
	}
	return strings.Join(parts, "; ")
}

func toolPartialGist(e loquat.Event) string {
	text := e.Phase + " " + e.ToolCallID
	if e.Payload != nil && e.Payload.Part != nil {
		text += " " + *e.Payload.Part
	}
	return text
}

func changeGist(e loquat.Event) string {
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
