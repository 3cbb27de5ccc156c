package nearest

import (
	"strings"
	"testing"
)

// Hint does not compute the distance of a name of megabytes to short names. Otherwise this
// test would take minutes.
func TestHintOfALongName(t *testing.T) {
	long := strings.Repeat("x", 8<<20)
	var known []string
	for range 400 {
		known = append(known, "rate_limit_retry_delays_seconds")
	}
	if got := Hint(long, len(long)/3, known...); got != "" {
		t.Errorf("got %q", got)
	}
}
