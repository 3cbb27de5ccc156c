package ui

import (
	"slices"
	"testing"
)

// No known attribute is taken for a misspelling of another one.
func TestKnownAttributesAreNotMisspellings(t *testing.T) {
	for uiType, known := range Attributes {
		for _, name := range known {
			if others := slices.DeleteFunc(slices.Clone(known), func(k string) bool { return k == name }); suggestName(name, others) != "" {
				t.Errorf("%s: %s is taken for a misspelling%s", uiType, name, suggestName(name, others))
			}
		}
	}
}
