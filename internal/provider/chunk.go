package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

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

// chunkDecoder decodes JSON into chunks. JSON of the usual shape is read in one pass by
// the scanner; anything else is read by decodeGeneral.
type chunkDecoder struct {
	scanner
	chunk
	stats Stats

	contentKey       string // the member of a choice that holds the content: delta or message
	hasOtherKey      bool   // the choice has the other one of delta and message
	groq             json.RawMessage
	reasoningDetails json.RawMessage
	seen             uint64
}

// Stats counts how answers were decoded.
type Stats struct {
	Chunks    int // JSON values decoded
	Fallbacks int // how many of them decodeGeneral decoded
}

// maxMembers limits the JSON members of one event or completion, because each member
// costs more memory than it has bytes. Answers with log probabilities of every token have
// by far the most members.
const maxMembers = 4 << 20

var errTooManyMembers = fmt.Errorf("it has more than %d members", maxMembers)

// bounded returns an error for data that would take far more memory than its size.
func bounded(data []byte) error {
	if len(data) > maxMembers && bytes.Count(data, []byte{','}) > maxMembers {
		return errTooManyMembers
	}
	return nil
}

// isBound reports whether err comes from a limit. The answer may still be valid JSON.
func isBound(err error) bool {
	_, deep := errors.AsType[*loquat.DepthError](err)
	return deep || errors.Is(err, errTooManyMembers)
}

// decode reads one event of a stream. The chunk is valid until the next call.
func (d *chunkDecoder) decode(data []byte) (*chunk, error) {
	if err := bounded(data); err != nil {
		return nil, err
	}
	d.stats.Chunks++
	if d.contentKey = "delta"; d.decodeFast(data) {
		return &d.chunk, nil
	}
	d.stats.Fallbacks++
	d.chunk.reset()
	if err := decodeGeneral(data, &d.chunk, "delta", "message"); err != nil {
		return nil, err
	}
	return &d.chunk, nil
}

// decodeWhole reads an answer that is one completion. If it has both a message and a
// delta, the message holds the complete reply and counts.
func (d *chunkDecoder) decodeWhole(data []byte) (*chunk, error) {
	if err := bounded(data); err != nil {
		return nil, err
	}
	if d.contentKey = "message"; d.decodeFast(data) {
		d.chunk.whole = true
		return &d.chunk, nil
	}
	d.chunk.reset()
	if err := decodeGeneral(data, &d.chunk, "message", "delta"); err != nil {
		return nil, err
	}
	return &d.chunk, nil
}

// Bits of known keys. JSON with a key that appears twice is left to decodeGeneral.
const (
	seenModel = 1 << iota
	seenChoices
	seenUsage
	seenError
	seenGroq
	seenObject
	seenChoiceIndex
	seenContentKey
	seenOtherKey
	seenFinish
	seenChoiceUsage
	seenContent
	seenReasoningContent
	seenReasoning
	seenRefusal
	seenCalls
	seenDetails
)

func (d *chunkDecoder) once(bit uint64) bool {
	first := d.seen&bit == 0
	d.seen |= bit
	return first
}

func (d *chunkDecoder) decodeFast(data []byte) bool {
	d.scanner.reset(data)
	d.chunk.reset()
	d.seen, d.hasOtherKey, d.groq, d.reasoningDetails = 0, false, nil, nil
	ok := d.object(d.member) && d.atEnd() && d.isComplete()
	d.scanner.b = nil // a large event is free as soon as its chunk is
	return ok
}

// member reads a member of the completion.
func (d *chunkDecoder) member(key []byte) (ok bool) {
	switch string(key) {
	case "choices":
		if !d.once(seenChoices) {
			return false
		}
		d.choices = true
		return d.array(d.firstChoice)
	case "model":
		if !d.once(seenModel) {
			return false
		}
		return d.stringOrNull(&d.model)
	case "usage":
		return d.once(seenUsage) && d.objectOrNull(&d.usage)
	case "error":
		// Errors are rare, so decodeGeneral reads them, unless the value is null.
		return d.once(seenError) && d.null()
	case "x_groq":
		return d.once(seenGroq) && d.objectOrNull(&d.groq)
	case "object":
		v, ok := d.raw()
		return d.once(seenObject) && ok && string(v) != `"error"`
	}
	v, ok := d.raw()
	if ok && noted(key) {
		return d.keep(&d.notes, key, v)
	}
	return ok
}

// firstChoice reads the only choice. If there are several, it fails and decodeGeneral
// selects one.
func (d *chunkDecoder) firstChoice(i int) bool {
	return i == 0 && d.object(d.choiceMember)
}

