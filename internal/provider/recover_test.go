package provider_test

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// places lists where a stream can break, and whether text has been shown by then.
var places = map[string]struct {
	step    step
	visible bool
}{
	"reset before the first byte": {step{cut: errReset}, false},
	"clean end before any byte":   {step{}, false},
	"after comments":              {step{body: ": ping\n\n", cut: errReset}, false},
	"after the role":              {step{body: says(""), cut: errReset}, false},
	"after reasoning":             {step{body: "data: {\"choices\":[{\"delta\":{\"reasoning\":\"hm\"}}]}\n\n", cut: errReset}, false},
	"in a tool call":              {step{body: "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":\"{\"}}]}}]}\n\n", cut: errReset}, false},
	"after text":                  {step{body: says("dead"), cut: errReset}, true},
	"after text and reasoning":    {step{body: says("dead") + "data: {\"choices\":[{\"delta\":{\"reasoning\":\"hm\"}}]}\n\n", cut: errReset}, true},
	"after white space":           {step{body: says(" "), cut: errReset}, true},
	"silence after text":          {step{body: says("dead"), stall: true}, true},
	"silence after a comment":     {step{body: ": ping\n\n", stall: true}, false},
	"clean end without finish":    {step{body: says("dead")}, true},
	"clean end within a chunk":    {step{body: says("dead") + `data: {"choices":[{"del`}, true},
	"JSON that is cut short":      {step{body: `{"choices":[{"mess`, cut: errReset}, false},
}

func TestRecovery(t *testing.T) {
	for name, place := range places {
		for _, mode := range []string{"disabled", "early_only", "aggressive"} {
			for _, retries := range []int{0, 1, 3} {
				for _, breaks := range []int{1, 2, 4} {
					t.Run(fmt.Sprintf("%s/%s/%d of %d", name, mode, breaks, retries), func(t *testing.T) {
						want := retries
						if mode == "disabled" || mode == "early_only" && place.visible {
							want = 0
						}
						synctest.Test(t, func(t *testing.T) {
							checkRecovery(t, place.step, mode, retries, breaks, min(want, breaks), breaks <= want)
						})
					})
				}
			}
		}
	}
}

func checkRecovery(t *testing.T, broken step, mode string, maxRetries, breaks, recoveries int, ok bool) {
	s := &script{steps: append(slices.Repeat([]step{broken}, breaks), step{body: says("a") + says("live") + done})}
	o := chat(t, s, retryConfig(func(c loquat.Object) {
		c.Set("stream_recovery", map[string]any{"mode": mode, "max_retries": maxRetries})
	}), true)
	if len(o.retries) != recoveries || len(s.seen) != recoveries+1 {
		t.Fatalf("%d recoveries in %d requests, want %d", len(o.retries), len(s.seen), recoveries)
	}
	for i, r := range o.retries {
		if r.Attempt != i+1 || r.Cause != loquat.CauseStream || r.Delay != 0 {
			t.Errorf("recovery %d is reported as %+v", i, r)
		}
	}
	if ok != (o.err == nil) {
		t.Fatalf("error is %v", o.err)
	}
	if !ok {
		if !strings.Contains(o.err.Error(), "middle of the stream") {
			t.Errorf("error is %v", o.err)
		}
		return
	}
	if o.text != "alive" || o.reply.Content != "alive" || len(o.reply.ToolCalls) != 0 {
		t.Errorf("text %q, reply %+v", o.text, o.reply)
	}
	restarts := 0
	for _, c := range o.chunks {
		if c.Restarted {
			restarts++
		}
	}
	if last := o.chunks[len(o.chunks)-3]; restarts != recoveries-brokenBefore(broken, recoveries) || !last.Restarted || last.Text != "a" {
		t.Errorf("%d chunks say that they restart, the first of the last stream: %v", restarts, last.Restarted)
	}
}

// brokenBefore returns the number of recovered streams that broke before their first
// increment, and therefore before they could report the restart.
func brokenBefore(s step, recoveries int) int {
	if strings.Contains(s.body, "dead") || strings.Contains(s.body, "hm") || strings.Contains(s.body, `" "`) {
		return 0
	}
	return recoveries - 1
}

