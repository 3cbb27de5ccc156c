package loquat_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"loquat"
)

// What backends reported and what is estimated are counted apart, whatever the order of the calls. Sums
// of parts are the sums of all.
func TestUsageOfAttempts(t *testing.T) {
	reported := loquat.Attempt{Reported: &loquat.Tokens{Input: 100, CachedInput: 60, Output: 20, Reasoning: 7}, Received: 1000}
	cut, refused := loquat.Attempt{Received: 41}, loquat.Attempt{Refused: true}
	for name, c := range map[string]struct {
		attempts []loquat.Attempt
		want     loquat.Usage
		all      int64
	}{
		"refused": {[]loquat.Attempt{refused, refused}, loquat.Usage{Source: loquat.UsageNone, Attempts: 2}, 0},
		"reported": {[]loquat.Attempt{reported, refused, reported},
			loquat.Usage{Source: loquat.UsageReported, Attempts: 3, Reported: loquat.Tokens{Input: 200, CachedInput: 120, Output: 40, Reasoning: 14}}, 240},
		"estimated": {[]loquat.Attempt{refused, cut, cut},
			loquat.Usage{Source: loquat.UsageEstimated, Attempts: 3, Estimated: loquat.Tokens{Input: 60, Output: 22}}, 82},
		"reported, then cut": {[]loquat.Attempt{reported, cut},
			loquat.Usage{Source: loquat.UsageEstimated, Attempts: 2, Reported: *reported.Reported, Estimated: loquat.Tokens{Input: 30, Output: 11}}, 161},
		"cut, then reported, then refused": {[]loquat.Attempt{cut, reported, refused},
			loquat.Usage{Source: loquat.UsageEstimated, Attempts: 3, Reported: *reported.Reported, Estimated: loquat.Tokens{Input: 30, Output: 11}}, 161},
	} {
		for parts := range len(c.attempts) + 1 {
			var first, second loquat.Usage
			for i, a := range c.attempts {
				if i < parts {
					first.Add(a, 30)
				} else {
					second.Add(a, 30)
				}
			}
			if got := first.Plus(second); got != c.want || got.All() != c.all {
				t.Errorf("%s, in parts of %d and %d: %+v, want %+v", name, parts, len(c.attempts)-parts, got, c.want)
			}
			if parts == len(c.attempts) && first != c.want {
				t.Errorf("%s: %+v, want %+v", name, first, c.want)
			}
		}
	}
}

// What a backend reported is in the metadata of its reply. Numbers that cannot be counts are none.
func TestTokensIn(t *testing.T) {
	for metadata, want := range map[string]*loquat.Tokens{
		`{"usage":{},"usage_prompt_tokens":3,"usage_completion_tokens":2,"usage_reasoning_tokens":1}`: {Input: 3, Output: 2, Reasoning: 1},
		`{"usage":{"prompt_tokens_details":{"cached_tokens":4}},"usage_prompt_tokens":5}`:             {Input: 5, CachedInput: 4},
		`{"usage":{},"usage_prompt_tokens":9007199254740992}`:                                         {Input: 1 << 53},
		`{"usage":{},"usage_prompt_tokens":9007199254740993,"usage_completion_tokens":1}`:             {Output: 1},
		`{"usage":{},"usage_prompt_tokens":99999999999999999999,"usage_completion_tokens":1}`:         {Output: 1},
		`{"usage":{},"usage_prompt_tokens":-3,"usage_completion_tokens":"7"}`:                         nil,
		`{"usage":null}`:            nil,
		`{"usage_prompt_tokens":3}`: nil, // not from a backend
		`{}`:                        nil,
	} {
		var o loquat.Object
		if err := json.Unmarshal([]byte(metadata), &o); err != nil {
			t.Fatal(err)
		}
		if got := loquat.TokensIn(o); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", metadata, got, want)
		}
	}
}

// An estimate begins at the newest reply whose backend reported its usage. It is never negative.
func TestEstimateInput(t *testing.T) {
	user := func(size int) loquat.Message {
		return loquat.Message{Role: loquat.RoleUser, Content: strings.Repeat("x", size)}
	}
	with := func(role, key, raw string) loquat.Message {
		return loquat.Message{Role: role, Metadata: loquat.Object{key: []byte(raw)}}
	}
	reply := func(role, prompt, completion, reasoning string) loquat.Message {
		return loquat.Message{Role: role, Metadata: loquat.Object{
			loquat.MetaUsage: []byte(`{}`), loquat.MetaUsagePrompt: []byte(prompt), loquat.MetaUsageCompletion: []byte(completion), loquat.MetaUsageReasoning: []byte(reasoning)}}
	}
	for name, c := range map[string]struct {
		messages []loquat.Message
		want     int64
		whole    bool
	}{
		"nothing":                      {nil, 0, false},
		"texts, 4 bytes a token":       {[]loquat.Message{user(0), user(1), user(4), user(5)}, 4*3 + 0 + 1 + 1 + 2, false},
		"calls of tools":               {[]loquat.Message{with(loquat.RoleAssistant, loquat.MetaToolCalls, `[{"a":1}]`)}, 3 + 3, false},
		"images":                       {[]loquat.Message{with(loquat.RoleUser, loquat.MetaAttachments, `[{},{}]`)}, 3 + 2*85, false},
		"a reply and a text":           {[]loquat.Message{user(400), reply(loquat.RoleAssistant, "100", "50", "20"), user(8)}, 100 + 50 - 20 + 3 + 2, true},
		"the newer of two replies":     {[]loquat.Message{reply(loquat.RoleAssistant, "100", "50", "20"), reply(loquat.RoleAssistant, "1", "2", "0")}, 1 + 2, true},
		"a reply without its input":    {[]loquat.Message{user(4), reply(loquat.RoleAssistant, "0", "50", "0")}, 3 + 1 + 3, false},
		"usage that is not of a reply": {[]loquat.Message{reply(loquat.RoleUser, "100", "50", "20")}, 3, false},
		"reasoning apart from output":  {[]loquat.Message{reply(loquat.RoleAssistant, "100", "50", "300")}, 100, true},
		"counts that would overflow":   {[]loquat.Message{reply(loquat.RoleAssistant, "9223372036854775807", "9223372036854775807", "0")}, 3, false},
	} {
		if got, whole := loquat.EstimateInput(c.messages); got != c.want || whole != c.whole {
			t.Errorf("%s: %d, %v; want %d, %v", name, got, whole, c.want, c.whole)
		}
	}
}
