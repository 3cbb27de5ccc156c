package route

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"loquat"
)

// FuzzCheckJSON compares checkJSON with encoding/json. Every accepted body is valid JSON in
// UTF-8 and not too deep. Every error names a place in the body.
func FuzzCheckJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,{"b":null}]}`, `{"a":1,"a":2}`, `{"a/b":{"~":x}}`, `[[["\ud800"]]]`, "\xff", `{} {}`, "", strings.Repeat("[", 200)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		err := checkJSON(body)
		if err == nil {
			if len(body) > 0 && (!json.Valid(body) && strings.TrimSpace(string(body)) != "" || !utf8.Valid(body)) {
				t.Errorf("let through: %q", body)
			}
			return
		}
		e, ok := err.(*loquat.Error)
		if !ok || !e.Malformed || len(e.Fields) != 1 || !strings.HasPrefix(e.Fields[0].Location, "body") {
			t.Errorf("%q: %v", body, err)
		}
	})
}

func TestParseIfMatch(t *testing.T) {
	for _, tc := range []struct {
		values []string
		any    bool
		ids    []loquat.EventID
	}{
		{[]string{`"0000000000000012"`}, false, []loquat.EventID{12}},
		{[]string{`"0000000000000012", "0000000000000013"`, `"0000000000000014"`}, false, []loquat.EventID{12, 13, 14}},
		{[]string{`*`}, true, nil},
		{[]string{`W/"0000000000000012"`}, false, nil},
		{[]string{`0000000000000012`}, false, nil},
		{[]string{`"12"`}, false, nil},
		{[]string{`"0000000000000012`}, false, nil},
		{[]string{``}, false, nil},
	} {
		m := parseIfMatch(tc.values)
		if m == nil || m.Any != tc.any || !slices.Equal(m.IDs, tc.ids) {
			t.Errorf("%q: %+v", tc.values, m)
		}
	}
	if m := parseIfMatch(nil); m != nil {
		t.Errorf("no header: %+v", m)
	}
}
