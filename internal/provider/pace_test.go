package provider_test

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"loquat"
	"loquat/internal/provider"
	"loquat/internal/provider/providertest"
)

// pacedConfig is a config of a base URL with five seconds between requests.
func pacedConfig(url string) loquat.Object {
	return providertest.Config(url).Set("min_request_interval_seconds", 5)
}

// Opening the page lists models. That delays no request, and no request delays it,
// also while others wait for their turn.
func TestDiscoveryIsNotPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const list = `{"data":[{"id":"m"}]}`
		s := &script{steps: []step{{body: list}, {body: hello}, {body: list}, {body: list}, {body: hello}}}
		p := provider.New(provider.Options{Transport: s})
		c := pacedConfig("http://backend.test/v1")
		start := time.Now()
		models := func() {
			t.Helper()
			before := time.Now()
			if m, err := p.Models(t.Context(), c); err != nil || len(m) != 1 {
				t.Fatalf("got %v, %v", m, err)
			}
			if took := time.Since(before); took != 0 {
				t.Errorf("the list of models took %v", took)
			}
		}
		ask := func() {
			if o := drain(t, p, t.Context(), loquat.LLMRequest{Config: c, Messages: providertest.UserSays("hi")}); o.err != nil {
				t.Error(o.err)
			}
		}
		models()
		ask()
		if at := time.Since(start); at != 0 {
			t.Errorf("the first request ended after %v: the list of models delayed it", at)
		}
		models()
		second := make(chan struct{})
		go func() { defer close(second); ask() }()
		synctest.Wait() // the second request waits
		models()
		<-second
		if at := time.Since(start); at != 5*time.Second {
			t.Errorf("the second request ended after %v, want 5s", at)
		}
	})
}

// Several spellings of one base URL share one pacing scope.
func TestPacingComparesNormalizedURLs(t *testing.T) {
	for second, same := range map[string]bool{
		"http://backend.test/v1":     true,
		"http://backend.test/v1/":    true,
		"http://backend.test/v1//":   true,
		"HTTP://Backend.TEST/v1":     true,
		"http://backend.test:80/v1":  true,
		" http://backend.test/v1 ":   true,
		"http://backend.test/v1#x":   true,
		"http://backend.test/v2":     false,
		"http://backend.test/V1":     false,
		"http://backend.test:81/v1":  false,
		"https://backend.test/v1":    false,
		"http://backend.test:443/v1": false,
		"http://other.test/v1":       false,
		"http://backend.test/v1/a":   false,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &script{steps: []step{{body: hello}, {body: hello}}}
			p := provider.New(provider.Options{Transport: s})
			for _, url := range []string{"http://backend.test/v1", second} {
				if o := drain(t, p, t.Context(), loquat.LLMRequest{Config: pacedConfig(url), Messages: providertest.UserSays("hi")}); o.err != nil {
					t.Fatal(o.err)
				}
			}
			want := time.Duration(0)
			if same {
				want = 5 * time.Second
			}
			if got := s.seen[1].Sub(s.seen[0]); got != want {
				t.Errorf("a request to %q starts after %v, want %v", second, got, want)
			}
		})
	}
}

// After a 429 no other paced request starts before the one that got it is repeated.
func TestRateLimitPausesPacedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limited := step{status: http.StatusTooManyRequests, header: http.Header{"Retry-After": {"30"}}}
		s := &script{steps: []step{limited, {body: hello}, {body: hello}, {body: hello}}}
		p := provider.New(provider.Options{Transport: s})
		c := pacedConfig("http://backend.test/v1").Set("rate_limit_retry_delays_seconds", []int{1})
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if o := drain(t, p, t.Context(), loquat.LLMRequest{Config: c, Messages: providertest.UserSays("hi")}); o.err != nil {
					t.Error(o.err)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		for i, want := range []time.Duration{0, 30 * time.Second, 35 * time.Second, 40 * time.Second} {
			if got := s.seen[i].Sub(s.seen[0]); got != want {
				t.Errorf("request %d starts after %s, want %s", i, got, want)
			}
		}
	})
}
