package provider

import (
	"encoding/json"

	"loquat"
)

// chunk holds the decoded content of one event of a stream, or of a whole completion.
// Its slices are views that the next decode overwrites.
type chunk struct {
	model            []byte
	text             []byte
	reasoning        []byte // of metadata.reasoning
	reasoningContent []byte // of metadata.reasoning_content
	refusal          []byte
	finish           []byte
	usage            json.RawMessage
	failure          json.RawMessage // the error that the backend reports
	parts            []json.RawMessage
	calls            []callDelta
	legacy           *callDelta // of the function_call of a delta
	whole            bool       // calls holds complete calls from a message, not deltas
	fields           []field    // the other members of the delta
	notes            []field    // the other members of the completion for which noted is true

	choices bool // the answer had a choices list, which may be empty
	choice  bool // there was a choice 0
}

// field holds a member of an object whose value is kept unchanged.
type field struct {
	key   []byte
	value json.RawMessage
}

// callDelta holds a part of a tool call, or a whole call.
type callDelta struct {
	index          int  // -1 when none was given
	custom         bool // it calls a custom tool: args is the text of its input
	id, name, args []byte
	extra, fnExtra []field
}

func (c *chunk) reset() {
	*c = chunk{parts: c.parts[:0], calls: c.calls[:0], fields: c.fields[:0], notes: c.notes[:0]}
}

// The names of reasoning in a delta, which it keeps as metadata. The texts of the first two are kept separately.
const (
	reasoningContent = loquat.MetaReasoningContent
	reasoningPlain   = loquat.MetaReasoning
	reasoningDetails = loquat.MetaReasoningDetails
	contentParts     = "content_parts" // our name for the parts of a content list that are not text
)

const (
	functionCall = "function_call" // the one call of a reply, in the form that tool_calls replaced
	customTool   = "custom"        // type of a call whose argument is a text, and its member with name and input
	customInput  = "input"
)

// noted reports whether a member of the completion itself is kept. These are the members
// in which search backends list their sources.
func noted(key []byte) bool {
	switch string(key) {
	case "citations", "search_results", "images", "related_questions":
		return true
	}
	return false
}

// saysNothing reports whether v is null or "".
func saysNothing(v json.RawMessage) bool {
	return len(v) == 0 || string(v) == "null" || string(v) == `""`
}
