//go:build unix

package together_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"loquat"
)

// recorder repeats at the end of a test why it failed: the logs of all servers come after its first errors.
type recorder struct {
	testing.TB

	mu     sync.Mutex
	faults []string
}

// mostFaults is how many errors are repeated: one loss shows in many ways.
const mostFaults = 10

// record begins a test. It is called first, because what is to be cleaned up first is cleaned up last.
func record(t *testing.T) *recorder {
	r := &recorder{TB: t}
	t.Cleanup(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.faults) > 0 {
			t.Logf("why it failed:\n%s", strings.Join(r.faults, "\n"))
		}
	})
	return r
}

func (r *recorder) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.faults) < mostFaults {
		r.faults = append(r.faults, loquat.Clip(text, 500))
	}
}

func (r *recorder) Error(args ...any) {
	r.Helper()
	r.note(fmt.Sprint(args...))
	r.TB.Error(args...)
}

func (r *recorder) Errorf(format string, args ...any) {
	r.Helper()
	r.note(fmt.Sprintf(format, args...))
	r.TB.Errorf(format, args...)
}

func (r *recorder) Fatal(args ...any) {
	r.Helper()
	r.note(fmt.Sprint(args...))
	r.TB.Fatal(args...)
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Helper()
	r.note(fmt.Sprintf(format, args...))
	r.TB.Fatalf(format, args...)
}
