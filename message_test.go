package loquat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"testing"
)

func TestToolCallJSON(t *testing.T) {
	for _, tc := range []struct{ in, out string }{
		{`{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}`, ``},
		{`{"function":{"arguments":"{\"a\":","name":"f"},"id":"c","index":0,"type":"custom","x":{"y":[1]}}`, ``},
		{`{"id":"c","type":"function","function":{"name":"f","arguments":"","thought_signature":"s"}}`, ``},
		{`{"tool_call_id":"c","type":"function","function":{"name":"f","arguments":""}}`,
			`{"id":"c","tool_call_id":"c","type":"function","function":{"name":"f","arguments":""}}`},
		{`{}`, `{"id":"","type":"function","function":{"name":"","arguments":""}}`},
	} {
		var call ToolCall
		if err := json.Unmarshal([]byte(tc.in), &call); err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(call)
		if err != nil {
			t.Fatal(err)
		}
		if tc.out == "" {
			tc.out = tc.in
		}
		if !sameJSON(t, got, []byte(tc.out)) {
			t.Errorf("got  %s\nwant %s", got, tc.out)
		}
	}
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	if err := errors.Join(json.Unmarshal(a, &x), json.Unmarshal(b, &y)); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(x, y)
}

// Extra and FunctionExtra have only what has no field of its own.
func TestFieldsOfToolCall(t *testing.T) {
	for text, want := range map[string]ToolCall{
		`{"id":"c","function":{"name":"f","arguments":"{}"}}`:      {ID: "c", Name: "f", Arguments: "{}"},
		`{"id":"c","type":"t","function":{"name":"f","strict":1}}`: {ID: "c", Name: "f", Extra: Object{"type": []byte(`"t"`)}, FunctionExtra: Object{"strict": []byte(`1`)}},
	} {
		var call ToolCall
		if err := json.Unmarshal([]byte(text), &call); err != nil || !reflect.DeepEqual(call, want) {
			t.Errorf("%s is read as %+v, %v", text, call, err)
		}
	}
}

func TestMarshalToolCallDoesNotChangeIt(t *testing.T) {
	call := ToolCall{ID: "c", Name: "f", Extra: Object{}.Set("x", 1), FunctionExtra: Object{}.Set("y", 2)}
	if _, err := json.Marshal(call); err != nil {
		t.Fatal(err)
	}
	if len(call.Extra) != 1 || len(call.FunctionExtra) != 1 {
		t.Errorf("extra fields are now %v, %v", call.Extra, call.FunctionExtra)
	}
}

func TestMessageToolCalls(t *testing.T) {
	m := Message{Metadata: Object{}.Set(MetaToolCalls, []ToolCall{{ID: "a", Name: "f"}, {ID: "b", Name: "g"}})}
	if calls := m.ToolCalls(); len(calls) != 2 || calls[1].ID != "b" || calls[1].Name != "g" {
		t.Errorf("got %+v", calls)
	}
	for _, raw := range []string{`null`, `{}`, `"x"`, `[3]`} {
		if calls := (Message{Metadata: Object{MetaToolCalls: json.RawMessage(raw)}}).ToolCalls(); len(calls) != 0 {
			t.Errorf("%s: %+v", raw, calls)
		}
	}
	if calls := (Message{}).ToolCalls(); calls != nil {
		t.Errorf("none: %+v", calls)
	}
}

func TestAsDeltaAndAsMessage(t *testing.T) {
	m := Message{ID: "m", Role: RoleUser, Content: "c", Metadata: Object{}.Set("k", 1), CreatedAt: testTime}
	if back := m.AsDelta().AsMessage(); !reflect.DeepEqual(back, m) {
		t.Errorf("got %+v", back)
	}
}

