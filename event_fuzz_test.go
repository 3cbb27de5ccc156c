package loquat

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"
)

// FuzzEvent decodes arbitrary events as a client does. Each decoded event can be stored,
// read back unchanged, and folded.
func FuzzEvent(f *testing.F) {
	for _, s := range []string{
		`{"type":"partial","session_id":"s","request_id":"r","message":{"role":"assistant","content":"a\u2028b","metadata":{"reasoning":"x"}}}`,
		`{"type":"final","session_id":"s","request_id":"r","messages":[{"id":"m","role":"assistant","content":"","metadata":{"tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]},"created_at":"2026-01-02T03:04:05Z"}]}`,
		`{"event_id":"0000000000000012","type":"message_modified","session_id":"s","index":-1,"content":"new"}`,
		`{"type":"messages_deleted","session_id":"s","indices":[0,0,7]}`,
		`{"type":"tool_calls","session_id":"s","request_id":"r","tool_calls":[{"tool_call_id":"c","function":null,"x":1}]}`,
		`{"type":"tool_partial","session_id":"s","tool_call_id":"c","phase":"end","payload":{"result":{"role":"tool","content":"r"}}}`,
		`{"type":"checkpoint","session_id":"s","timestamp":"2026-01-02T03:04:05Z","agent_id":"default","metadata":{"a":null}}`,
		`{"type":"retry_scheduled","session_id":"s","attempt":1,"delay_seconds":0.5}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var e Event
		if json.Unmarshal(data, &e) != nil {
			return
		}
		e.EventID = 1
		storeAndReadBack(t, e)
		fold := NewFold(Snapshot{Session: Session{SessionID: e.SessionID, Messages: []Message{{ID: "m"}, {ID: "n"}}}})
		fold.Apply(e)
		e.EventID = 2
		fold.Apply(e)
		fold.Messages()
		fold.Draft()
	})
}

func storeAndReadBack(t *testing.T, e Event) {
	t.Helper()
	rec, err := e.Encode()
	if err != nil {
		return // for example a time that JSON cannot represent; such an event is not stored
	}
	rec.ID = e.EventID
	if !json.Valid(rec.Body) || !utf8.Valid(rec.Body) || bytes.ContainsAny(rec.Body, "\r\n") {
		t.Fatalf("stored as %q", rec.Body)
	}
	read, err := rec.Decode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := read.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again.Body, rec.Body) {
		t.Fatalf("stored as\n%s\nread back as\n%s", rec.Body, again.Body)
	}
}
