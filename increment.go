package loquat

import (
	"bytes"
	"slices"
	"strings"
)

// mergedDelta is the result of merging any number of increments of one request. Contents and
// reasoning texts are concatenated, and so are lists in the metadata. Of other metadata the
// later value wins. An increment that restarts the stream replaces all before it.
//
// It owns its bytes, so that adding an increment costs no more than the increment's size.
type mergedDelta struct {
	role    string
	content TextBuilder
	meta    map[string]*mergedValue
}

// mergedValue is one value of the metadata. A text is kept without its quotes.
type mergedValue struct {
	kind mergeKind
	text TextBuilder // for mergeText
	raw  []byte      // for other kinds
}

// mergeKind says how two values of one metadata key merge. If their kinds differ, the
// later value replaces the earlier.
type mergeKind byte

const (
	mergeReplace mergeKind = iota
	mergeText
	mergeList
)

func mergeKindOf(key string, raw []byte) mergeKind {
	switch {
	case len(raw) >= 2 && raw[0] == '[':
		return mergeList
	case len(raw) >= 2 && raw[0] == '"' && (key == MetaReasoning || key == MetaReasoningContent):
		return mergeText
	}
	return mergeReplace
}

// canAdd reports whether d can be merged without making the result depend on the order in
// which windows merge increments. It cannot if a key changes its kind: merging "a", 1 and
// "b" one by one results in "b". Merging 1 with "b" first and "a" with their result would
// result in "ab".
func (in *mergedDelta) canAdd(d Delta) bool {
	if d.Metadata.Bool(MetaStreamRestarted) {
		return true
	}
	for key, raw := range d.Metadata {
		if old, ok := in.meta[key]; ok && old.kind != mergeKindOf(key, bytes.TrimSpace(raw)) {
			return false
		}
	}
	return true
}

func (in *mergedDelta) add(d Delta) {
	if d.Metadata.Bool(MetaStreamRestarted) {
		*in = mergedDelta{}
	}
	if d.Role != "" {
		in.role = d.Role
	}
	in.content.WriteString(d.Content)
	for key, raw := range d.Metadata {
		if _, ok := in.meta[key]; ok && key == MetaStreamRestarted {
			continue // a later increment does not undo a restart
		}
		if in.meta == nil {
			in.meta = make(map[string]*mergedValue, len(d.Metadata))
		}
		raw = bytes.TrimSpace(raw)
		v, kind := in.meta[key], mergeKindOf(key, raw)
		if v == nil || v.kind != kind {
			v = &mergedValue{kind: kind}
			in.meta[key] = v
		}
		v.add(raw)
	}
}

// add merges raw, which is of v's kind, into v.
func (v *mergedValue) add(raw []byte) {
	switch {
	case v.kind == mergeText:
		v.text.WriteString(string(raw[1 : len(raw)-1]))
		return
	case v.kind == mergeReplace || len(v.raw) == 0:
		v.raw = append(v.raw[:0], raw...)
		return
	}
	head := bytes.TrimRight(v.raw[:len(v.raw)-1], " \t\r\n")
	tail := bytes.TrimLeft(raw[1:], " \t\r\n")
	if len(head) > 1 && len(tail) > 1 {
		head = append(head, ',')
	}
	v.raw = append(head, tail...)
}

// json returns a copy of the value.
func (v *mergedValue) json() []byte {
	if v.kind != mergeText {
		return slices.Clone(v.raw)
	}
	out := make([]byte, 0, v.text.Len()+2)
	return append(append(append(out, '"'), v.text.String()...), '"')
}

// metadata returns a copy of the metadata, because add grows the values in place.
func (in *mergedDelta) metadata() Object {
	if len(in.meta) == 0 {
		return nil
	}
	out := make(Object, len(in.meta))
	for key, v := range in.meta {
		out[key] = v.json()
	}
	return out
}

func (in *mergedDelta) delta() Delta {
	return Delta{Role: in.role, Content: in.content.String(), Metadata: in.metadata()}
}

// DraftBuilder merges the increments of one request one by one, as a client's fold does.
// Its memory does not exceed the size of what they add up to. The zero DraftBuilder is
// empty.
type DraftBuilder struct {
	sum   mergedDelta
	added bool
}

// Add merges the next increment.
func (b *DraftBuilder) Add(d Delta) {
	b.sum.add(d)
	b.added = true
}

// Delta returns what was added, or nil when nothing was. It empties the builder.
func (b *DraftBuilder) Delta() *Delta {
	if !b.added {
		return nil
	}
	d := Delta{Role: b.sum.role, Content: b.sum.content.String()}
	for key, v := range b.sum.meta {
		if d.Metadata == nil {
			d.Metadata = make(Object, len(b.sum.meta))
		}
		if v.kind == mergeText {
			d.Metadata[key] = v.text.quoteRaw()
		} else {
			d.Metadata[key] = v.raw
		}
	}
	*b = DraftBuilder{}
	return &d
}

// MergeIncrements merges neighbours among the events of one request that wait for the
// same commit: partials as mergedDelta does, and the parts of one tool call by
// concatenation. It does not change the events, and takes time linear in their size. The
// result may be waiting itself.
func MergeIncrements(waiting []Event) []Event {
	if len(waiting) == 1 && waiting[0].Type == Partial {
		return waiting
	}
	out := make([]Event, 0, len(waiting))
	for i := 0; i < len(waiting); {
		e := waiting[i]
		next := i + 1
		switch {
		case e.hasDelta():
			var sum mergedDelta
			sum.add(*e.Message)
			for next < len(waiting) && waiting[next].hasDelta() && sum.canAdd(*waiting[next].Message) {
				sum.add(*waiting[next].Message)
				next++
			}
			if next > i+1 {
				merged := sum.delta()
				e.Message = &merged
			}
		case e.isToolStream():
			for next < len(waiting) && waiting[next].isToolStream() && waiting[next].ToolCallID == e.ToolCallID {
				next++
			}
			e.Payload = mergePayloads(waiting[i:next])
		}
		out = append(out, e)
		i = next
	}
	return out
}

// mergePayloads merges the payloads of events of one tool call. Parts are concatenated. Of
// progress and total the last value that is set counts.
func mergePayloads(events []Event) *Payload {
	if len(events) == 1 {
		return events[0].Payload
	}
	var out Payload
	var parts strings.Builder
	for _, e := range events {
		if e.Payload.Part != nil {
			parts.WriteString(*e.Payload.Part)
		}
		if e.Payload.Progress != nil {
			out.Progress = e.Payload.Progress
		}
		if e.Payload.Total != nil {
			out.Total = e.Payload.Total
		}
	}
	part := parts.String()
	out.Part = &part
	return &out
}

// hasDelta reports whether the event is a partial with a message.
func (e Event) hasDelta() bool { return e.Type == Partial && e.Message != nil }

// isToolStream reports whether the event is a tool_partial of the phase stream.
func (e Event) isToolStream() bool {
	return e.Type == ToolPartial && e.Phase == PhaseStream && e.Payload != nil
}
