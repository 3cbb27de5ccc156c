package config_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"loquat"
	"loquat/internal/config"
)

// drawLayer draws a dictionary in which a key holds either an object or something
// else, always the same of both, as schemas have it: o* are objects, the rest not.
func drawLayer(depth int) *rapid.Generator[map[string]any] {
	return rapid.Custom(func(t *rapid.T) map[string]any {
		layer := map[string]any{}
		for _, key := range []string{"a", "b", "<&>"} {
			if rapid.Bool().Draw(t, "has "+key) {
				layer[key] = rapid.SampledFrom([]any{nil, 1.0, "s", true, []any{}, []any{1.0, nil}}).Draw(t, key)
			}
		}
		for _, key := range []string{"o1", "o2"} {
			if depth > 0 && rapid.Bool().Draw(t, "has "+key) {
				layer[key] = drawLayer(depth-1).Draw(t, key)
			}
		}
		return layer
	})
}

func toObject(m map[string]any) loquat.Object {
	o, _ := config.AsObject(config.Encode(m))
	return o
}

func fromObject(o loquat.Object) map[string]any {
	m := map[string]any{}
	config.MustDecode(config.Encode(o), &m)
	return m
}

// modelMerge is a model of Merge with plain maps.
func modelMerge(under, over map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range under {
		out[k] = v
	}
	for k, v := range over {
		below, isObject := out[k].(map[string]any)
		above, isToo := v.(map[string]any)
		if isObject && isToo {
			v = modelMerge(below, above)
		}
		out[k] = v
	}
	return out
}

func TestMergeProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := drawLayer(2).Draw(t, "a"), drawLayer(2).Draw(t, "b"), drawLayer(2).Draw(t, "c")
		A, B, C := toObject(a), toObject(b), toObject(c)
		same := func(what string, got loquat.Object, want map[string]any) {
			t.Helper()
			if !reflect.DeepEqual(fromObject(got), want) {
				t.Fatalf("%s = %s, want %v", what, config.Encode(got), want)
			}
		}
		same("a+b", config.Merge(A, B), modelMerge(a, b))
		same("a+(b+c)", config.Merge(A, config.Merge(B, C)), fromObject(config.Merge(config.Merge(A, B), C)))
		same("a+a", config.Merge(A, A), a)
		same("(a+b)+b", config.Merge(config.Merge(A, B), B), fromObject(config.Merge(A, B)))
		same("a+nothing", config.Merge(A, nil), a)
		same("nothing+a", config.Merge(nil, A), a)
		same("a afterwards", A, a)
		same("b afterwards", B, b)
	})
}

func TestMergeReplacesWhatDiffersInKind(t *testing.T) {
	for _, tt := range []struct{ under, over, want string }{
		{`{"a": 1}`, `{"b": 2}`, `{"a":1,"b":2}`},
		{`[1, 2]`, `[3]`, `[3]`},
		{`{"a": 1}`, `[3]`, `[3]`},
		{`[3]`, `{"a": 1}`, `{"a":1}`},
		{`{"a": 1}`, `null`, `null`},
		{`null`, `{"a": null}`, `{"a":null}`},
		{`{"a": {"b": 1}}`, `{"a": null}`, `{"a":null}`},
	} {
		got := config.Merge(loquat.Object{"k": json.RawMessage(tt.under)}, loquat.Object{"k": json.RawMessage(tt.over)})
		if compact := fmt.Sprintf(`{"k":%s}`, tt.want); string(config.Encode(got)) != compact {
			t.Errorf("%s under %s = %s, want %s", tt.under, tt.over, config.Encode(got), compact)
		}
	}
}