func TestObject(t *testing.T) {
	var o Object
	if o.String("k") != "" || o.Bool("k") || o.Object("k") != nil || o.Clone() != nil {
		t.Error("a nil object is not empty")
	}
	o = o.Set("s", "x").Set("b", true).Set("o", map[string]int{"n": 1})
	if o.String("s") != "x" || !o.Bool("b") || string(o.Object("o")["n"]) != "1" {
		t.Errorf("got %s", o)
	}
	if o.String("b") != "" || o.Bool("s") || o.Object("s") != nil {
		t.Error("a value was read as a value of another type")
	}
	if c := o.Clone().Set("s", "y"); o.String("s") != "x" || c.String("s") != "y" {
		t.Error("a clone shares its keys")
	}
	defer func() {
		if recover() == nil {
			t.Error("a value that has no JSON was set")
		}
	}()
	o.Set("s", func() {})
}

// StringOf reads a string as encoding/json does, and does not read null.
func TestStringOf(t *testing.T) {
	for _, raw := range []string{`"plain"`, `"grüße 世界"`, `""`, `"a\"b"`, `"\u00e4\n"`, "\"\xff\"", "\"a\tb\"", `"a" `, ` "a"`, `"`, `"a`, `"ab`, `ab"`, `"a""b"`, `null`, `7`, `{}`, ``} {
		var want string
		valid := json.Unmarshal([]byte(raw), &want) == nil && raw != "null"
		if !valid {
			want = ""
		}
		if got, ok := StringOf(json.RawMessage(raw)); ok != valid || ok && got != want {
			t.Errorf("%q is read as %q, %v; want %q, %v", raw, got, ok, want, valid)
		}
		if got := (Object{"k": json.RawMessage(raw)}).String("k"); got != want {
			t.Errorf("%q at a key is read as %q, want %q", raw, got, want)
		}
	}
}

// Only attachments with an asset_id refer to assets. Clients may spell the name with escapes.
func TestAssetIDs(t *testing.T) {
	for raw, want := range map[string][]string{
		`[{"type":"image","asset_id":"a"},{"type":"image","url":"u"},{"type":"image","asset_id":"b"}]`: {"a", "b"},
		`[{"asset\u005fid":"a"}]`: {"a"},
		`[{"asset_id":""},{"asset_id":7},3,null,"asset_id",{"asset_id":"a"}]`: {"a"},
		`[{"url":"u"}]`:      nil,
		`{"asset_id":"a"}`:   nil,
		`[{"asset_id":"a"},`: nil,
		`null`:               nil,
		``:                   nil,
	} {
		m := Message{Metadata: Object{MetaAttachments: json.RawMessage(raw)}}
		if got := m.AssetIDs(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s refers to %q, want %q", raw, got, want)
		}
	}
}

func TestCodeOf(t *testing.T) {
	wrapped := fmt.Errorf("send: %w", Errorf(CodeBusy, "session %s is busy", "s"))
	for _, tc := range []struct {
		err  error
		want Code
	}{{nil, ""}, {io.EOF, CodeInternal}, {wrapped, CodeBusy}, {Invalid("body.x", "is too long"), CodeInvalid}} {
		if got := CodeOf(tc.err); got != tc.want {
			t.Errorf("%v: %s", tc.err, got)
		}
	}
	if e := (&Error{Code: CodeBackendError, Detail: "cut: EOF; again", Err: io.EOF}); e.Error() != "backend_error: cut: EOF; again" {
		t.Errorf("the error contains the cause twice: %v", e)
	}
	if e := (&Error{Code: CodeInternal, Detail: "d", Err: io.EOF}); !errors.Is(e, io.EOF) || e.Error() != "internal: d: EOF" {
		t.Errorf("got %v", e)
	}
}

func TestValidRole(t *testing.T) {
	for _, role := range []string{RoleUser, RoleAssistant, RoleSystem, RoleTool} {
		if !ValidRole(role) {
			t.Errorf("%s is not accepted", role)
		}
	}
	for _, role := range []string{"", "User", "developer"} {
		if ValidRole(role) {
			t.Errorf("%q is accepted", role)
		}
	}
}
