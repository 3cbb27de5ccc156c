package requests_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

// recordingBackend answers every call with one text and passes on the bodies.
func recordingBackend(t *testing.T) (url string, bodies <-chan []byte) {
	t.Helper()
	ch := make(chan []byte, 16)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPost {
			return
		}
		ch <- body
		w.Header().Set("Content-Type", binary.EventStream)
		_, _ = io.WriteString(w, binary.SSEText("ok")+binary.SSEStop)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/v1", ch
}

// sendAndRecord sends to a session and returns the messages that the backend got.
func sendAndRecord(t *testing.T, c *client.Client, bodies <-chan []byte, id, content string) string {
	t.Helper()
	sent, err := c.Send(t.Context(), id, loquat.Send{Content: &content})
	if err != nil {
		t.Fatal(err)
	}
	binary.FollowRequest(t.Context(), t, c, sent.RequestID)
	var body struct{ Messages json.RawMessage }
	if err := json.Unmarshal(<-bodies, &body); err != nil {
		t.Fatal(err)
	}
	return string(body.Messages)
}

// The backend gets the same bytes for a long session, of which the server knows the start, and
// for a fork of it, of which the server knows nothing: after sends, changes and deletions.
func TestLongSessionIsSentWhole(t *testing.T) {
	url, bodies := recordingBackend(t)
	c := binary.ServerWith(t, `{"providers": {"main": {"provider": "reference_generic_compatible", "model": "m", "base_url": "`+url+`"}}}`)
	create := loquat.NewSession{SessionID: "long"}
	for i := range 400 {
		m := loquat.NewMessage{Role: loquat.RoleUser, Content: fmt.Sprintf("question %d: %s", i, strings.Repeat("text \"and\" ünicode ", 20))}
		if i%2 == 1 {
			m.Role, m.Metadata = loquat.RoleAssistant, loquat.Object{}.Set("model", "m").Set("provider", "main").Set("reasoning", "hm")
		}
		if i%20 == 3 {
			m.Metadata = m.Metadata.Set("tool_calls", []loquat.ToolCall{{ID: fmt.Sprint("call ", i), Name: "f", Arguments: "{}"}})
		}
		create.Messages = append(create.Messages, m)
		if i%20 == 3 {
			create.Messages = append(create.Messages, loquat.NewMessage{Role: loquat.RoleTool, Content: "result", Metadata: loquat.Object{}.Set("tool_call_id", fmt.Sprint("call ", i))})
		}
	}
	if _, err := c.CreateSession(t.Context(), create); err != nil {
		t.Fatal(err)
	}
	changes := []func() error{
		func() error { return nil },
		func() error { return nil },
		func() error { _, err := c.ModifyMessage(t.Context(), "long", 7, "another question"); return err },
		func() error { _, err := c.DeleteMessages(t.Context(), "long", []int{0, 5, 300}); return err },
		func() error {
			_, err := c.AppendMessage(t.Context(), "long", loquat.NewMessage{Role: loquat.RoleSystem, Content: "be short"})
			return err
		},
		func() error { return nil },
	}
	for i, change := range changes {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		fork, err := c.Fork(t.Context(), "long", loquat.Fork{})
		if err != nil {
			t.Fatal(err)
		}
		question := fmt.Sprint("and number ", i, "?")
		want := sendAndRecord(t, c, bodies, fork.SessionID, question)
		if got := sendAndRecord(t, c, bodies, "long", question); got != want || len(got) < 100_000 || !strings.HasSuffix(got, question+`"}]`) {
			t.Fatalf("send %d: %d bytes for the session, %d for its fork", i, len(got), len(want))
		}
	}
}
