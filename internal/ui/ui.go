// Package ui implements the rules of the server-driven user interface: how elements are
// normalized, when they are visible, which value they have, and which values they accept.
//
// All functions are pure: they do not wait, call plugins, keep state or change their
// arguments. Unknown attributes of elements are passed on unchanged. One attribute is not
// in the specification: a config element or dialog input of type text or multiline with
// `"format": "json"` accepts any JSON value instead of a string. The package does not know
// which configuration keys a session must not override.
package ui

import (
	"encoding/json"

	"loquat"
)

// Input holds the arguments of a plugin's get_ui_elements.
type Input struct {
	State  loquat.Object // of an application plugin
	Config loquat.Object // resolved settings, secrets as {"set": true}; nil asks for all elements
	Tags   []string      // of the provider and the loaded plugins, such as supports_reasoning
	Models []loquat.Model
}

// uiConfig is the ui_type of an element that edits a configuration key.
const uiConfig = "config"

// isConfig reports whether an element, normalized or not, is a config element.
func isConfig(element loquat.Object) bool {
	return isFalsy(element["ui_type"]) || element.String("ui_type") == uiConfig
}

// isFalsy reports whether a value counts as not set: missing, null, false, 0, "", [] or {}.
func isFalsy(raw json.RawMessage) bool {
	v, _ := decode(raw) // nil if it is not valid JSON
	return isEmpty(v) || v == false || equal(v, json.Number("0"))
}
