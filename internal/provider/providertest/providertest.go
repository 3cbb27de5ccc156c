// Package providertest has the inputs that the tests of package provider share, inside and
// outside of the package.
package providertest

import (
	"encoding/json"
	"reflect"

	"loquat"
	"loquat/internal/config"
)

// URL is the base URL of a backend that exists only in memory.
const URL = "http://backend.test/v1"

// Config returns the provider config of a base URL.
func Config(url string) loquat.Object {
	return loquat.Object{}.Set("provider", config.DefaultSelector).Set("model", "m").Set("base_url", url).Set("api_key", "sk-secret-key")
}

// UserSays returns a history of one message.
func UserSays(text string) []loquat.Message {
	return []loquat.Message{{Role: loquat.RoleUser, Content: text}}
}

// SameJSON reports whether two values are equal. It compares numbers by value, because
// notations differ.
func SameJSON(a, b json.RawMessage) bool {
	var x, y any
	if len(a) > 0 && json.Unmarshal(a, &x) != nil || len(b) > 0 && json.Unmarshal(b, &y) != nil {
		return false
	}
	return reflect.DeepEqual(x, y)
}
