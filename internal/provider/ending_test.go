package provider_test

import (
	"fmt"
	"testing"

	"loquat"
)

// Metadata marks a reply that was refused, and one that ended for another reason than stop
// or tool calls.
func TestEndingsAreMarked(t *testing.T) {
	for _, tc := range []struct {
		name, message, finish string // members of a message or delta, and a JSON value
		refusal, reason       string
	}{
		{"stop", `"content":"x"`, `"stop"`, "", ""},
		{"stop in capitals", `"content":"x"`, `"STOP"`, "", ""},
		{"length", `"content":"x"`, `"length"`, "", "length"},
		{"length without text", `"content":""`, `"length"`, "", "length"},
		{"content filter", `"content":null`, `"content_filter"`, "", "content_filter"},
		{"another word", `"content":"x"`, `"eos"`, "", "eos"},
		{"refusal", `"content":null,"refusal":"No."`, `"stop"`, "No.", ""},
		{"refusal and reason", `"content":null,"refusal":"No."`, `"content_filter"`, "No.", "content_filter"},
		{"refusal in a part", `"content":[{"type":"refusal","refusal":"No."}]`, `"stop"`, "No.", ""},
		{"refusal in parts", `"content":[{"type":"text","text":"x"},{"type":"refusal","refusal":"N"},{"type":"refusal","refusal":"o."}]`, `"stop"`, "No.", ""},
		{"refusal in both", `"content":[{"type":"refusal","refusal":"No."}],"refusal":"No."`, `"stop"`, "No.", ""},
		{"empty refusal", `"content":"x","refusal":""`, `"stop"`, "", ""},
		{"tool calls", `"content":null,"tool_calls":[{"index":0,"id":"1","function":{"name":"f","arguments":"{}"}}]`, `"tool_calls"`, "", ""},
		{"tool calls that are cut", `"content":null,"tool_calls":[{"index":0,"id":"1","function":{"name":"f","arguments":"{"}}]`, `"length"`, "", "length"},
	} {
		for _, stream := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/stream %v", tc.name, stream), func(t *testing.T) {
				body := fmt.Sprintf(`{"choices":[{"index":0,"message":{%s},"finish_reason":%s}]}`, tc.message, tc.finish)
				if stream {
					body = fmt.Sprintf("data: {\"choices\":[{\"index\":0,\"delta\":{%s}}]}\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":%s}]}\n\n", tc.message, tc.finish)
				}
				o := chat(t, &script{steps: []step{{body: body}}}, retryConfig(nil), stream)
				if o.err != nil {
					t.Fatal(o.err)
				}
				refusal, reason := o.reply.Metadata.String(loquat.MetaRefusal), o.reply.Metadata.String(loquat.MetaFinishReason)
				if refusal != tc.refusal || reason != tc.reason {
					t.Errorf("refusal %q and finish_reason %q; want %q and %q", refusal, reason, tc.refusal, tc.reason)
				}
			})
		}
	}
}
