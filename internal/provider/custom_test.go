package provider_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/provider"
	"loquat/internal/provider/providertest"
)

// Calls of every kind are decoded from a completion and sent back to the backend unchanged.
func TestKindsOfCallsRoundTrip(t *testing.T) {
	for _, tc := range []struct {
		name, call      string
		tool, arguments string
		sent            string // "" is call
	}{
		{"function", `{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}`, "f", "{}", ""},
		{"custom", `{"id":"1","type":"custom","custom":{"name":"f","input":"say \"é\""}}`, "f", `{"input":"say \"é\""}`, ""},
		{"custom without its type", `{"id":"1","custom":{"name":"f","input":"x"}}`, "f", `{"input":"x"}`, `{"id":"1","type":"custom","custom":{"name":"f","input":"x"}}`},
		{"custom without text", `{"id":"1","type":"custom","custom":{"name":"f"}}`, "f", `{"input":""}`, `{"id":"1","type":"custom","custom":{"name":"f","input":""}}`},
		{"custom with unknown fields", `{"id":"1","type":"custom","custom":{"name":"f","input":"x","format":{"a":1}},"extra_content":{"s":1}}`, "f", `{"input":"x"}`, ""},
		{"custom with an object for a text", `{"id":"1","type":"custom","custom":{"name":"f","input":{"a": 1}}}`, "f", `{"input":"{\"a\":1}"}`, `{"id":"1","type":"custom","custom":{"name":"f","input":"{\"a\":1}"}}`},
		{"function with a field called custom", `{"id":"1","type":"function","function":{"name":"f","arguments":"{}"},"custom":{"name":"g"}}`, "f", "{}", ""},
	} {
		for _, stream := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/stream %v", tc.name, stream), func(t *testing.T) {
				body := fmt.Sprintf(`{"choices":[{"index":0,"message":{"content":null,"tool_calls":[%s]},"finish_reason":"tool_calls"}]}`, tc.call)
				if stream {
					body = fmt.Sprintf("data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,%s]},\"finish_reason\":\"tool_calls\"}]}\n\n", tc.call[1:])
				}
				o := chat(t, &script{steps: []step{{body: body}}}, retryConfig(nil), stream)
				if o.err != nil || len(o.reply.ToolCalls) != 1 {
					t.Fatalf("%+v, %v", o.reply, o.err)
				}
				call := o.reply.ToolCalls[0]
				if call.ID != "1" || call.Name != tc.tool || call.Arguments != tc.arguments {
					t.Errorf("call %+v", call)
				}
				checkSentBack(t, o.reply, tc.sent, tc.call)
			})
		}
	}
}

// checkSentBack compares the call of a reply, once it was stored, with what the next request sends.
func checkSentBack(t *testing.T, reply *loquat.Reply, want, came string) {
	t.Helper()
	if want == "" {
		want = came
	}
	said := loquat.Message{Role: loquat.RoleAssistant, Metadata: reply.Metadata.Set(loquat.MetaToolCalls, reply.ToolCalls)}
	result := loquat.Message{Role: loquat.RoleTool, Content: "ok", Metadata: loquat.Object{}.Set(loquat.MetaToolCallID, "1")}
	s := &script{steps: []step{{body: hello}}}
	o := drain(t, provider.New(provider.Options{Transport: s}), t.Context(), loquat.LLMRequest{Config: retryConfig(nil), Messages: append(providertest.UserSays("hi"), said, result)})
	if o.err != nil {
		t.Fatal(o.err)
	}
	var sent struct {
		Messages []struct {
			ToolCalls  []json.RawMessage `json:"tool_calls"`
			ToolCallID string            `json:"tool_call_id"`
		}
	}
	if err := json.Unmarshal([]byte(s.sent[0]), &sent); err != nil {
		t.Fatal(err)
	}
	if len(sent.Messages) != 3 || len(sent.Messages[1].ToolCalls) != 1 || !providertest.SameJSON(sent.Messages[1].ToolCalls[0], json.RawMessage(want)) || sent.Messages[2].ToolCallID != "1" {
		t.Errorf("sent %s, want the call %s", s.sent[0], want)
	}
}

// A legacy function_call keeps its name and all of its arguments, however its deltas are split.
func TestLegacyFunctionCall(t *testing.T) {
	delta := func(calls ...string) string {
		var b strings.Builder
		for _, c := range calls {
			fmt.Fprintf(&b, "data: {\"choices\":[{\"index\":0,\"delta\":{\"function_call\":%s}}]}\n\n", c)
		}
		return b.String() + done
	}
	for name, tc := range map[string]struct{ body, want string }{
		"in pieces":                {delta(`{"name":"f","arguments":""}`, `{"arguments":"{\"a\""}`, `{"arguments":":1}"}`), `{"name":"f","arguments":"{\"a\":1}"}`},
		"in one":                   {delta(`{"name":"f","arguments":"{}"}`), `{"name":"f","arguments":"{}"}`},
		"name in every piece":      {delta(`{"name":"f","arguments":"{"}`, `{"name":"f","arguments":"}"}`), `{"name":"f","arguments":"{}"}`},
		"name last":                {delta(`{"arguments":"{}"}`, `{"name":"f"}`), `{"name":"f","arguments":"{}"}`},
		"null afterwards":          {delta(`{"name":"f","arguments":"{}"}`, `null`), `{"name":"f","arguments":"{}"}`},
		"nulls alone":              {delta(`null`, `null`), ``},
		"unknown fields":           {delta(`{"name":"f","arguments":"{}","x":{"y":1}}`), `{"name":"f","arguments":"{}","x":{"y":1}}`},
		"object for its arguments": {delta(`{"name":"f","arguments":{"a": 1}}`), `{"name":"f","arguments":"{\"a\":1}"}`},
		"of a message":             {`{"choices":[{"message":{"content":null,"function_call":{"name":"f","arguments":"{}"}},"finish_reason":"function_call"}]}`, `{"name":"f","arguments":"{}"}`},
	} {
		t.Run(name, func(t *testing.T) {
			o := chat(t, &script{steps: []step{{body: tc.body}}}, retryConfig(nil), true)
			if o.err != nil || !providertest.SameJSON(o.reply.Metadata["function_call"], json.RawMessage(tc.want)) || len(o.reply.ToolCalls) != 0 {
				t.Errorf("%s, %v; want %s", o.reply.Metadata["function_call"], o.err, tc.want)
			}
			for _, c := range o.chunks {
				if piece := c.Extra["function_call"]; piece != nil && !providertest.SameJSON(piece, json.RawMessage(tc.want)) {
					t.Errorf("an increment has a piece: %s", piece)
				}
			}
		})
	}
}