// A recovery does not change the pre-stream counter. A recovery that cannot connect
// counts as a recovery.
func TestRecoveryAndRetryCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{steps: []step{
			{status: 500}, {body: says("dead"), cut: errReset},
			{status: 500}, {body: says("dead"), cut: errReset},
			{refuse: errors.New("connection refused")},
			{status: 500},
		}}
		o := chat(t, s, retryConfig(func(c loquat.Object) {
			c.Set("retry_on_status", map[string]any{"500": "1, 2"}).Set("stream_recovery", map[string]any{"mode": "aggressive", "max_retries": 3})
		}), true)
		var got []string
		for _, r := range o.retries {
			got = append(got, fmt.Sprintf("%s %d %v", r.Cause, r.Attempt, r.Delay))
		}
		want := []string{"status 1 1s", "stream 1 0s", "status 2 2s", "stream 2 0s", "stream 3 0s"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if o.err == nil || !strings.Contains(o.err.Error(), "500") || !strings.Contains(o.err.Error(), "6 attempts") {
			t.Errorf("error is %v", o.err)
		}
	})
}

// Failures other than a connection error of an active stream are raised at once.
func TestRaisedAtOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		step   step
		stream bool
	}{
		"refused":                      {step{refuse: errors.New("connection refused")}, true},
		"reset before the headers":     {step{refuse: errReset}, true},
		"error in the stream":          {step{body: says("x") + "data: {\"error\":{\"message\":\"no\"}}\n\n"}, true},
		"junk in the stream":           {step{body: says("x") + "data: junk\n\n"}, true},
		"body cut without streaming":   {step{body: `{"choices":[{"mess`, cut: errReset}, false},
		"stream cut without streaming": {step{body: says("x"), cut: errReset}, false},
		"empty body without streaming": {step{}, false},
		"no choices":                   {step{body: `{"id":"1"}`}, false},
		"a page":                       {step{body: "<html>hello</html>"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{steps: []step{tc.step, {body: says("x") + done}}}
				o := chat(t, s, retryConfig(func(c loquat.Object) {
					c.Set("stream_recovery", map[string]any{"mode": "aggressive"}).Set("retry_on_timeout", "1,1")
				}), tc.stream)
				if loquat.CodeOf(o.err) != loquat.CodeBackendError || len(s.seen) != 1 {
					t.Errorf("%d requests, %v", len(s.seen), o.err)
				}
			})
		})
	}
}

// A silent body that is not streamed is a timeout and is retried by the list for timeouts.
func TestSilentBodyWithoutStreaming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{steps: []step{{body: `{"choices":`, stall: true}, {body: hello}}}
		o := chat(t, s, retryConfig(func(c loquat.Object) { c.Set("retry_on_timeout", "1") }), false)
		if o.err != nil || len(o.retries) != 1 || o.reply.Content != "hello" {
			t.Errorf("%v, %v", o.retries, o.err)
		}
	})
}

// Usage from a broken stream is returned with the error, but is not carried into a recovery.
func TestUsageOfDeadStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		usage := "data: {\"choices\":[],\"usage\":{\"total_tokens\":1234}}\n\n"
		o := chat(t, &script{steps: []step{{body: usage, cut: errReset}}}, retryConfig(nil), true)
		if o.err == nil || o.reply == nil || o.reply.Metadata.String("usage_total_tokens_formatted") != "1,234" {
			t.Errorf("%+v, %v", o.reply, o.err)
		}
		s := &script{steps: []step{{body: usage, cut: errReset}, {body: says("x") + done}}}
		o = chat(t, s, retryConfig(func(c loquat.Object) { c.Set("stream_recovery", map[string]any{"mode": "early_only"}) }), true)
		if o.err != nil || o.reply.Metadata["usage"] != nil {
			t.Errorf("%+v, %v", o.reply, o.err)
		}
	})
}

