package provider_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"loquat"
	"loquat/internal/backoff"
	"loquat/internal/provider"
	"loquat/internal/provider/providertest"
)

// step describes how a scripted backend handles one request.
type step struct {
	status int           // 0 means 200
	header http.Header   // of the answer
	body   string        // then, for a stream:
	cut    error         // how the body ends; nil is a clean end
	stall  bool          // the body goes quiet instead of ending
	hang   bool          // no answer at all
	delay  time.Duration // before the answer
	refuse error         // no connection
	chunk  int           // bytes of each read, 0 for all there are
	every  time.Duration // before each read
}

// script is a backend in memory, for tests in virtual time.
type script struct {
	steps []step
	seen  []time.Time // when each request came
	sent  []string    // their bodies

	contexts []context.Context // of the requests
	open     atomic.Int32      // bodies of answers that are not closed
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	s.seen = append(s.seen, time.Now())
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	s.sent = append(s.sent, string(body))
	s.contexts = append(s.contexts, r.Context())
	if len(s.seen) > len(s.steps) {
		return nil, fmt.Errorf("request %d is not in the script", len(s.seen))
	}
	do := s.steps[len(s.seen)-1]
	if do.refuse != nil {
		return nil, do.refuse
	}
	if do.hang {
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	}
	if err := backoff.Sleep(r.Context(), do.delay); err != nil {
		return nil, err
	}
	if do.status == 0 {
		do.status = http.StatusOK
	}
	if do.header == nil {
		do.header = http.Header{}
	}
	s.open.Add(1)
	closed := sync.OnceFunc(func() { s.open.Add(-1) })
	return &http.Response{StatusCode: do.status, Header: do.header, Request: r, Body: &scriptBody{ctx: r.Context(), rest: strings.NewReader(do.body), do: do, closed: closed}}, nil
}

type scriptBody struct {
	ctx    context.Context
	rest   *strings.Reader
	do     step
	closed func()
}

func (b *scriptBody) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	if err := backoff.Sleep(b.ctx, b.do.every); err != nil {
		return 0, err
	}
	if b.do.chunk > 0 {
		p = p[:min(len(p), b.do.chunk)]
	}
	if b.rest.Len() > 0 {
		return b.rest.Read(p)
	}
	if b.do.stall {
		<-b.ctx.Done()
		return 0, b.ctx.Err()
	}
	if b.do.cut != nil {
		return 0, b.do.cut
	}
	return 0, io.EOF
}

func (b *scriptBody) Close() error { b.closed(); return nil }

var errReset = errors.New("connection reset by peer")

// says returns a stream of one increment; done ends the stream.
func says(text string) string {
	return fmt.Sprintf("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":%q}}]}\n\n", text)
}

const (
	done  = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
	hello = `{"choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}]}`
)

// chat runs one phase against a script. After it no request goes on, and every answer is closed.
func chat(t *testing.T, s *script, config loquat.Object, stream bool) outcome {
	t.Helper()
	p := provider.New(provider.Options{Transport: s})
	o := drain(t, p, t.Context(), loquat.LLMRequest{ProviderID: "main", Config: config, Messages: providertest.UserSays("hi"), Stream: stream})
	if n := s.open.Load(); n != 0 {
		t.Errorf("%d answers are not closed", n)
	}
	for i, ctx := range s.contexts {
		if ctx.Err() == nil {
			t.Errorf("request %d goes on after the phase", i)
		}
	}
	return o
}
