package openai

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	"loquat"
	"loquat/internal/httpapi/route"
)

// hostileBodies are the seeds of all bodies of responses and conversations.
var hostileBodies = []string{
	`{"input":"x","metadata":{"a":"b"},"store":false,"stream":true,"temperature":1e-9,"max_output_tokens":7}`,
	`{"input":[{"role":"user","content":[{"type":"input_text","text":"a\ud800"},{"type":"input_image","image_url":"data:image/png;base64,AA=="}]}]}`,
	`{"items":[{"type":"reasoning","summary":[{"type":"summary_text","text":"r"}]},{"role":"assistant","content":""},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"o"}]}],"metadata":null}`,
	`{"input":[{"type":"item_reference","id":"msg_q-r0"},{"role":"developer","content":"d"}],"tools":[{"type":"function","name":"f","parameters":{"a":[1]}}],"tool_choice":{"type":"function","name":"f"}}`,
	`{"input":"x","text":{"format":{"type":"json_schema","name":"n","schema":{}}},"reasoning":{"effort":"low"},"include":["reasoning.encrypted_content"],"tool_choice":{"type":"allowed_tools","tools":[]}}`,
	`{"input":[{"type":"function_call","call_id":"c","namespace":"n","name":"f"},{"type":"function_call_output","call_id":"c","output":"o"}],"tools":[{"type":"namespace","name":"n","description":"d","tools":[{"type":"function","name":"f"}]}]}`,
	`{"items":[{"role":"assistant","content":[{"type":"refusal","refusal":"no"}]}]}`,
	`{"items":[{"role":"assistant","content":"a"},{"type":"reasoning","content":"r"},{"type":"reasoning","content":"s"},{"type":"function_call","call_id":"c","name":"f"}]}`,
	`{"items":[{"type":"compaction","id":"cmp_1","encrypted_content":"loquat-summary:So far."},{"role":"user","content":"x"}],"input":[{"type":"compaction","encrypted_content":"other"}]}`,
	`{"input":"x","input":"y"}`, `{"input":NaN}`, `{"input":[[[[]]]]}`, `{"conversation":{"id":7},"input":{}}`, `{"items":"x","metadata":{"a":1}}`, `[]`, `null`, `7`, ``, "{\"input\":\"\xff\"}",
}

// checkRefusal fails unless an error is answered as OpenAI's API answers wrong requests.
func checkRefusal(t *testing.T, err error) {
	t.Helper()
	w := httptest.NewRecorder()
	writeFailure(w, err)
	d := json.NewDecoder(w.Body)
	d.DisallowUnknownFields()
	var f openAIFailure
	if fault := d.Decode(&f); fault != nil || f.Error.Message == "" || f.Error.Type != typeRequest {
		t.Errorf("%v is answered with %+v (%v)", err, f, fault)
	}
	if w.Code != http.StatusBadRequest && w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("%v has the status %d", err, w.Code)
	}
}

// storedItem stands for the items that references name.
func storedItem(id string) (loquat.Object, error) {
	if id != "msg_q-r0" {
		return nil, loquat.Errorf(loquat.CodeNotFound, "item %q not found", id)
	}
	return loquat.Object{}.Set("type", itemMessage).Set("role", loquat.RoleAssistant).Set("content", "stored"), nil
}

// itemsOfMessages returns the items that a conversation of these messages shows.
func itemsOfMessages(t *testing.T, list []loquat.NewMessage) json.RawMessage {
	t.Helper()
	items := []map[string]any{}
	for _, n := range list {
		m := loquat.Message{ID: "m", Role: n.Role, Content: n.Content, Metadata: n.Metadata}
		if len(n.Attachments) > 0 {
			m.Metadata = m.Metadata.Clone().Set(loquat.MetaAttachments, n.Attachments)
		}
		items = append(items, inputItems(m)...)
	}
	raw, err := json.Marshal(items)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// checkRoundTrip fails unless the items of messages, when they are sent again, give the same items. The
// output of a function loses its images, because the items of outputs have texts alone.
func checkRoundTrip(t *testing.T, list []loquat.NewMessage) {
	t.Helper()
	items := itemsOfMessages(t, list)
	r := inputReader{lookup: storedItem}
	if err := r.readList("body.items", items); err != nil {
		t.Fatalf("%s: %v", items, err)
	}
	if again := itemsOfMessages(t, r.out); !bytes.Equal(items, again) {
		t.Errorf("the items\n%s\nbecome\n%s", items, again)
	}
}

// FuzzResponseBody reads random bytes as the body of a new response: it is refused in OpenAI's form, or
// its items and settings can be sent again.
func FuzzResponseBody(f *testing.F) {
	for _, s := range hostileBodies {
		f.Add([]byte(s))
	}
	schemas := route.NewSchemas()
	f.Fuzz(func(t *testing.T, body []byte) {
		p, err := readPlan(&route.Exchange{Schemas: schemas, Body: bytes.Clone(body)}, storedItem)
		if err == nil {
			err = checkOutputs(p.messages, nil)
		}
		if err == nil && p.body.Conversation != nil {
			_, err = conversationOf(p.body.Conversation)
		}
		if err != nil {
			checkRefusal(t, err)
			return
		}
		checkRoundTrip(t, p.messages)
		p.mark("q", true)
		if _, err := json.Marshal(p.settings); err != nil {
			t.Fatal(err)
		}
		echo := loquat.Object{}
		for key, value := range p.echo {
			echo[key] = value
		}
		echo.Set("input", "x")
		raw, err := json.Marshal(echo)
		if err != nil {
			t.Fatal(err)
		}
		again, err := readPlan(&route.Exchange{Schemas: schemas, Body: raw}, storedItem)
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if a, b := compactJSON(t, p.echo), compactJSON(t, again.echo); !reflect.DeepEqual(a, b) {
			t.Errorf("the response repeats\n%v\nand then\n%v", a, b)
		}
	})
}

// compactJSON returns the value that JSON stands for.
func compactJSON(t *testing.T, v any) (out any) {
	t.Helper()
	raw, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// FuzzConversationBody reads random bytes as the bodies of a new conversation and of new items.
func FuzzConversationBody(f *testing.F) {
	for _, s := range hostileBodies {
		f.Add([]byte(s))
	}
	schemas := route.NewSchemas()
	f.Fuzz(func(t *testing.T, body []byte) {
		created, err := readConversation(&route.Exchange{Schemas: schemas, Body: bytes.Clone(body)}, storedItem)
		if err != nil {
			checkRefusal(t, err)
		} else {
			checkRoundTrip(t, created.Messages)
		}
		added, err := readItems(&route.Exchange{Schemas: schemas, Body: bytes.Clone(body)}, storedItem)
		if err != nil {
			checkRefusal(t, err)
			return
		}
		checkRoundTrip(t, added)
		if len(body) > 0 && !reflect.DeepEqual(created.Messages, added) {
			t.Errorf("a conversation of these items has %d messages, and %d are appended", len(created.Messages), len(added))
		}
	})
}