func (d *chunkDecoder) choiceMember(key []byte) bool {
	d.choice = true
	switch string(key) {
	case "index":
		n, ok := d.index()
		return d.once(seenChoiceIndex) && ok && n == 0
	case d.contentKey:
		return d.once(seenContentKey) && d.object(d.deltaMember)
	case "delta", "message":
		_, ok := d.raw()
		d.hasOtherKey = true
		return d.once(seenOtherKey) && ok
	case "finish_reason":
		return d.once(seenFinish) && d.stringOrNull(&d.finish)
	case "usage":
		return d.once(seenChoiceUsage) && d.null()
	}
	_, ok := d.raw()
	return ok
}

// deltaMember reads a member of a delta or message.
func (d *chunkDecoder) deltaMember(key []byte) bool {
	switch string(key) {
	case "content":
		return d.once(seenContent) && d.stringOrNull(&d.text)
	case "role":
		var ignored []byte
		return d.stringOrNull(&ignored)
	case reasoningContent:
		return d.once(seenReasoningContent) && d.stringOrNull(&d.chunk.reasoningContent)
	case reasoningPlain:
		return d.once(seenReasoning) && d.stringOrNull(&d.reasoning)
	case "refusal":
		return d.once(seenRefusal) && d.stringOrNull(&d.refusal)
	case "tool_calls":
		if !d.once(seenCalls) {
			return false
		}
		return d.null() || d.array(d.call)
	case functionCall:
		if d.null() {
			return true
		}
		if d.peek() == '{' {
			return false // rare enough for the general way
		}
	case reasoningDetails:
		v, ok := d.raw()
		d.reasoningDetails = v
		return d.once(seenDetails) && ok && d.keep(&d.fields, key, v)
	}
	v, ok := d.raw()
	return ok && d.keep(&d.fields, key, v)
}

// isComplete reports whether the scanner read all that counts. If not, decodeGeneral must read the JSON.
func (d *chunkDecoder) isComplete() bool {
	if d.seen&seenChoices == 0 {
		return false
	}
	if d.hasOtherKey && d.seen&seenContentKey == 0 {
		return false
	}
	if d.usage == nil && d.groq != nil {
		return false
	}
	// reasoning_details is read only if no other member holds the reasoning.
	return len(d.reasoning)+len(d.chunk.reasoningContent) > 0 || d.reasoningDetails == nil || string(d.reasoningDetails) == "[]" || string(d.reasoningDetails) == "null"
}

func (d *chunkDecoder) call(int) bool {
	n := len(d.calls)
	if n > maxCalls {
		return false
	}
	if n == cap(d.calls) {
		d.calls = append(d.calls, callDelta{})
	} else {
		d.calls = d.calls[:n+1]
	}
	c := &d.calls[n]
	*c = callDelta{index: -1, extra: c.extra[:0], fnExtra: c.fnExtra[:0]}
	seen := 0
	once := func(bit int) bool {
		first := seen&bit == 0
		seen |= bit
		return first
	}
	return d.object(func(key []byte) bool {
		switch string(key) {
		case "index":
			var ok bool
			c.index, ok = d.index()
			return once(1) && ok
		case "id":
			return once(2) && d.stringOrNull(&c.id)
		case "function":
			return once(4) && d.object(func(key []byte) bool {
				switch string(key) {
				case "name":
					return once(8) && d.stringOrNull(&c.name)
				case "arguments":
					return once(16) && d.stringOrNull(&c.args)
				}
				v, ok := d.raw()
				return ok && d.keep(&c.fnExtra, key, v)
			})
		case customTool:
			if d.peek() == '{' {
				return false // rare enough for the general way
			}
		}
		v, ok := d.raw()
		return ok && d.keep(&c.extra, key, v)
	})
}

// maxQuick limits the further members of an object that are searched one by one. With
// more members decodeGeneral is faster.
const maxQuick = 64

// keep adds a member to list unchanged, unless its value is null or "".
func (d *chunkDecoder) keep(list *[]field, key []byte, v json.RawMessage) bool {
	if len(*list) == maxQuick {
		return false
	}
	for _, f := range *list {
		if bytes.Equal(f.key, key) {
			return false
		}
	}
	*list = append(*list, field{key, v})
	return true
}

// saysNothing reports whether v is null or "".
func saysNothing(v json.RawMessage) bool {
	return len(v) == 0 || string(v) == "null" || string(v) == `""`
}

func (d *chunkDecoder) stringOrNull(to *[]byte) bool {
	if d.null() {
		return true
	}
	v, ok := d.str()
	if ok && len(v) > 0 {
		*to = v
	}
	return ok
}

func (d *chunkDecoder) objectOrNull(to *json.RawMessage) bool {
	if d.null() {
		return true
	}
	if d.peek() != '{' {
		return false
	}
	v, ok := d.raw()
	*to = v
	return ok
}
