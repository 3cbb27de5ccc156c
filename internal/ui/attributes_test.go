package ui

import (
	"maps"
	"slices"
	"testing"
)

// No known attribute is taken for a misspelling of another one.
func TestKnownAttributesAreNotMisspellings(t *testing.T) {
	lists := maps.Clone(Attributes)
	lists["an input of a dialog"] = InputAttributes
	for uiType, known := range lists {
		for _, name := range known {
			if others := slices.DeleteFunc(slices.Clone(known), func(k string) bool { return k == name }); suggestName(name, others) != "" {
				t.Errorf("%s: %s is taken for a misspelling%s", uiType, name, suggestName(name, others))
			}
		}
	}
}
