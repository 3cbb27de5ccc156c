package auth

import (
	"log/slog"
	"net/netip"
	"time"

	"golang.org/x/time/rate"

	"loquat"
	"loquat/internal/loglimit"
	"loquat/internal/ratelimit"
)

// Attempts is the attempt limiter: it slows down guessing for each client address. The
// routes, sockets and pairing codes of a process share one Attempts, so that an address has
// one allowance for all of them. It is safe for concurrent use.
type Attempts struct {
	log             *loglimit.Logger
	bearers, claims *ratelimit.Limiter // of wrong tokens, and of claims
}

// How many attempts an address has at once; then it gets one more each minute. Generated
// secrets of 200 bits do not need this limit, but tokens that a person chose may.
const (
	freeBearers = 100
	freeClaims  = 20
)

// NewAttempts returns an Attempts without any counts. A nil log means the default logger.
func NewAttempts(log *slog.Logger) *Attempts {
	if log == nil {
		log = slog.Default()
	}
	limiter := func(free int) *ratelimit.Limiter {
		return ratelimit.New(ratelimit.Options{Rate: rate.Every(time.Minute), Burst: free})
	}
	return &Attempts{log: loglimit.New(log), bearers: limiter(freeBearers), claims: limiter(freeClaims)}
}

// WrongToken counts a wrong token. It fails with CodeRateLimited if the address must wait.
// Valid tokens are neither counted nor throttled.
func (a *Attempts) WrongToken(from netip.Addr) error { return a.count(a.bearers, "wrong tokens", from) }

// Claim counts the claim of a pairing code. It fails with CodeRateLimited if the address
// must wait. Right codes count too: otherwise many concurrent claims could pass before the
// first is known to be wrong.
func (a *Attempts) Claim(from netip.Addr) error { return a.count(a.claims, "pairing codes", from) }

func (a *Attempts) count(limiter *ratelimit.Limiter, what string, from netip.Addr) error {
	wait, first := limiter.Take(from)
	if wait == 0 {
		return nil
	}
	if first {
		a.log.Log(slog.LevelWarn, "too many "+what+" from one address; it has to wait", "address", from)
	}
	seconds := int((wait + time.Second - 1) / time.Second)
	e := loquat.Errorf(loquat.CodeRateLimited, "there were too many %s from this address; wait %d seconds", what, seconds)
	e.RetryAfter = seconds
	return e
}
