package loquat

import (
	"bytes"
	"slices"
	"strings"
)

// MergeDelta joins two increments of one request, the earlier first: contents and
// string reasoning are joined, lists concatenated, of other metadata the later
// wins. A later one that restarts the stream starts afresh.
func MergeDelta(earlier, later Delta) Delta {
	var in increments
	in.add(earlier)
	in.add(later)
	return in.delta()
}

// increments is the sum of deltas: a partial that grows, or a draft. It owns its
// bytes, so that adding costs no more than what is added.
type increments struct {
	role    string
	content strings.Builder
	meta    map[string][]byte
}

// How two values of one metadata key join. Values of different kinds do not.
type joint byte

const (
	jointReplace joint = iota
	jointText
	jointList
)

func jointOf(key string, raw []byte) joint {
	switch {
	case len(raw) >= 2 && raw[0] == '[':
		return jointList
	case len(raw) >= 2 && raw[0] == '"' && (key == MetaReasoning || key == MetaReasoningContent):
		return jointText
	}
	return jointReplace
}

// accepts reports whether adding d can be told from adding its parts one by one to
// any other sum. It cannot where a key changes its kind: "a", 1, "b" add up to "b",
// but "a" and the sum of 1 and "b" would add up to "ab".
func (in *increments) accepts(d Delta) bool {
	if d.Metadata.Bool(MetaStreamRestarted) {
		return true
	}
	for key, raw := range d.Metadata {
		if old, ok := in.meta[key]; ok && jointOf(key, old) != jointOf(key, bytes.TrimSpace(raw)) {
			return false
		}
	}
	return true
}

func (in *increments) add(d Delta) {
	if d.Metadata.Bool(MetaStreamRestarted) {
		*in = increments{}
	}
	if d.Role != "" {
		in.role = d.Role
	}
	in.content.WriteString(d.Content)
	for key, raw := range d.Metadata {
		if _, ok := in.meta[key]; ok && key == MetaStreamRestarted {
			continue // once restarted, the sum stays so
		}
		if in.meta == nil {
			in.meta = make(map[string][]byte, len(d.Metadata))
		}
		in.meta[key] = joinRaw(key, in.meta[key], bytes.TrimSpace(raw))
	}
}

// joinRaw returns old with raw added, growing old in place.
func joinRaw(key string, old, raw []byte) []byte {
	kind := jointOf(key, raw)
	if kind == jointReplace || kind != jointOf(key, old) {
		return bytes.Clone(raw)
	}
	if kind == jointText {
		return append(old[:len(old)-1], raw[1:]...)
	}
	head := bytes.TrimRight(old[:len(old)-1], " \t\r\n")
	tail := bytes.TrimLeft(raw[1:], " \t\r\n")
	if len(head) > 1 && len(tail) > 1 {
		head = append(head, ',')
	}
	return append(head, tail...)
}

// metadata returns a copy, for the bytes in here grow in place.
func (in *increments) metadata() Object {
	if len(in.meta) == 0 {
		return nil
	}
	out := make(Object, len(in.meta))
	for key, raw := range in.meta {
		out[key] = slices.Clone(raw)
	}
	return out
}

func (in *increments) delta() Delta {
	return Delta{Role: in.role, Content: in.content.String(), Metadata: in.metadata()}
}

// JoinIncrements joins neighbours among events of one request that wait for the same
// commit: partials by the rule of MergeDelta, the parts of one tool call end to end. It
// changes none of them and costs no more than their size.
func JoinIncrements(waiting []Event) []Event {
	out := make([]Event, 0, len(waiting))
	for i := 0; i < len(waiting); {
		e := waiting[i]
		next := i + 1
		switch {
		case e.Type == Partial && e.Message != nil:
			var sum increments
			sum.add(*e.Message)
			for next < len(waiting) && waiting[next].Type == Partial && sum.accepts(*waiting[next].Message) {
				sum.add(*waiting[next].Message)
				next++
			}
			if next > i+1 {
				joined := sum.delta()
				e.Message = &joined
			}
		case e.streamsTool():
			for next < len(waiting) && waiting[next].streamsTool() && waiting[next].ToolCallID == e.ToolCallID {
				next++
			}
			e.Payload = joinPayloads(waiting[i:next])
		}
		out = append(out, e)
		i = next
	}
	return out
}

// joinPayloads joins the payloads of events of one tool call: parts are joined, of
// progress and total the last that is there counts.
func joinPayloads(events []Event) *Payload {
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

func (e Event) streamsTool() bool {
	return e.Type == ToolPartial && e.Phase == PhaseStream && e.Payload != nil
}
