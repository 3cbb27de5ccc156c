// Package ui holds the rules of the server-driven user interface: how elements are
// normalised, when they show, what value they have, and what may be written to them.
//
// It promises pure functions: nothing here waits, calls a plugin or keeps anything.
// Elements are opaque; what is not known of them passes through.
package ui

import "loquat"

// Input is what a plugin's get_ui_elements is given.
type Input struct {
	State  loquat.Object // of an application plugin
	Config loquat.Object // effective, secrets as {"set": true}; nil asks for all elements
	Tags   []string      // of the provider and the loaded plugins, like supports_reasoning
	Models []loquat.Model
}
