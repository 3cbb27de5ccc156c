package config_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"loquat/internal/config"
)

func TestParseDelays(t *testing.T) {
	s := time.Second
	for _, tt := range []struct {
		raw  string
		want []time.Duration
		err  string
	}{
		{raw: ``},
		{raw: `[]`},
		{raw: `""`},
		{raw: `"  "`},
		{raw: `[1, 2.5]`, want: []time.Duration{s, 2500 * time.Millisecond}},
		{raw: `"1, 2.5"`, want: []time.Duration{s, 2500 * time.Millisecond}},
		{raw: `"0"`, want: []time.Duration{0}},
		{raw: `[1e1]`, want: []time.Duration{10 * s}},
		{raw: `[0.1]`, want: []time.Duration{100 * time.Millisecond}},
		{raw: `[1, -2]`, err: "entry 1 is -2; must be seconds"},
		{raw: `["1"]`, err: `entry 0 is "1"`},
		{raw: `[null]`, err: "entry 0 is null"},
		{raw: `"1, soon"`, err: "entry 1 is soon"},
		{raw: `"1,,2"`, err: "entry 1 is empty"},
		{raw: `"1,"`, err: "entry 1 is empty"},
		{raw: `"NaN"`, err: "entry 0 is NaN"},
		{raw: `"Inf"`, err: "entry 0 is Inf"},
		{raw: `"0x10"`, err: "entry 0 is 0x10"},
		{raw: `[1e300]`, err: "entry 0 is 1e300"},
		{raw: `[604801]`, err: "0 to 604800"},
		{raw: `3`, err: "is a number; must be seconds"},
		{raw: `null`, err: "is null"},
		{raw: `{}`, err: "is an object"},
	} {
		got, err := config.ParseDelays(json.RawMessage(tt.raw))
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("ParseDelays(%s) = %v, %v, want an error with %q", tt.raw, got, err, tt.err)
			}
			continue
		}
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("ParseDelays(%s) = %v, %v, want %v", tt.raw, got, err, tt.want)
		}
	}
}

func TestParseDelayMap(t *testing.T) {
	got, err := config.ParseDelayMap(json.RawMessage(`{"500": [1], "503": "2, 3", "599": []}`))
	if err != nil || len(got) != 3 || !slices.Equal(got[503], []time.Duration{2 * time.Second, 3 * time.Second}) {
		t.Fatalf("ParseDelayMap = %v, %v", got, err)
	}
	if got, err := config.ParseDelayMap(nil); err != nil || len(got) != 0 {
		t.Errorf("an absent map = %v, %v, want none", got, err)
	}
	for raw, want := range map[string]string{
		`{"429": [1]}`:             "rate_limit_retry_delays_seconds",
		`{"99": [1]}`:              "100 to 599",
		`{"600": [1]}`:             "100 to 599",
		`{"0500": [1]}`:            "100 to 599",
		`{"5xx": [1]}`:             "100 to 599",
		`{"500": [-1]}`:            "500: entry 0 is -1",
		`{"500": 1}`:               "500: is a number",
		`[1]`:                      "is a list",
		`null`:                     "is null",
		`{"429": [], "boom": [1]}`: "boom: is not an HTTP status code",
	} {
		if got, err := config.ParseDelayMap(json.RawMessage(raw)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseDelayMap(%s) = %v, %v, want an error with %q", raw, got, err, want)
		}
	}
}