func TestCancel(t *testing.T) {
	for name, steps := range map[string][]step{
		"before the headers": {{hang: true}},
		"in a stream":        {{body: says("x"), stall: true}},
		"in a wait":          {{status: 429}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(3*time.Second, cancel)
				start := time.Now()
				c := retryConfig(func(c loquat.Object) { c.Set("rate_limit_retry_delays_seconds", "60") })
				o := drain(t, provider.New(provider.Options{Transport: &script{steps: steps}}), ctx, loquat.LLMRequest{Config: c, Messages: providertest.UserSays("hi"), Stream: true})
				if !errors.Is(o.err, context.Canceled) || time.Since(start) != 3*time.Second {
					t.Errorf("%v after %v", o.err, time.Since(start))
				}
			})
		})
	}
}

// The timeout does not end a stream that sends data. A stream of only comments ends after maxComments.
func TestSlowStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(line string, n int) outcome {
			return chat(t, &script{steps: []step{{body: strings.Repeat(line, n) + done, chunk: len(line), every: 9 * time.Second}}}, retryConfig(nil), true)
		}
		if o := slow(says("x"), 1000); o.err != nil || len(o.text) != 1000 {
			t.Errorf("two and a half hours of text: %v", o.err)
		}
		start := time.Now()
		o := slow(": ping\n\n", 1000)
		if took := time.Since(start); o.err == nil || !strings.Contains(o.err.Error(), "comments") || took < 30*time.Minute || took > 31*time.Minute {
			t.Errorf("comments alone: %v after %v", o.err, took)
		}
		if o := slow("\n", 1000); o.err == nil {
			t.Errorf("blank lines alone went on for ever")
		}
	})
}

// An answer that is too large, or cannot be decompressed, would be so again: it is not asked for once more.
func TestAnswersThatCannotBeUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := step{body: strings.Repeat(says("x"), 1000)}
		coded := step{header: http.Header{"Content-Encoding": {"br"}}, body: says("x") + done}
		whole := step{body: strings.Replace(hello, "hello", strings.Repeat("x", 10_000), 1)}
		for i, answer := range []step{large, whole, coded} {
			says := []string{"max_response_bytes", "max_response_bytes", "only gzip and deflate"}[i]
			for _, stream := range []bool{true, false} {
				s := &script{steps: []step{answer, answer}}
				p := provider.New(provider.Options{Transport: s, MaxResponseBytes: 10_000})
				c := retryConfig(func(c loquat.Object) { c.Set("stream_recovery", map[string]any{"mode": "aggressive"}) })
				o := drain(t, p, t.Context(), loquat.LLMRequest{Config: c, Messages: providertest.UserSays("hi"), Stream: stream})
				if o.err == nil || !strings.Contains(o.err.Error(), says) || len(s.seen) != 1 {
					t.Errorf("stream %v: %v after %d requests", stream, o.err, len(s.seen))
				}
			}
		}
	})
}

