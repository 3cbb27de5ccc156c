package route

import (
	"slices"
	"testing"

	"loquat"
)

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
