package ui_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"loquat/internal/ui"
)

// conditionTable is the format of testdata/conditions.json. The web client is tested with
// the same file.
type conditionTable struct {
	Context struct{ Session, Message, Config any }
	Cases   []struct {
		Name      string
		Root      ui.Root
		Condition json.RawMessage
		Expect    struct{ Visible, Valid bool }
	}
}

func TestConditions(t *testing.T) {
	runConditions(t, filepath.Join("testdata", "conditions.json"))
}

// The shared table holds for all servers and clients.
func TestSharedConditions(t *testing.T) {
	dir := os.Getenv("LOQUAT_SHARED")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared")
	}
	file := filepath.Join(dir, "conformance", "conditions.json")
	if _, err := os.Stat(file); err != nil {
		t.Skipf("no table at %s (LOQUAT_SHARED names another place)", file)
	}
	runConditions(t, file)
}

func runConditions(t *testing.T, file string) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var table conditionTable
	if err := json.Unmarshal(raw, &table); err != nil {
		t.Fatal(err)
	}
	if len(table.Cases) == 0 {
		t.Fatalf("%s has no cases", file)
	}
	in := ui.Context{Session: ui.Decode(table.Context.Session), Message: ui.Decode(table.Context.Message), Config: ui.Decode(table.Context.Config)}
	for _, c := range table.Cases {
		t.Run(c.Name, func(t *testing.T) {
			visible, err := ui.Visible(c.Condition, c.Root, in)
			if (err == nil) != c.Expect.Valid {
				t.Errorf("error %v, want valid %v", err, c.Expect.Valid)
			}
			if visible != c.Expect.Visible {
				t.Errorf("visible %v, want %v", visible, c.Expect.Visible)
			}
		})
	}
}

// Go compares numbers with all their digits. A browser cannot, so these cases are not in
// the shared table.
func TestEqualNumbers(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"1", "1.0", true},
		{"1", "1e0", true},
		{"100", "1E+2", true},
		{"0.05", "5e-2", true},
		{"0", "-0.0", true},
		{"0", "0e99999999999999999999", true},
		{"-1", "1", false},
		{"9007199254740993", "9007199254740992", false},
		{"9007199254740993", "9007199254740993.0", true},
		{"123456789012345678901234567890", "123456789012345678901234567891", false},
		{"0.1", "0.10000000000000000001", false},
		{"1e400", "10e399", true},
		{"1e400", "1e401", false},
		{"1e99999999999999999999", "1e99999999999999999999", true},
		{"1e9223372036854775807", "10e9223372036854775806", true},
		{"100e9223372036854775807", "1e-9223372036854775807", false},
		{"1e99999999999999999999", "1e99999999999999999998", false},
		{"10e9223372036854775807", "10", false},
		{`"1"`, "1", false},
		{"true", "1", false},
		{"null", "0", false},
		{"[1, 2.0]", "[1.0, 2]", true},
		{"[1, 2]", "[2, 1]", false},
		{"[]", "{}", false},
		{`{"a": 1, "b": {"c": [0]}}`, `{"b": {"c": [-0]}, "a": 1.0}`, true},
		{`{"a": null}`, `{"b": null}`, false},
		{`{"a": null}`, `{}`, false},
		{`"a"`, `["a"]`, false},
	} {
		a, b := ui.Decode(json.RawMessage(c.a)), ui.Decode(json.RawMessage(c.b))
		if ui.Equal(a, b) != c.want || ui.Equal(b, a) != c.want {
			t.Errorf("%s and %s: want %v", c.a, c.b, c.want)
		}
	}
}

// Values that a caller has made have other types than decoded ones.
func TestEqualFloats(t *testing.T) {
	if !ui.Equal(1.5, json.Number("1.50")) || !ui.Equal(json.Number("15e-1"), 1.5) || ui.Equal(1.5, json.Number("1.6")) || ui.Equal(1.5, "1.5") {
		t.Error("a float64 is not compared by its value")
	}
}

func TestConditionDepth(t *testing.T) {
	nested := func(levels int) json.RawMessage {
		return json.RawMessage(strings.Repeat(`{"not":`, levels-1) + "{}" + strings.Repeat("}", levels-1))
	}
	if err := ui.CheckCondition(nested(ui.MaxConditionDepth)); err != nil {
		t.Errorf("%d levels: %v", ui.MaxConditionDepth, err)
	}
	for _, levels := range []int{ui.MaxConditionDepth + 1, 9000, 100_000} {
		if ui.CheckCondition(nested(levels)) == nil {
			t.Errorf("%d levels are allowed", levels)
		}
	}
	for levels, valid := range map[int]bool{ui.MaxConditionDepth: true, ui.MaxConditionDepth + 1: false} {
		groups := strings.Repeat(`{"all":[`, levels-1) + "{}" + strings.Repeat("]}", levels-1)
		if err := ui.CheckCondition(json.RawMessage(groups)); (err == nil) != valid {
			t.Errorf("%d levels of groups: %v", levels, err)
		}
	}
}

