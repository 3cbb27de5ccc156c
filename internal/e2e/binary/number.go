package binary

import (
	"os"
	"strconv"
	"testing"
)

// Number returns the positive number in an environment variable, which sets the size of a test, or
// otherwise if the variable is not set.
func Number(t testing.TB, variable string, otherwise int) int {
	t.Helper()
	s := os.Getenv(variable)
	if s == "" {
		return otherwise
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("%s: %q is not a positive number", variable, s)
	}
	return n
}
