package provider_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"loquat"
	"loquat/internal/provider"
	"loquat/internal/provider/providertest"
)

// An answer is recognized as JSON or as a stream, whatever white space it begins with and in whatever pieces it arrives.
func TestBeginningsOfAnswers(t *testing.T) {
	blank := strings.Repeat("\n", 600)
	for name, tc := range map[string]struct {
		body  string
		says  string // part of the error; "" for hello
		chunk int
	}{
		"JSON":                         {hello, "", 0},
		"white space, then JSON":       {" \r\n\t" + hello, "", 1},
		"a mark, then JSON":            {"\ufeff" + hello, "", 1},
		"a mark at once":               {"\ufeff" + hello, "", 0},
		"a mark, then a stream":        {"\ufeff" + says("hello") + done, "", 1},
		"a list":                       {`[{"error":{"message":"no room"}}]`, "no room", 0},
		"a page":                       {"<html>", "not a completion", 0},
		"a stream":                     {says("hello") + done, "", 0},
		"much white space, a stream":   {blank + says("hello") + done, "", 0},
		"the same in small pieces":     {blank + says("hello") + done, "", 7},
		"white space, then the end":    {" \n", "ended", 0},
		"exactly the bytes looked at":  {blank[:512] + says("hello") + done, "", 0},
		"one byte fewer":               {blank[:511] + says("hello") + done, "", 0},
		"much white space, JSON":       {blank + hello, "", 0},
		"the same, in small pieces":    {blank + hello, "", 7},
		"as much as is looked at":      {blank[:512] + hello, "", 0},
		"much white space alone":       {blank, "ended", 0},
		"a stream in the first buffer": {blank[:500] + says("hello") + done, "", 512},
	} {
		for _, stream := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				o := chat(t, &script{steps: []step{{body: tc.body, chunk: tc.chunk}}}, retryConfig(nil), stream)
				switch {
				case tc.says != "" && (o.err == nil || !strings.Contains(o.err.Error(), tc.says)):
					t.Errorf("%s, stream %v: %v, want %q", name, stream, o.err, tc.says)
				case tc.says == "" && (o.err != nil || o.reply.Content != "hello"):
					t.Errorf("%s, stream %v: %+v, %v", name, stream, o.reply, o.err)
				}
			})
		}
	}
}

// The header of an answer ends the silence.
func TestLateHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := chat(t, &script{steps: []step{{delay: 9 * time.Second, body: hello, every: 9 * time.Second}}}, retryConfig(nil), true)
		if o.err != nil {
			t.Error(o.err)
		}
	})
}

// A deadline of the caller is not a timeout of the backend, which would be retried.
func TestDeadlineOfTheCaller(t *testing.T) {
	for _, stream := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			p := provider.New(provider.Options{Transport: &script{steps: []step{{hang: true}}}})
			c := retryConfig(func(c loquat.Object) { c.Set("retry_on_timeout", "1") })
			o := drain(t, p, ctx, loquat.LLMRequest{Config: c, Messages: providertest.UserSays("hi"), Stream: stream})
			if !errors.Is(o.err, context.DeadlineExceeded) || len(o.retries) > 0 {
				t.Errorf("%v after %d retries", o.err, len(o.retries))
			}
		})
	}
}

// A call that was never sent costs nothing, so it is not reported.
func TestUnsentCallIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{steps: []step{{body: hello}, {status: 500}}}
		p := provider.New(provider.Options{Transport: s})
		calls := 0
		ask := func(ctx context.Context) outcome {
			return drain(t, p, ctx, loquat.LLMRequest{Config: pacedConfig(providertest.URL), Messages: providertest.UserSays("hi"), Attempted: func(loquat.Attempt) { calls++ }})
		}
		ask(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if o := ask(ctx); !errors.Is(o.err, context.DeadlineExceeded) || calls != 1 {
			t.Errorf("%v with %d calls reported", o.err, calls)
		}
		if o := ask(t.Context()); o.err == nil || calls != 2 {
			t.Errorf("%v with %d calls reported", o.err, calls)
		}
	})
}

