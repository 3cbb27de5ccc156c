package requests_test

import (
	"strings"
	"testing"

	"loquat"
	"loquat/internal/backend"
	"loquat/internal/e2e/binary"
	"loquat/internal/tui"
)

// A request that ends without text, or early, is completed; its message says why, and the
// terminal shows it.
func TestEndingsOfReplies(t *testing.T) {
	for name, tc := range map[string]struct {
		script, key, value, shown string
	}{
		"refusal":        {`{"refusal": "I cannot help with that."}`, loquat.MetaRefusal, "I cannot help with that.", "the model refused: I cannot help with that."},
		"token limit":    {`{"text": "Half a", "finish_reason": "length"}`, loquat.MetaFinishReason, "length", "the reply was cut at the token limit"},
		"content filter": {`{"text": "", "finish_reason": "content_filter"}`, loquat.MetaFinishReason, "content_filter", "a content filter of the backend cut the reply"},
		"nothing at all": {`{"text": ""}`, loquat.MetaFinishReason, "", "the reply has no text"},
	} {
		for _, stream := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				c := binary.ServerWith(t, `{"providers": {"main": {"provider": "reference_generic_compatible", "model": "demo", "base_url": "`+
					binary.ScriptedBackend(t, backend.Options{})+`/v1", "request_options": {"loquat_script": `+tc.script+`}}}}`)
				s, err := c.CreateSession(t.Context(), loquat.NewSession{})
				if err != nil {
					t.Fatal(err)
				}
				content := "Hello"
				sent, err := c.Send(t.Context(), s.SessionID, loquat.Send{Content: &content, Stream: &stream})
				if err != nil {
					t.Fatal(err)
				}
				var out, side strings.Builder
				screen := tui.NewRenderer(tui.NewScreen(&out, tui.Look{}), tui.NewScreen(&side, tui.Look{}))
				var last loquat.Event
				for _, e := range binary.FollowRequest(t.Context(), t, c, sent.RequestID) {
					screen.Show(e)
					if e.Type == loquat.Final {
						last = e
					}
				}
				if len(last.Messages) != 1 || last.Messages[0].Metadata.String(tc.key) != tc.value {
					t.Errorf("messages %+v, want %s %q", last.Messages, tc.key, tc.value)
				}
				if !strings.Contains(side.String(), tc.shown) || !strings.Contains(side.String(), "completed") {
					t.Errorf("the terminal shows %q", side.String())
				}
			})
		}
	}
}