// After finish_reason the reply is complete, regardless of how the stream ends.
func TestBreakAfterFinishReason(t *testing.T) {
	finish := "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
	usage := "data: {\"choices\":[],\"usage\":{\"total_tokens\":7}}\n\n"
	text := says("whole")
	for name, tc := range map[string]struct {
		step  step
		usage string
	}{
		"reset":                       {step{body: text + finish, cut: errReset}, ""},
		"short body":                  {step{body: text + finish, cut: io.ErrUnexpectedEOF}, ""},
		"reset after the usage":       {step{body: text + finish + usage, cut: errReset}, "7"},
		"usage before":                {step{body: text + usage + finish, cut: errReset}, "7"},
		"reset within the usage":      {step{body: text + finish + usage[:len(usage)-9], cut: errReset}, ""},
		"clean end within the usage":  {step{body: text + finish + usage[:len(usage)-9]}, ""},
		"reset within [DONE]":         {step{body: text + finish + "data: [DO", cut: errReset}, ""},
		"silence":                     {step{body: text + finish, stall: true}, ""},
		"null":                        {step{body: text + finish + "data: null\n\n" + usage + "data: [DONE]\n\n"}, "7"},
		"a broken chunk":              {step{body: text + finish + "data: {\"choices\":[{\n\ndata: [DONE]\n\n"}, ""},
		"reset after a comment":       {step{body: text + finish + ": ping\n\n", cut: errReset}, ""},
		"text and reason in one line": {step{body: strings.Replace(text, "}}]", "},\"finish_reason\":\"stop\"}]", 1), cut: errReset}, ""},
	} {
		for _, mode := range []string{"disabled", "aggressive"} {
			for _, stream := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%s/stream %v", name, mode, stream), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						s := &script{steps: []step{tc.step, {body: says("again") + done}}}
						o := chat(t, s, retryConfig(func(c loquat.Object) {
							c.Set("stream_recovery", map[string]any{"mode": mode}).Set("retry_on_timeout", "1")
						}), stream)
						if o.err != nil || len(s.seen) != 1 {
							t.Fatalf("%d requests, %v", len(s.seen), o.err)
						}
						if o.reply.Content != "whole" || o.reply.FinishReason != "stop" || string(o.reply.Metadata["usage_total_tokens"]) != tc.usage {
							t.Errorf("reply %+v", o.reply)
						}
					})
				})
			}
		}
	}
}

// A reply is complete by the finish_reason of its own choice, and only without an error.
func TestBreakWithoutItsFinishReason(t *testing.T) {
	for name, body := range map[string]string{
		"of another choice": says("x") + "data: {\"choices\":[{\"index\":1,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
		"null":              says("x") + "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":null}]}\n\n",
		"empty":             says("x") + "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"\"}]}\n\n",
		"cut in the middle": says("x") + "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}",
		"error afterwards":  says("x") + "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: {\"error\":{\"message\":\"no\"}}\n\n",
	} {
		o := chat(t, &script{steps: []step{{body: body, cut: errReset}}}, retryConfig(nil), true)
		if loquat.CodeOf(o.err) != loquat.CodeBackendError {
			t.Errorf("%s: %v", name, o.err)
		}
	}
}

// A cancel after finish_reason still cancels the call.
func TestCancelAfterFinishReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		p := provider.New(provider.Options{Transport: &script{steps: []step{{body: says("x") + strings.TrimSuffix(done, "data: [DONE]\n\n"), stall: true}}}})
		o := drain(t, p, ctx, loquat.LLMRequest{Config: retryConfig(nil), Messages: providertest.UserSays("hi"), Stream: true})
		if !errors.Is(o.err, context.DeadlineExceeded) {
			t.Errorf("%v", o.err)
		}
	})
}

// A backend that keeps its stream open after finish_reason, silent or with comments, holds a
// complete reply up for the timeout at most. Text that still comes is part of the reply.
func TestOpenAfterFinishReason(t *testing.T) {
	finish := strings.TrimSuffix(done, "data: [DONE]\n\n")
	comments := strings.Repeat(": ping\n\n", 1000)
	for name, tc := range map[string]struct {
		step step
		text string
		most time.Duration
	}{
		"silence":      {step{body: says("x") + finish, stall: true}, "x", 10 * time.Second},
		"comments":     {step{body: says("x") + finish + comments, chunk: len(": ping\n\n"), every: time.Millisecond * 500}, "x", 20 * time.Second},
		"more text":    {step{body: says("x") + finish + strings.Repeat(says("y"), 20) + done, chunk: len(says("y")), every: 9 * time.Second}, "x" + strings.Repeat("y", 20), 5 * time.Minute},
		"late [DONE]":  {step{body: says("x") + done, chunk: 40, every: 4 * time.Second}, "x", time.Minute},
		"its own pace": {step{body: says("x") + says("y") + done, chunk: 40, every: 9 * time.Second}, "xy", 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				o := chat(t, &script{steps: []step{tc.step}}, retryConfig(nil), true)
				if took := time.Since(start); o.err != nil || o.text != tc.text || took > tc.most {
					t.Errorf("%q after %v, %v; want %q within %v", o.text, took, o.err, tc.text, tc.most)
				}
			})
		})
	}
}
