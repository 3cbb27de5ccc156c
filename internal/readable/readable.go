// Package readable says what readers are shown of a message, at a terminal as in a file.
package readable

import (
	"cmp"
	"strings"

	"loquat"
)

// Displayed returns the text of a tool message for people.
func Displayed(m loquat.Message) string {
	if d := m.Metadata.Object(loquat.MetaDisplay); d.String("type") == "text" {
		return d.String("content")
	}
	return m.Content
}

// Reasoning returns the reasoning text of a reply. Some backends send two texts, others
// send one text twice.
func Reasoning(meta loquat.Object) string {
	content, plain := meta.String(loquat.MetaReasoningContent), meta.String(loquat.MetaReasoning)
	if content == "" || plain == "" || content == plain {
		return cmp.Or(content, plain)
	}
	return content + Between + plain
}

// Between separates two texts of reasoning.
const Between = "\n\n"

// EndingNotices returns notices about the end of a reply that its text does not show.
func EndingNotices(m loquat.Message) []string {
	var notices []string
	refusal, incomplete := m.Metadata.String(loquat.MetaRefusal), m.Metadata.String(loquat.MetaIncomplete)
	if refusal != "" {
		notices = append(notices, "the model refused: "+refusal)
	}
	switch reason := m.Metadata.String(loquat.MetaFinishReason); reason {
	case "":
	case "length":
		notices = append(notices, "the reply was cut at the token limit (finish_reason length)")
	case "content_filter":
		notices = append(notices, "a content filter of the backend cut the reply (finish_reason content_filter)")
	default:
		notices = append(notices, "the reply ended with finish_reason "+reason)
	}
	switch {
	case incomplete != "":
		notices = append(notices, incompleteNotice(incomplete))
	case strings.TrimSpace(m.Content) == "" && refusal == "" && len(m.ToolCalls()) == 0:
		notices = append(notices, "the reply has no text")
	}
	return notices
}

func incompleteNotice(why string) string {
	switch why {
	case "cancelled":
		return "the reply is incomplete: it was cancelled"
	case "error":
		return "the reply is incomplete: an error cut it off"
	case "interrupted":
		return "the reply is incomplete: the server stopped while it was written"
	}
	return "the reply is incomplete: " + why
}
