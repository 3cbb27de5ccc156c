package loquat

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestClip(t *testing.T) {
	for _, tc := range []struct {
		text string
		n    int
		want string
	}{
		{"", 3, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "ab…"},
		{"äöü", 3, "äöü"},
		{"äöüß", 3, "äö…"},
		{"日本語の", 3, "日本…"},
		{"a\xffb", 3, "a\xffb"},
		{"abc", 1, "…"},
		{"abc", 0, ""},
		{"abc", -1, ""},
	} {
		if got := Clip(tc.text, tc.n); got != tc.want {
			t.Errorf("Clip(%q, %d) = %q, want %q", tc.text, tc.n, got, tc.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		text, n := rapid.String().Draw(t, "text"), rapid.IntRange(0, 40).Draw(t, "n")
		got := Clip(text, n)
		if utf8.RuneCountInString(got) > n || utf8.RuneCountInString(text) <= n && got != text {
			t.Fatalf("Clip(%q, %d) = %q", text, n, got)
		}
		if begin, cut := strings.CutSuffix(got, "…"); cut && !strings.HasPrefix(text, begin) {
			t.Fatalf("%q does not begin with %q", text, begin)
		}
	})
}

// Errors clip their texts themselves, so a large input cannot make a large error.
func TestErrorsAreBounded(t *testing.T) {
	const long = 8 << 20
	input := strings.Repeat("x", long)
	for name, e := range map[string]*Error{
		"Errorf":            Errorf(CodeConflict, "%q is taken", input),
		"Invalid, message":  Invalid("body.agent_id", "is %q", input),
		"Invalid, location": Invalid("body."+input, "is unknown"),
		"Invalid, both":     Invalid(input, "%s", input),
	} {
		size := len(e.Error())
		for _, f := range e.Fields {
			size += len(f.Location) + len(f.Message)
		}
		if most := 10_000; size > most {
			t.Errorf("%s: the error has %d bytes, want at most %d", name, size, most)
		}
	}
	_, err := ParseEventID(input)
	if most := 200; len(err.Error()) > most {
		t.Errorf("ParseEventID: the error has %d bytes, want at most %d", len(err.Error()), most)
	}
	short := Invalid("body.n", "is %d", 7)
	if short.Error() != "invalid: body.n is 7" || short.Fields[0] != (FieldError{Location: "body.n", Message: "is 7"}) {
		t.Errorf("a short error is %v with fields %v", short, short.Fields)
	}
}