func TestLookupAndRender(t *testing.T) {
	in := ui.Context{
		Session: ui.Decode(json.RawMessage(`{"metadata": {"title": "Trip", "n": 12345678901234567890, "f": 15.0, "huge": 1e400, "o": {"a": "<b>"}}}`)),
		Message: map[string]any{"n": 1.5},
	}
	for _, c := range []struct {
		path, template string
		root           ui.Root
		want           string
		ok             bool
	}{
		{"title", "", ui.RootMetadata, "Trip", true},
		{"$.title", "{{data}} and {{data}}, {{ data }}", ui.RootMetadata, "Trip and Trip, {{ data }}", true},
		{"$session.metadata.n", "", ui.RootMetadata, "12345678901234567890", true},
		{"metadata.f", "", ui.RootSession, "15", true},
		{"metadata.o", "", ui.RootSession, `{"a":"<b>"}`, true},
		{"metadata.huge", "", ui.RootSession, "1e400", true},
		{"n", "<i>{{data}}</i>", ui.RootMessage, "<i>1.5</i>", true},
		{"title", "", ui.RootSession, "", false},
		{"a", "", ui.RootConfig, "", false},
		{"a..b", "", ui.RootSession, "", false},
		{"$config.a", "", ui.RootSession, "", false},
		{"$nothing.a", "", ui.RootSession, "", false},
	} {
		v, ok := ui.Lookup(c.path, c.root, in)
		if got := ui.Render(c.template, v); ok != c.ok || ok && got != c.want {
			t.Errorf("%s of %s: %q, %v; want %q, %v", c.path, c.root, got, ok, c.want, c.ok)
		}
	}
}

func TestRoots(t *testing.T) {
	for uiType, want := range map[string]ui.Root{
		"": ui.RootConfig, "config": ui.RootConfig, "composer_attachment": ui.RootConfig, "model_picker": ui.RootConfig,
		"message_footer": ui.RootMessage, "message_action": ui.RootMessage, "status_bar": ui.RootMessage,
		"session_action": ui.RootSession, "session_list_field": ui.RootSession, "hologram": ui.RootSession,
	} {
		if got := ui.RootOf(uiType); got != want {
			t.Errorf("%q: %s, want %s", uiType, got, want)
		}
	}
	if ui.DataRootOf("session_list_field") != ui.RootMetadata || ui.DataRootOf("message_footer") != ui.RootMessage {
		t.Error("DataRootOf returns a wrong root")
	}
}

// No input makes Visible panic, and whether a condition is malformed does not depend on the
// values that it is about.
func FuzzConditions(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, `[]`, `{"path":"a.0.b","eq":1e2}`, `{"all":[{"any":[]},{"not":{"path":"$message.x"}}]}`,
		`{"path":"$.a","exists":true,"empty":false}`, `{"eq":1}`, `{"path":"a","eq":{"b":[null,-0.0]}}`, `{"path":"$user.a"}`,
	} {
		f.Add([]byte(seed), []byte(`{"a":[{"b":100}],"x":null}`))
	}
	f.Fuzz(func(t *testing.T, condition, root []byte) {
		v, err := ui.DecodeRaw(root)
		if err != nil {
			v = nil
		}
		malformed := ui.CheckCondition(condition)
		for _, in := range []ui.Context{{}, {Session: v, Message: v, Config: v}} {
			visible, err := ui.Visible(condition, ui.RootSession, in)
			if (err == nil) != (malformed == nil) {
				t.Fatalf("CheckCondition returns %v, Visible returns %v", malformed, err)
			}
			if err != nil && visible {
				t.Fatal("a malformed condition is visible")
			}
			inverted := append(append([]byte(`{"not":`), condition...), '}')
			if hidden, e := ui.Visible(inverted, ui.RootSession, in); err == nil && e == nil && hidden == visible {
				t.Fatal("a condition and its negation have the same result")
			}
		}
		if value := ui.Decode(json.RawMessage(condition)); !ui.Equal(value, value) {
			t.Fatalf("%s is not equal to itself", condition)
		}
	})
}
