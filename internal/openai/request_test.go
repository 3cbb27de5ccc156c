package openai

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"loquat"
)

func TestBodyForBackend(t *testing.T) {
	options := loquat.Object{}.Set("temperature", 0.5).Set("stop", []string{"END"})
	options["user"] = json.RawMessage("null")
	options["Model"] = json.RawMessage(`"other"`)
	for _, tc := range []struct{ body, model, want string }{
		{`{"model":"a"}`, "a", `{"model":"a"}`},
		{` { "model" : "a" , "x":1.00 } `, "b\"é", ` { "model" : "b\"é" , "x":1.00 } `},
		{`{"messages":[{"model":"a"}],"mod\u0065l":"a"}`, "b", `{"messages":[{"model":"a"}],"mod\u0065l":"b"}`},
		{`{"model":"\u0061"}`, "a", `{"model":"\u0061"}`},
	} {
		req, err := readChat([]byte(tc.body))
		if err != nil {
			t.Errorf("%s: %v", tc.body, err)
			continue
		}
		if got := string(bytes.Join(req.forBackend(tc.model, nil), nil)); got != tc.want {
			t.Errorf("%s with %q gives %s, want %s", tc.body, tc.model, got, tc.want)
		}
	}
	for body, want := range map[string]string{
		`{"model":"a"}`: `{"model":"b","stop":["END"],"temperature":0.5}`,
		`{"temperature":null,"model":"a","stop":[]} ` + "\n": `{"temperature":null,"model":"b","stop":[]} ` + "\n",
		`{"model":"a","temperature":1}`:                      `{"model":"b","temperature":1,"stop":["END"]}`,
	} {
		req, err := readChat([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if got := string(bytes.Join(req.forBackend("b", options), nil)); got != want {
			t.Errorf("%s gives %s, want %s", body, got, want)
		}
	}
}

func TestFaultsOfBodies(t *testing.T) {
	for body, want := range map[string]string{
		"":                                   "body is missing",
		" \n":                                "body is missing",
		"[]":                                 "body is a list; must be one JSON object",
		"null":                               "body is null",
		"{":                                  "ends too early",
		`{"model":"a"} x`:                    "has text after its end",
		`{}`:                                 "body.model is missing",
		`{"model":""}`:                       "body.model is missing",
		`{"model":null}`:                     "body.model is missing",
		`{"model":1,"stream":"y","n":"2"}`:   "in all 3 faults",
		`{"model":"a","stream":1}`:           "body.stream has to be true or false, not a number",
		`{"model":"a","n":1.5}`:              "body.n has to be an integer",
		`{"model":"a","model":"b"}`:          "body.model is given twice",
		`{"model":"a","x":{"y":1,"y":2}}`:    "body.x.y is given twice",
		"{\"model\":\"a\",\"x\":\"\xff\"}":   "body.x is not valid JSON",
		`{"model":"a","x":` + nested(200):    "nested too deep",
		`{"model":"a","x":` + nested(20_000): "nested too deep",
	} {
		_, err := readChat([]byte(body))
		if err == nil || !strings.Contains(err.Error(), want) || loquat.CodeOf(err) != loquat.CodeInvalid {
			t.Errorf("%.60s: the error is %v, want %q", body, err, want)
		}
	}
}

func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) + "}" }

// The body for the backend is the caller's but for the model and the options, whatever the bytes are.
func FuzzBodyForBackend(f *testing.F) {
	f.Add([]byte(`{"model":"a","messages":[]}`), "b", `"x"`)
	f.Add([]byte(` {"stream" :true, "mod\u0065l": "\ud83d\ude00"}`), "\u2028\x00", "1e9")
	f.Add([]byte(`{"model":"a","temperature":null}`), "", "{}")
	f.Fuzz(func(t *testing.T, body []byte, model, value string) {
		if !utf8.ValidString(model) { // configurations have none
			return
		}
		req, err := readChat(body)
		if err != nil {
			if code := loquat.CodeOf(err); code != loquat.CodeInvalid {
				t.Fatalf("the code is %q", code)
			}
			checkRefusal(t, err)
			return
		}
		params := loquat.Object{"messages": json.RawMessage("[]")}
		if json.Valid([]byte(value)) {
			params["temperature"] = json.RawMessage(value)
		}
		out := bytes.Join(req.forBackend(model, params), nil)
		var before, after map[string]json.RawMessage
		if err := json.Unmarshal(body, &before); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out, &after); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		var got string
		if err := json.Unmarshal(after["model"], &got); err != nil || got != model {
			t.Fatalf("the model is %q, want %q", got, model)
		}
		if _, given := before["temperature"]; !given && string(bytes.TrimSpace([]byte(value))) != "null" && params["temperature"] != nil {
			before["temperature"] = json.RawMessage(strings.TrimSpace(value))
		}
		before["model"] = after["model"]
		if !maps.EqualFunc(before, after, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }) {
			t.Fatalf("the fields are %q, want %q", slices.Sorted(maps.Keys(after)), slices.Sorted(maps.Keys(before)))
		}
	})
}
