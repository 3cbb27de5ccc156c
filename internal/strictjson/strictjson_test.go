package strictjson_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"loquat"
	"loquat/internal/strictjson"
)

func TestCheck(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{`{"a":[1,{"b":null}]}`, ""},
		{` "text" `, ""},
		{"", "line 1, column 1: is empty"},
		{`{"a":[{"b":1,"b":2}]}`, "line 1, column 14: a[0].b is given twice"},
		{"{\n\"a\": 1,\n\"\\u0061\": 2}", "line 3, column 1: a is given twice"},
		{`[1,[2,x]]`, "line 1, column 7: [1][0] is not valid JSON"},
		{`{"a/b":{"~":x}}`, "line 1, column 13: a/b.~ is not valid JSON"},
		{"\"\xff\"", "is not valid JSON: invalid UTF-8"},
		{`{"a":[`, "line 1, column 7: a ends too early"},
		{`{} {}`, "line 1, column 4: has text after its end"},
		{`{"a":1,}`, "JSON has no comma before a closing"},
		{`{'a':1}`, "strings need double quotes"},
		{`{"a":` + strings.Repeat("[", loquat.MaxDepth) + "1", "is nested too deep; at most 128 levels"},
		{`{"` + strings.Repeat("k", 10_000) + `":x}`, "…"},
		{strings.Repeat(`{"`+strings.Repeat("é", 70)+`":`, 3) + "x", "é… is not valid JSON"},
		{strings.Repeat(`{"x`+strings.Repeat("é", 70)+`":`, 3) + "x", "é… is not valid JSON"},
		{`{"":x}`, `"" is not valid JSON`},
	} {
		err := strictjson.Check([]byte(tt.text))
		if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || len(err.Error()) > 1000 || !utf8.ValidString(err.Error())) {
			t.Errorf("%.80s: %q, want %q", tt.text, err, tt.want)
		}
	}
}

func TestObject(t *testing.T) {
	for text, want := range map[string]string{`[1]`: "is a list; must be one JSON object", ` null`: "is null; must be one JSON object", " \n": "is empty; must be a JSON object"} {
		if o, err := strictjson.Object([]byte(text)); o != nil || err == nil || err.Message[:len(want)] != want {
			t.Errorf("%q: %v, %v", text, o, err)
		}
	}
	if o, err := strictjson.Object([]byte(`{"a": 1}`)); err != nil || string(o["a"]) != "1" {
		t.Errorf("%v, %v", o, err)
	}
}

type inner struct {
	Role  string `json:"role"`
	Count int    `json:"count"`
}

type outer struct {
	Name  *string           `json:"name"`
	Yes   bool              `json:"yes,omitempty"`
	Share float64           `json:"share"`
	Raw   json.RawMessage   `json:"raw"`
	Free  loquat.Object     `json:"free"`
	Texts map[string]string `json:"texts"`
	Inner []inner           `json:"inner"`
	Event loquat.EventID    `json:"event"`
	inner
}

func TestDecode(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{`{"name": "x", "yes": true, "raw": [1], "free": {"a": {}}, "texts": {"a": "b"}, "inner": [{"role": "r", "count": 2}], "event": "0000000000000012", "role": "own"}`, ""},
		{`{"name": null, "inner": null, "free": null}`, ""},
		{`[]`, "is a list; must be an object"},
		{`{"nme": "x"}`, "nme is not a known key here; did you mean name?"},
		{`{"Name": "x"}`, "Name is not a known key here; did you mean name?"},
		{`{"quite_other": 1}`, "quite_other is not a known key here; the keys are count, event, free, inner, name, raw, role, share, texts, yes"},
		{`{"inner": [{}, {"rol": 1, "count": 1.5}], "name": 7, "share": "x", "texts": {"a": []}, "yes": null, "zzz": 0}`,
			"inner[1].count is 1.5; must be an integer in its range; inner[1].rol is not a known key here; did you mean role?; name is 7; must be a string; " +
				"share is a string; must be a number; texts.a is a list; must be a string; zzz is not a known key here; the keys are count, event, free, inner, name, raw, role, share, texts, yes"},
		{`{"inner": {"role": "x"}}`, "inner is an object; must be a list"},
		{`{"event": "x"}`, `event cannot be a string: an event_id has 16 digits, "x" has 1 characters`},
		{`{"count": 99999999999999999999}`, "count is 99999999999999999999; must be an integer in its range"},
		{`{"inner": [{"role": "a", "role": "b"}]}`, "line 1, column 26: inner[0].role is given twice; each key may be given once"},
	} {
		var out outer
		err := strictjson.Decode([]byte(tt.text), &out)
		if err == nil && tt.want != "" || err != nil && err.Error() != tt.want {
			t.Errorf("%s: %v, want %q", tt.text, err, tt.want)
		}
	}
	var out outer
	if err := strictjson.Decode([]byte(`{"name": "x", "inner": [{"count": 2}], "role": "own"}`), &out); err != nil || *out.Name != "x" || out.Inner[0].Count != 2 || out.Role != "own" {
		t.Errorf("%+v, %v", out, err)
	}
}

// A text with very many faults lists the first ones and counts the others.
func TestFaultsAreBounded(t *testing.T) {
	many := loquat.Object{}
	for i := range 10_000 {
		many.Set(fmt.Sprint("k", i), i)
	}
	text, err := json.Marshal(many)
	if err != nil {
		t.Fatal(err)
	}
	var out outer
	err = strictjson.Decode(text, &out)
	faults, ok := err.(strictjson.Faults)
	if !ok || len(faults) != loquat.MaxFieldErrors+1 || faults[loquat.MaxFieldErrors].Message != "has 9900 more faults" {
		t.Errorf("%d faults, %T, the last %v", len(faults), err, faults[len(faults)-1])
	}
}

// FuzzCheck compares Check with encoding/json. Every accepted text is valid JSON in UTF-8.
// What Check accepts, Decode either decodes or reports with at least one fault.
func FuzzCheck(f *testing.F) {
	for _, s := range []string{`{"a":[1,{"b":null}]}`, `{"a":1,"a":2}`, `{"a/b":{"~":x}}`, `[[["\ud800"]]]`, "\xff", `{} {}`, "", strings.Repeat("[", 200),
		`{"name":1,"inner":[{"count":1e3}],"texts":{"":null},"event":{}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := strictjson.Check(text); err != nil {
			if err.Line < 1 || err.Column < 1 || err.Message == "" || len(err.Error()) > 2000 || utf8.Valid(text) && !utf8.ValidString(err.Error()) {
				t.Errorf("%q: %+v", text, err)
			}
			return
		}
		if !json.Valid(text) || !utf8.Valid(text) {
			t.Errorf("let through: %q", text)
		}
		var out outer
		err := strictjson.Decode(text, &out)
		if faults, ok := err.(strictjson.Faults); err != nil && (!ok || len(faults) == 0 || err.Error() == "") {
			t.Errorf("%q: %T %v", text, err, err)
		}
	})
}
