package loquat

import (
	"bytes"
	"slices"
	"strings"
)

// MergeDelta merges two increments of one request. Contents and reasoning texts are
// concatenated, and so are lists in the metadata. Of other metadata the later value wins.
// If later restarts the stream, the result is later alone.
func MergeDelta(earlier, later Delta) Delta {
	var in mergedDelta
	in.add(earlier)
	in.add(later)
	return in.delta()
}

// mergedDelta is the result of merging any number of increments. It owns its bytes, so
// that adding an increment costs no more than the increment's size.
type mergedDelta struct {
	role    string
	content strings.Builder
	meta    map[string][]byte
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
		if old, ok := in.meta[key]; ok && mergeKindOf(key, old) != mergeKindOf(key, bytes.TrimSpace(raw)) {
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
			in.meta = make(map[string][]byte, len(d.Metadata))
		}
		in.meta[key] = mergeRaw(key, in.meta[key], bytes.TrimSpace(raw))
	}
}

// mergeRaw merges raw into old, which grows in place, and returns the result.
func mergeRaw(key string, old, raw []byte) []byte {
	kind := mergeKindOf(key, raw)
	if kind == mergeReplace || kind != mergeKindOf(key, old) {
		return bytes.Clone(raw)
	}
	if kind == mergeText {
		return append(old[:len(old)-1], raw[1:]...)
	}
	head := bytes.TrimRight(old[:len(old)-1], " \t\r\n")
	tail := bytes.TrimLeft(raw[1:], " \t\r\n")
	if len(head) > 1 && len(tail) > 1 {
		head = append(head, ',')
	}
	return append(head, tail...)
}

// metadata returns a copy of the metadata, because add grows the values in place.
func (in *mergedDelta) metadata() Object {
	if len(in.meta) == 0 {
		return nil
	}
	out := make(Object, len(in.meta))
	for key, raw := range in.meta {
		out[key] = slices.Clone(raw)
	}
	return out
}

func (in *mergedDelta) delta() Delta {
	return Delta{Role: in.role, Content: in.content.String(), Metadata: in.metadata()}
}

// MergeIncrements merges neighbours among the events of one request that wait for the
// same commit: partials as MergeDelta does, and the parts of one tool call by
// concatenation. It does not change the events, and takes time linear in their size.
func MergeIncrements(waiting []Event) []Event {
	out := make([]Event, 0, len(waiting))
	for i := 0; i < len(waiting); {
		e := waiting[i]
		next := i + 1
		switch {
		case e.Type == Partial && e.Message != nil:
			var sum mergedDelta
			sum.add(*e.Message)
			for next < len(waiting) && waiting[next].Type == Partial && sum.canAdd(*waiting[next].Message) {
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

// isToolStream reports whether the event is a tool_partial of the phase stream.
func (e Event) isToolStream() bool {
	return e.Type == ToolPartial && e.Phase == PhaseStream && e.Payload != nil
}
