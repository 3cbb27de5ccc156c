package provider_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"loquat"
	"loquat/internal/provider"
	"loquat/internal/provider/providertest"
)

func retryConfig(set func(loquat.Object)) loquat.Object {
	c := providertest.Config(providertest.URL).Set("timeout", 10)
	if set != nil {
		set(c)
	}
	return c
}

// waits returns the delay of each retry.
func (o outcome) waits() []time.Duration {
	var out []time.Duration
	for _, r := range o.retries {
		out = append(out, r.Delay)
	}
	return out
}

// The specification's worked rule: with 500: [a, b, c] and timeouts [x, y, z], the
// failures 500, timeout, 500, timeout use a, y, c and then raise.
func TestWorkedRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{steps: []step{{status: 500}, {hang: true}, {status: 500}, {hang: true}}}
		o := chat(t, s, retryConfig(func(c loquat.Object) {
			c.Set("retry_on_status", map[string]any{"500": []int{1, 2, 3}}).Set("retry_on_timeout", []int{100, 200, 300})
		}), true)
		if want := []time.Duration{time.Second, 200 * time.Second, 3 * time.Second}; !slices.Equal(o.waits(), want) {
			t.Errorf("waits %v, want %v", o.waits(), want)
		}
		for i, want := range []loquat.Retry{{Attempt: 1, Cause: loquat.CauseStatus, Status: 500}, {Attempt: 2, Cause: loquat.CauseTimeout}, {Attempt: 3, Cause: loquat.CauseStatus, Status: 500}} {
			if r := o.retries[i]; r.Attempt != want.Attempt || r.Cause != want.Cause || r.Status != want.Status {
				t.Errorf("retry %d is %+v, want %+v", i, r, want)
			}
		}
		if o.err == nil || !strings.Contains(o.err.Error(), "in time") || !strings.Contains(o.err.Error(), "4 attempts") {
			t.Errorf("the end is %v", o.err)
		}
		var gaps []time.Duration
		for i := range s.seen[1:] {
			gaps = append(gaps, s.seen[i+1].Sub(s.seen[i]))
		}
		if want := []time.Duration{time.Second, 210 * time.Second, 3 * time.Second}; !slices.Equal(gaps, want) {
			t.Errorf("requests came %v apart, want %v", gaps, want)
		}
	})
}

// TestRetryRules compares the retry loop with an independent model of its rule: a counter
// and a table of lists.
func TestRetryRules(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		list := rapid.SliceOfN(rapid.IntRange(0, 50), 0, 4)
		lists := map[string][]int{"429": list.Draw(rt, "429"), "500": list.Draw(rt, "500"), "503": list.Draw(rt, "503"), "timeout": list.Draw(rt, "timeout")}
		failures := rapid.SliceOfN(rapid.SampledFrom([]string{"429", "500", "503", "404", "timeout", "late", "refused"}), 0, 6).Draw(rt, "failures")
		stream := rapid.Bool().Draw(rt, "stream")

		var want []time.Duration
		ok := true
		for n, f := range failures {
			if f == "late" {
				f = "timeout"
			}
			l := lists[f]
			if ok = n < len(l); !ok {
				break
			}
			want = append(want, time.Duration(l[n])*time.Second)
		}
		steps := make([]step, 0, len(failures)+1)
		for _, f := range failures {
			steps = append(steps, failureStep(f))
		}
		steps = append(steps, step{body: says("hello") + done})

		synctest.Test(t, func(t *testing.T) {
			s := &script{steps: steps}
			o := chat(t, s, retryConfig(func(c loquat.Object) {
				c.Set("rate_limit_retry_delays_seconds", lists["429"]).Set("retry_on_timeout", lists["timeout"])
				c.Set("retry_on_status", map[string]any{"500": lists["500"], "503": lists["503"]})
			}), stream)
			if !slices.Equal(o.waits(), want) {
				rt.Fatalf("waits %v, want %v", o.waits(), want)
			}
			if ok != (o.err == nil) || len(s.seen) != len(want)+1 {
				rt.Fatalf("error %v after %d requests", o.err, len(s.seen))
			}
		})
	})
}

func failureStep(f string) step {
	switch f {
	case "timeout":
		return step{hang: true}
	case "late":
		return step{stall: true} // headers, then not one byte
	case "refused":
		return step{refuse: errors.New("connection refused")}
	}
	var status int
	fmt.Sscan(f, &status)
	return step{status: status, body: `{"error":{"message":"no"}}`}
}

func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := func(d time.Duration) string { return d.String() } // a date that far from then
		for _, tc := range []struct {
			value   string
			respect bool
			want    time.Duration
		}{
			{"", true, 5 * time.Second},
			{"9", true, 9 * time.Second},
			{"2", true, 5 * time.Second},
			{"9", false, 5 * time.Second},
			{"7.25", true, 7250 * time.Millisecond},
			{"-3", true, 5 * time.Second},
			{"soon", true, 5 * time.Second},
			{"NaN", true, 5 * time.Second},
			{"1e300", true, 5 * time.Second},
			{in(20 * time.Second), true, 20 * time.Second},
			{in(-time.Hour), true, 5 * time.Second},
		} {
			if d, err := time.ParseDuration(tc.value); err == nil {
				tc.value = time.Now().Add(d).UTC().Format(http.TimeFormat)
			}
			s := &script{steps: []step{{status: 429, header: http.Header{"Retry-After": {tc.value}}}, {body: says("x") + done}}}
			o := chat(t, s, retryConfig(func(c loquat.Object) {
				c.Set("rate_limit_retry_delays_seconds", "5").Set("respect_retry_after_header", tc.respect)
			}), true)
			if o.err != nil || len(o.retries) != 1 || o.retries[0].Delay != tc.want {
				t.Errorf("Retry-After %q: %v, %v; want %v", tc.value, o.waits(), o.err, tc.want)
			}
		}
	})
}

func TestRetryAfterDateIsRoundedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(300 * time.Millisecond)
		date := time.Now().Add(5 * time.Second).UTC().Format(http.TimeFormat)
		s := &script{steps: []step{{status: 429, header: http.Header{"Retry-After": {date}}}, {body: says("x") + done}}}
		o := chat(t, s, retryConfig(func(c loquat.Object) { c.Set("rate_limit_retry_delays_seconds", "1") }), true)
		if o.err != nil || !slices.Equal(o.waits(), []time.Duration{5 * time.Second}) {
			t.Errorf("4.7 s away became %v, %v", o.waits(), o.err)
		}
	})
}

// Retry-After is only for 429.
func TestRetryAfterOfOtherStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{steps: []step{{status: 503, header: http.Header{"Retry-After": {"60"}}}, {body: hello}}}
		o := chat(t, s, retryConfig(func(c loquat.Object) { c.Set("retry_on_status", map[string]any{"503": "1"}) }), false)
		if want := []time.Duration{time.Second}; !slices.Equal(o.waits(), want) || o.err != nil {
			t.Errorf("waits %v, %v", o.waits(), o.err)
		}
	})
}

func TestRetriesSendTheSameBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{steps: []step{{status: 500}, {status: 500}, {body: hello}}}
		chat(t, s, retryConfig(func(c loquat.Object) { c.Set("retry_on_status", map[string]any{"500": "1,1"}) }), false)
		if len(s.sent) != 3 || s.sent[0] == "" || s.sent[0] != s.sent[1] || s.sent[1] != s.sent[2] {
			t.Errorf("sent %q", s.sent)
		}
	})
}

// A retry does not wait for the body of the error status, and neither does the next call.
func TestRetryDoesNotWaitForTheErrorBody(t *testing.T) {
	for name, body := range map[string]step{
		"stalls":               {stall: true},
		"stalls in the middle": {body: `{"error":`, stall: true},
		"drips":                {body: strings.Repeat("x", 61), chunk: 1, every: 200 * time.Millisecond},
	} {
		for _, status := range []int{429, 500} {
			t.Run(fmt.Sprintf("%d %s", status, name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					failing := body
					failing.status = status
					s := &script{steps: []step{failing, failing, {body: hello}}}
					o := chat(t, s, retryConfig(func(c loquat.Object) {
						c.Set("rate_limit_retry_delays_seconds", "0.2, 3").Set("retry_on_status", map[string]any{"500": "0.2, 3"})
					}), true)
					if o.err != nil || len(s.seen) != 3 {
						t.Fatalf("%v after %d requests", o.err, len(s.seen))
					}
					if first, second := s.seen[1].Sub(s.seen[0]), s.seen[2].Sub(s.seen[1]); first != 200*time.Millisecond || second != 3*time.Second {
						t.Errorf("the next calls came after %v and %v, want 200ms and 3s", first, second)
					}
				})
			})
		}
	}
}

// Without a retry the error quotes what arrives of the body within a second.
func TestErrorQuotesWhatArrivesOfItsBody(t *testing.T) {
	for _, tc := range []struct {
		name  string
		step  step
		after time.Duration
		want  string
	}{
		{"whole", step{body: `{"error":{"message":"no room"}}`}, 0, "500 Internal Server Error: no room;"},
		{"slow but in time", step{body: `{"error":{"message":"no room"}}`, chunk: 16, every: 300 * time.Millisecond}, 900 * time.Millisecond, ": no room;"},
		{"nothing", step{stall: true}, time.Second, "500 Internal Server Error; 1 attempt"},
		{"text, then nothing", step{body: "no room", stall: true}, time.Second, "Error: no room;"},
		{"half a JSON", step{body: `{"error":{"message":"no r`, stall: true}, time.Second, `Error: {"error":{"message":"no r;`},
		{"a byte at a time", step{body: strings.Repeat("x", 50), chunk: 1, every: 300 * time.Millisecond}, time.Second, "Error: xxx;"},
		{"reset", step{body: "no room", cut: errReset}, 0, "Error: no room;"},
		{"endless", step{body: strings.Repeat("y", 1<<20)}, 0, "Error: " + strings.Repeat("y", provider.MaxQuote) + "…;"},
	} {
		for _, stream := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, stream %v", tc.name, stream), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					tc.step.status = 500
					start := time.Now()
					o := chat(t, &script{steps: []step{tc.step}}, retryConfig(nil), stream)
					if o.err == nil || !strings.Contains(o.err.Error(), tc.want) {
						t.Errorf("error %v does not say %q", o.err, tc.want)
					}
					if took := time.Since(start); took != tc.after {
						t.Errorf("took %v, want %v", took, tc.after)
					}
				})
			})
		}
	}
}

// A cancel ends the wait for the body of an error at once.
func TestCancelWhileAnErrorIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		start := time.Now()
		p := provider.New(provider.Options{Transport: &script{steps: []step{{status: 500, stall: true}}}})
		o := drain(t, p, ctx, loquat.LLMRequest{Config: retryConfig(nil), Messages: providertest.UserSays("hi"), Stream: true})
		if !errors.Is(o.err, context.DeadlineExceeded) || time.Since(start) != 300*time.Millisecond {
			t.Errorf("%v after %v", o.err, time.Since(start))
		}
	})
}