// The transport may have to send a body again on another connection.
func TestBodyCanBeSentAgain(t *testing.T) {
	var first, again string
	p := provider.New(provider.Options{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		if got := r.Header.Get("Accept"); got != "text/event-stream, application/json" {
			t.Errorf("accepts %q", got)
		}
		for _, text := range []*string{&first, &again} {
			body, err := r.GetBody()
			if err != nil {
				t.Fatal(err)
			}
			all, err := io.ReadAll(body)
			if err != nil {
				t.Fatal(err)
			}
			*text = string(all)
		}
		return &http.Response{StatusCode: 200, Header: http.Header{}, Request: r, Body: io.NopCloser(strings.NewReader(hello))}, nil
	})})
	if o := drain(t, p, t.Context(), loquat.LLMRequest{Config: retryConfig(nil), Messages: providertest.UserSays("hi")}); o.err != nil || first == "" || first != again {
		t.Errorf("%q, then %q: %v", first, again, o.err)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Only a redirect quotes where it leads. What a backend says of a failed list of models is part of the error.
func TestExplanations(t *testing.T) {
	elsewhere := http.Header{"Location": {"https://elsewhere.test/"}}
	for _, tc := range []struct {
		status int
		header http.Header
		quotes bool
	}{{302, elsewhere, true}, {302, nil, false}, {500, elsewhere, false}} {
		o := chat(t, &script{steps: []step{{status: tc.status, header: tc.header, body: "x"}}}, retryConfig(nil), true)
		if quotes := strings.Contains(o.err.Error(), "redirects"); quotes != tc.quotes {
			t.Errorf("%d with %v: %v", tc.status, tc.header, o.err)
		}
	}
	s := &script{steps: []step{{status: 500, body: `{"error":{"message":"no room"}}`}}}
	_, err := provider.New(provider.Options{Transport: s}).Models(t.Context(), retryConfig(nil))
	if err == nil || !strings.Contains(err.Error(), "no room") || s.open.Load() != 0 {
		t.Errorf("the list of models: %v; %d answers are not closed", err, s.open.Load())
	}
}

// An answer with an error status, and a connection that was not made, cost nothing. After a timeout the backend may have worked.
func TestRefusedCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{steps: []step{{status: 500}, {hang: true}, {refuse: &net.OpError{Op: "dial", Err: errReset}}}}
		p := provider.New(provider.Options{Transport: s})
		c := retryConfig(func(c loquat.Object) {
			c.Set("retry_on_status", map[string]any{"500": "1"}).Set("retry_on_timeout", "1,1")
		})
		var refused []bool
		drain(t, p, t.Context(), loquat.LLMRequest{Config: c, Messages: providertest.UserSays("hi"), Attempted: func(a loquat.Attempt) { refused = append(refused, a.Refused) }})
		if want := []bool{true, false, true}; !slices.Equal(refused, want) {
			t.Errorf("refused %v, want %v", refused, want)
		}
	})
	s := &script{steps: []step{{refuse: &net.OpError{Op: "read", Err: errReset}}}}
	drain(t, provider.New(provider.Options{Transport: s}), t.Context(), loquat.LLMRequest{Config: retryConfig(nil), Messages: providertest.UserSays("hi"), Attempted: func(a loquat.Attempt) {
		if a.Refused {
			t.Error("a connection that broke cost nothing")
		}
	}})
}

// The error of a broken answer has the backend's id of the request, and says whether there was a stream.
func TestErrorsOfBrokenAnswers(t *testing.T) {
	for _, stream := range []bool{true, false} {
		s := &script{steps: []step{{header: http.Header{"X-Request-Id": {"req_7"}}, body: says("x")}}}
		o := chat(t, s, retryConfig(nil), stream)
		if o.err == nil || !strings.Contains(o.err.Error(), "request id is req_7") || strings.Contains(o.err.Error(), "middle of the stream") != stream {
			t.Errorf("stream %v: %v", stream, o.err)
		}
	}
}

// Only a rate limit delays other requests; other failures do not.
func TestOnlyRateLimitsPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{steps: []step{{status: 500}, {body: hello}, {body: hello}}}
		p := provider.New(provider.Options{Transport: s})
		c := pacedConfig(providertest.URL).Set("retry_on_status", map[string]any{"500": "30"})
		ask := func() {
			if o := drain(t, p, t.Context(), loquat.LLMRequest{Config: c, Messages: providertest.UserSays("hi")}); o.err != nil {
				t.Error(o.err)
			}
		}
		first := make(chan struct{})
		go func() { defer close(first); ask() }()
		synctest.Wait()
		ask()
		<-first
		if got := s.seen[1].Sub(s.seen[0]); got != 5*time.Second {
			t.Errorf("the other request starts after %v", got)
		}
	})
}

// The largest answer is as large as the limit, and each of its bytes counts as data, however slowly they come.
func TestLargestAndSlowestAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := strings.Replace(hello, "hello", strings.Repeat("x", 300), 1)
		for more, fails := range map[int64]bool{0: false, -1: true} {
			for _, stream := range []bool{true, false} {
				s := &script{steps: []step{{body: body, chunk: 1, every: 9 * time.Second}}}
				p := provider.New(provider.Options{Transport: s, MaxResponseBytes: int64(len(body)) + more})
				o := drain(t, p, t.Context(), loquat.LLMRequest{Config: retryConfig(nil), Messages: providertest.UserSays("hi"), Stream: stream})
				if fails != (o.err != nil) {
					t.Errorf("%d bytes with a limit of %d: %v", len(body), int64(len(body))+more, o.err)
				}
			}
		}
	})
}
