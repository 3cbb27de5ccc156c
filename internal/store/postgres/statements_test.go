package postgres

import (
	"fmt"
	"strings"
	"testing"
)

// Clients choose the texts of some queries. However many there are, a bounded number stays in memory.
func TestTranslatedQueriesAreBounded(t *testing.T) {
	for i := range 10 * maxTranslated {
		query := fmt.Sprintf(`SELECT %d, ?, '%s', ?`, i, strings.Repeat("x", i%5))
		for range 2 { // also when the translation is remembered
			if got, want := numbered(query), strings.Replace(strings.Replace(query, "?", "$1", 1), "?", "$2", 1); got != want {
				t.Fatalf("%s became %s, want %s", query, got, want)
			}
		}
	}
	kept := 0
	translated.Range(func(_, _ any) bool { kept++; return true })
	if kept == 0 || kept > maxTranslated {
		t.Errorf("%d translations are kept", kept)
	}
}
