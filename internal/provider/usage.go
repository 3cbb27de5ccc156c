package provider

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"

	"loquat"
)

// addUsage adds the backend's usage to metadata, both unchanged and as the summary that
// all providers share.
func addUsage(meta loquat.Object, raw json.RawMessage) {
	if raw == nil {
		return
	}
	meta[loquat.MetaUsage] = bytes.Clone(raw)
	u := readUsage(raw)
	prompt, hasPrompt := tokens(u.prompt)
	completion, hasCompletion := tokens(u.completion)
	total, hasTotal := tokens(u.total)
	if !hasTotal && hasPrompt && hasCompletion {
		total, hasTotal = prompt+completion, true
	}
	reasoning, hasReasoning := tokens(u.detailed)
	if !hasReasoning {
		reasoning, hasReasoning = tokens(u.reasoning)
	}
	buf := make([]byte, 0, 4*(19+27)) // the maximum size of four counts in both forms
	for _, n := range []struct {
		key, formatted string
		value          int64
		has            bool
	}{
		{loquat.MetaUsagePrompt, "usage_prompt_tokens_formatted", prompt, hasPrompt},
		{loquat.MetaUsageCompletion, "usage_completion_tokens_formatted", completion, hasCompletion},
		{"usage_total_tokens", "usage_total_tokens_formatted", total, hasTotal},
		{loquat.MetaUsageReasoning, "usage_reasoning_tokens_formatted", reasoning, hasReasoning},
	} {
		if !n.has {
			continue
		}
		start := len(buf)
		buf = strconv.AppendInt(buf, n.value, 10)
		middle := len(buf)
		buf = append(appendThousands(append(buf, '"'), buf[start:middle]), '"')
		meta[n.key], meta[n.formatted] = buf[start:middle:middle], buf[middle:len(buf):len(buf)]
	}
}

// usage holds the raw JSON of the counts of a usage object.
type usage struct{ prompt, completion, total, detailed, reasoning json.RawMessage }

func readUsage(raw json.RawMessage) (u usage) {
	members(raw, func(key []byte, v json.RawMessage) {
		switch string(key) {
		case "prompt_tokens":
			u.prompt = v
		case "completion_tokens":
			u.completion = v
		case "total_tokens":
			u.total = v
		case "reasoning_tokens":
			u.reasoning = v
		case "completion_tokens_details":
			members(v, func(key []byte, v json.RawMessage) {
				if string(key) == "reasoning_tokens" {
					u.detailed = v
				}
			})
		}
	})
	return u
}

// reported returns what the backend reported, or nil.
func (c *collector) reported() *loquat.Tokens {
	if c.usage == nil {
		return nil
	}
	meta := loquat.Object{}
	addUsage(meta, c.usage)
	return loquat.TokensIn(meta)
}

// received returns the size of what has come of the reply.
func (c *collector) received() int {
	return c.text.Len() + c.reasoning.Len() + c.reasoningContent.Len() + c.refusal.Len() + c.argsSize
}

// members calls visit for each member if raw is an object. It may visit a member twice,
// with the same value.
func members(raw json.RawMessage, visit func(key []byte, value json.RawMessage)) {
	s := scanner{b: raw}
	if s.object(func(key []byte) bool {
		v, ok := s.raw()
		if ok {
			visit(key, v)
		}
		return ok
	}) {
		return
	}
	for key, v := range asMap(raw) {
		visit([]byte(key), v)
	}
}

// tokens reads a count, which may be written as 12.0. raw must be valid JSON.
func tokens(raw json.RawMessage) (int64, bool) {
	if len(raw) == 0 || raw[0] < '0' || raw[0] > '9' {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		return 0, false
	}
	if f > loquat.MaxCount || f != math.Trunc(f) {
		return 0, false
	}
	return int64(f), true
}

// appendThousands appends digits with separators: 12345 becomes 12,345.
func appendThousands(dst, digits []byte) []byte {
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, d)
	}
	return dst
}
