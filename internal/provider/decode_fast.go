package provider

import (
	"bytes"
	"encoding/json"
)

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
