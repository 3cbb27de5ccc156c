package loquat

import (
	"context"
	"encoding/json"
	"io"
	"reflect"
	"testing"
)

// The fields of a model that have no place of their own are kept in Extra.
func TestModelJSON(t *testing.T) {
	for text, want := range map[string]Model{
		`{"id":"m"}`:            {ID: "m"},
		`{"id":"m","name":"M"}`: {ID: "m", Name: "M"},
		`{"id":"m","name":"M","context":{"max":1}}`: {ID: "m", Name: "M", Extra: Object{"context": []byte(`{"max":1}`)}},
	} {
		var m Model
		if err := json.Unmarshal([]byte(text), &m); err != nil || !reflect.DeepEqual(m, want) {
			t.Errorf("%s is read as %+v, %v", text, m, err)
		}
		if got, err := json.Marshal(m); err != nil || !sameJSON(t, got, []byte(text)) {
			t.Errorf("%s became %s, %v", text, got, err)
		}
	}
	for _, text := range []string{`[]`, `"m"`, `7`} {
		if err := json.Unmarshal([]byte(text), &Model{}); err == nil {
			t.Errorf("%s is a model", text)
		}
	}
}

// The earlier messages of a call come first. Those of OwnMessages belong to the call alone.
func TestEarlierMessages(t *testing.T) {
	message := func(id string) Message { return Message{ID: id, Metadata: Object{"k": []byte(`1`)}} }
	for name, c := range map[string]struct {
		earlier []Message // nil: there are none
		err     error     // of reading them
		want    []string
	}{
		"no earlier ones":                {want: []string{"c"}},
		"earlier ones":                   {earlier: []Message{message("a"), message("b")}, want: []string{"a", "b", "c"}},
		"earlier ones that are not read": {earlier: []Message{message("a")}, err: io.ErrUnexpectedEOF, want: []string{"c"}},
	} {
		for how, read := range map[string]func(*LLMRequest, context.Context) error{"read": (*LLMRequest).ReadEarlier, "owned": (*LLMRequest).OwnMessages} {
			own := []Message{message("c")}
			r := LLMRequest{Messages: own}
			if c.earlier != nil {
				r.Earlier = &EarlierMessages{Read: func(_ context.Context, from int) ([]Message, error) { return c.earlier[from:], c.err }}
			}
			if err := read(&r, t.Context()); err != c.err || (r.Earlier == nil) != (c.err == nil) {
				t.Errorf("%s, %s: %v, %v", name, how, err, r.Earlier)
			}
			var got []string
			for _, m := range r.Messages {
				got = append(got, m.ID)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("%s, %s: the messages are %q, want %q", name, how, got, c.want)
			}
			if how == "read" || c.err != nil {
				continue
			}
			for i := range r.Messages {
				r.Messages[i].Content = "changed"
				r.Messages[i].Metadata.Set("k", 2)
			}
			for _, m := range append(own, c.earlier...) {
				if m.Content != "" || string(m.Metadata["k"]) != "1" {
					t.Errorf("%s: message %s of others is changed", name, m.ID)
				}
			}
		}
	}
}
