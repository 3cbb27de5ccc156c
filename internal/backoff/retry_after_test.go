package backoff_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"loquat/internal/backoff"
)

func TestParseRetryAfter(t *testing.T) {
	const year = 365 * 24 * time.Hour
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(300 * time.Millisecond) // dates have whole seconds
		date := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
		for value, want := range map[string]time.Duration{
			"":                       0,
			"9":                      9 * time.Second,
			" 9 ":                    9 * time.Second,
			"7.25":                   7250 * time.Millisecond,
			"0.0000000001":           1,
			"0":                      0,
			"-3":                     0,
			"NaN":                    0,
			"soon":                   0,
			"31536000":               year,
			"31536001":               0,
			"1e300":                  0,
			date(20 * time.Second):   20 * time.Second, // 19.7 seconds away
			date(time.Second):        time.Second,
			date(0):                  0,
			date(-time.Hour):         0,
			date(year):               year,
			date(year + time.Second): 0,
		} {
			if got := backoff.ParseRetryAfter(value); got != want {
				t.Errorf("%q: %v, want %v", value, got, want)
			}
		}
		time.Sleep(700 * time.Millisecond)
		for value, want := range map[string]time.Duration{date(0): 0, date(time.Second): time.Second, date(year): year} {
			if got := backoff.ParseRetryAfter(value); got != want {
				t.Errorf("%q, whole seconds away: %v, want %v", value, got, want)
			}
		}
	})
}
