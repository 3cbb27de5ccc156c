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

// Attempts slows down guessing, for each client address. What opens one process (its
// routes, its sockets, its pairing codes) shares one Attempts, so that nobody gets a
// further allowance by another way in. It is safe for concurrent use.
type Attempts struct {
	log             *loglimit.Logger
	bearers, claims *ratelimit.Limiter // of wrong tokens, and of claims
}

// How many attempts an address has before it has to wait, one minute for each further
// one. A secret of 200 bits needs no such help; a token that somebody thought up may.
const (
	freeBearers = 100
	freeClaims  = 20
)

// NewAttempts returns an Attempts that knows no address yet. A nil log is the default one.
func NewAttempts(log *slog.Logger) *Attempts {
	if log == nil {
		log = slog.Default()
	}
	limiter := func(free int) *ratelimit.Limiter {
		return ratelimit.New(ratelimit.Options{Rate: rate.Every(time.Minute), Burst: free})
	}
	return &Attempts{log: loglimit.New(log), bearers: limiter(freeBearers), claims: limiter(freeClaims)}
}

// WrongToken counts a wrong token. It fails with CodeRateLimited when the address has to
// wait. Valid tokens are not counted, and not held up.
func (a *Attempts) WrongToken(from netip.Addr) error { return a.count(a.bearers, "wrong tokens", from) }

// Claim counts the claim of a pairing code. It fails with CodeRateLimited when the
// address has to wait. A right code counts, too: counting only wrong ones would let many
// claims at the same time pass before the first is known to be wrong.
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
