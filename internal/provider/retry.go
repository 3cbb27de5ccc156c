package provider

import (
	"net/http"
	"time"

	"loquat"
	"loquat/internal/backoff"
	"loquat/internal/trace"
)

// open makes attempts until one succeeds, no list has a delay for the failure, or the
// caller stops. Rate limits, statuses and timeouts share one counter: the delay after
// attempt N is entry N of the list that matches the failure.
func (ph *phase) open() (*answer, *failure) {
	for {
		ph.attempts++
		ctx, span := trace.Attempt(ph.ctx, ph.settings.baseURL, ph.attempts)
		a, f := ph.send(ctx)
		if f == nil {
			a.span = span
			span.Status(a.resp.StatusCode)
		}
		if f == nil && !ph.stream {
			f = ph.readWhole(a)
		}
		if f == nil {
			return a, nil
		}
		f.note(span)
		span.End()
		ph.failed(f)
		cause, delays := ph.settings.delays(f)
		if ph.retries >= len(delays) {
			return nil, f.explain(ph.ctx)
		}
		f.dismiss()
		delay := delays[ph.retries]
		if f.status == http.StatusTooManyRequests && ph.settings.respectRetryAfter {
			delay = max(delay, f.retryAfter)
		}
		ph.retries++
		if !ph.announce(cause, f.status, ph.retries, delay) {
			return nil, &failure{kind: failStopped}
		}
		began := time.Now()
		if f.status == http.StatusTooManyRequests {
			ph.pace.pause(ph.ctx, ph.settings.paceScope, delay)
		}
		if backoff.Sleep(ph.ctx, delay-time.Since(began)) != nil {
			return nil, cancelled(ph.ctx)
		}
	}
}

// delays returns the list of delays that matches a failure, or nil if it is not retried.
func (s *settings) delays(f *failure) (cause string, delays []time.Duration) {
	switch {
	case f.kind == failTimeout:
		return loquat.CauseTimeout, s.timeoutDelays
	case f.kind != failStatus:
		return "", nil
	case f.status == http.StatusTooManyRequests:
		return loquat.CauseRateLimit, s.rateLimitDelays
	}
	return loquat.CauseStatus, s.statusDelays[f.status]
}

// announce emits a notice of a retry delay or a recovery that is about to begin.
func (ph *phase) announce(cause string, status, attempt int, delay time.Duration) bool {
	retry := loquat.Retry{Attempt: attempt, Cause: cause, Status: status, Delay: delay, ResumeAt: time.Now().Add(delay)}
	trace.Retry(ph.ctx, retry)
	return ph.yield(loquat.Chunk{Retry: &retry}, nil)
}
