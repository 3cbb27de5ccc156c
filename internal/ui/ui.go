// Package ui holds the rules of the server-driven user interface: how elements are
// normalised, when they show, what value they have, and what may be written to them.
//
// It promises pure functions: nothing here waits, calls a plugin or keeps anything, and
// what is passed in is not changed. Elements are opaque; what is not known of them
// passes through. One key is this service's own: a config element or dialog input of
// type text or multiline with `"format": "json"` takes any JSON value instead of a
// string. It does not know which keys of a configuration no session may change.
package ui

import (
	"encoding/json"

	"loquat"
)

// Input is what a plugin's get_ui_elements is given.
type Input struct {
	State  loquat.Object // of an application plugin
	Config loquat.Object // effective, secrets as {"set": true}; nil asks for all elements
	Tags   []string      // of the provider and the loaded plugins, like supports_reasoning
	Models []loquat.Model
}

// uiConfig is the ui_type of an element that edits a configuration key.
const uiConfig = "config"

// isConfig reports whether an element, normalised or not, is a config element.
func isConfig(element loquat.Object) bool {
	return falsy(element["ui_type"]) || element.String("ui_type") == uiConfig
}

// falsy is what counts as not given: nothing, null, false, 0, "", [] and {}.
func falsy(raw json.RawMessage) bool {
	if len(raw) == 0 {
		return true
	}
	v, err := decode(raw)
	return err != nil || empty(v) || v == false || equal(v, json.Number("0"))
}
