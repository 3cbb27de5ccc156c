package provider

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"

	"loquat"
)

// addUsage puts the backend's usage into metadata, as it came and as the summary
// that all providers share.
func addUsage(meta loquat.Object, raw json.RawMessage) {
	if raw == nil {
		return
	}
	meta[loquat.MetaUsage] = bytes.Clone(raw)
	usage := asMap(raw)
	prompt, hasPrompt := tokens(usage["prompt_tokens"])
	completion, hasCompletion := tokens(usage["completion_tokens"])
	total, hasTotal := tokens(usage["total_tokens"])
	if !hasTotal && hasPrompt && hasCompletion {
		total, hasTotal = prompt+completion, true
	}
	reasoning, hasReasoning := tokens(asMap(usage["completion_tokens_details"])["reasoning_tokens"])
	if !hasReasoning {
		reasoning, hasReasoning = tokens(usage["reasoning_tokens"])
	}
	for _, n := range []struct {
		key   string
		value int64
		has   bool
	}{
		{"usage_prompt_tokens", prompt, hasPrompt},
		{"usage_completion_tokens", completion, hasCompletion},
		{"usage_total_tokens", total, hasTotal},
		{"usage_reasoning_tokens", reasoning, hasReasoning},
	} {
		if n.has {
			meta[n.key] = strconv.AppendInt(nil, n.value, 10)
			meta[n.key+"_formatted"] = loquat.Quote(thousands(n.value))
		}
	}
}

// tokens reads a count, also one written as 12.0.
func tokens(raw json.RawMessage) (int64, bool) {
	var f float64
	if len(raw) == 0 || string(raw) == "null" || json.Unmarshal(raw, &f) != nil {
		return 0, false
	}
	if f < 0 || f > 1<<53 || f != math.Trunc(f) {
		return 0, false
	}
	return int64(f), true
}

// thousands writes 12345 as 12,345.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	var out []byte
	for i := range len(s) {
		if i > 0 && (len(s)-i)%3 == 0 {
			out = append(out, ',')
		}
		out = append(out, s[i])
	}
	return string(out)
}
