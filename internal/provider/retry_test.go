package provider

import (
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
)

const testURL = "http://backend.test/v1"

func retryConfig(set func(loquat.Object)) loquat.Object {
	c := baseConfig(testURL).Set("timeout", 10)
	if set != nil {
		set(c)
	}
	return c
}

// waits is how long each retry was put off.
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

// TestRetryRules compares the ring with the rule told in another way: a counter, and
// a table of lists.
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
		if got := parseRetryAfter(time.Now().Add(5 * time.Second).UTC().Format(http.TimeFormat)); got != 5*time.Second {
			t.Errorf("4.7 s away became %v", got)
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
