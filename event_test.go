package loquat

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseEventID(t *testing.T) {
	for s, want := range map[string]EventID{
		"0000000000000000": 0, "0000000000000042": 42, "9999999999999999": 9999999999999999,
	} {
		if got, err := ParseEventID(s); err != nil || got != want {
			t.Errorf("%q: %d, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "42", "000000000000042", "00000000000000042", "-000000000000042", "+000000000000042",
		"0x00000000000042", "000000000000004 ", "00000000_0000042", "٤٢٤٢٤٢٤٢"} {
		if got, err := ParseEventID(s); err == nil {
			t.Errorf("%q was read as %d", s, got)
		}
	}
}

func TestParseSinceID(t *testing.T) {
	for s, want := range map[string]EventID{
		"0": 0, "00": 0, "42": 42, "1000000000000001": 1000000000000001, "0000000000000042": 42, strings.Repeat("0", 1000) + "42": 42,
		"9999999999999999": 9999999999999999, "10000000000000000": 9999999999999999, strings.Repeat("9", 1000): 9999999999999999,
	} {
		if got, err := ParseSinceID(s); err != nil || got != want {
			t.Errorf("%.40q: %d, %v", s, got, err)
		}
	}
	for _, s := range []string{"", " 42", "-1", "+1", "4 2", "0x2a", "1e3", "4_2", "٤٢", "null"} {
		if got, err := ParseSinceID(s); err == nil {
			t.Errorf("%q was read as %d", s, got)
		}
	}
}

func TestEventIDSortsAsText(t *testing.T) {
	ids := rapid.Int64Range(0, int64(math.Pow10(EventIDWidth))-1)
	rapid.Check(t, func(t *rapid.T) {
		a, b := EventID(ids.Draw(t, "a")), EventID(ids.Draw(t, "b"))
		if (a < b) != (a.String() < b.String()) {
			t.Fatalf("%d %d, %s %s", a, b, a, b)
		}
		raw, err := json.Marshal(a)
		var back EventID
		if err != nil || json.Unmarshal(raw, &back) != nil || back != a {
			t.Fatalf("%d became %s became %d, %v", a, raw, back, err)
		}
	})
}
