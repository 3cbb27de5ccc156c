package backend

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// serveTimed serves one streamed request under a fake clock. It returns the times of the
// flushes, and the journal entry.
func serveTimed(t *testing.T, ctx context.Context, script string) (flushes []time.Duration, e Entry) {
	t.Helper()
	b, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	w := &clocked{ResponseRecorder: httptest.NewRecorder(), start: start}
	body := strings.NewReader(requestBody("demo", `,"stream":true,"loquat_script":`+script))
	b.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "POST", "/v1/chat/completions", body))
	return w.flushes, b.journal.list()[0]
}

type clocked struct {
	*httptest.ResponseRecorder
	start   time.Time
	flushes []time.Duration
}

func (w *clocked) Flush() { w.flushes = append(w.flushes, time.Since(w.start)) }

func TestTiming(t *testing.T) {
	tests := []struct {
		name, script string
		first, last  time.Duration // of the flushes
		total        time.Duration
		flushes      int
		end          End
	}{
		// five chunks, a finish and a [DONE]: one write each
		{"rate", `{"chunks":5,"rate":10}`, 0, 600 * time.Millisecond, 600 * time.Millisecond, 7 + 1, EndCompleted},
		{"no rate", `{"chunks":5}`, 0, 0, 0, 1, EndCompleted},
		{"delay", `{"text":"x","delay_ms":1500}`, 1500 * time.Millisecond, 1500 * time.Millisecond, 1500 * time.Millisecond, 1, EndCompleted},
		{"first byte", `{"text":"x","first_byte_delay_ms":700}`, 0, 700 * time.Millisecond, 700 * time.Millisecond, 2, EndCompleted},
		{"stall", `{"chunks":5,"stall_after":2}`, 0, 0, maxStall, 1, EndStalled},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				flushes, e := serveTimed(t, t.Context(), tt.script)
				if len(flushes) != tt.flushes || flushes[0] != tt.first || flushes[len(flushes)-1] != tt.last {
					t.Errorf("flushes at %v", flushes)
				}
				if total := e.Ended.Sub(e.Started); total != tt.total || e.End != tt.end {
					t.Errorf("took %v, ended %q", total, e.End)
				}
			})
		})
	}
}

func TestCancelDuringDelay(t *testing.T) {
	for _, script := range []string{`{"delay_ms":60000}`, `{"chunks":2,"first_byte_delay_ms":60000}`, `{"chunks":9,"rate":0.01}`, `{"chunks":9,"stall_after":0}`} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, e := serveTimed(t, ctx, script)
			if e.End != EndClientClosed || e.Ended.Sub(e.Started) != time.Second {
				t.Errorf("%s: %q after %v", script, e.End, e.Ended.Sub(e.Started))
			}
		})
	}
}

// The built-in models write at a pace that a reader can follow.
func TestDemoIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, e := serveTimed(t, t.Context(), `null`)
		if took := e.Ended.Sub(e.Started); took < time.Second || took > 10*time.Second {
			t.Errorf("took %v", took)
		}
	})
}
