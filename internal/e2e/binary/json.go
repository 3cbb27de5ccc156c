package binary

import (
	"encoding/json"
	"reflect"
	"testing"
)

// SameJSON reports whether two JSON texts have the same value.
func SameJSON(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// MustJSON returns the JSON of a value.
func MustJSON(t testing.TB, v any) json.RawMessage {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
