package settings

import (
	"context"
	"strings"
	"testing"

	"loquat"
)

// A user cannot fill the memory with large overrides: they are not kept.
func TestCacheOfLargeOverrides(t *testing.T) {
	c := newCache()
	calls := 0
	get := func(text string) {
		t.Helper()
		_, err := c.get(t.Context(), "default", loquat.Object{}.Set("request_options", text), func(context.Context) (Resolved, bool, error) {
			calls++
			return Resolved{}, true, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		get("small")
		get(strings.Repeat("x", maxKey))
	}
	if c.entries.Len() != 1 || calls != 3 {
		t.Errorf("%d entries after %d calls", c.entries.Len(), calls)
	}
}
