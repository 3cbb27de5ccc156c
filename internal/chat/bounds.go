package chat

import (
	"cmp"
	"context"
	"time"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/store"
)

// By is who makes a change. The zero By may do everything.
type By struct {
	User  string // of a caller of scope user
	Meter string // counts what the caller uses; callers of one user share it; "" with no bounds
	Role  string
	Rules config.Role
}

// The names of bounds, in problems.
const (
	boundRequests = "requests_per_minute"
	boundRunning  = "running_requests"
	boundTokens   = "tokens_per_day"
	boundSessions = "sessions"
	boundStorage  = "storage_bytes"
)

// Delays for Retry-After where nobody knows when there will be room.
const (
	retryRunning = 2 * time.Second
	retryRoom    = time.Minute // somebody has to delete something
)

func errBound(bound string, after time.Duration, format string, args ...any) error {
	err := loquat.Errorf(loquat.CodeRateLimited, format, args...)
	err.Bound, err.RetryAfter = bound, int(max(1, (after+time.Second-1)/time.Second))
	return err
}

// errTokens is the failure of a request that reaches tokens_per_day while it runs, and of further sends.
func errTokens(most int64, after time.Duration) error {
	return errBound(boundTokens, after, "the bound of %d tokens a day is reached (tokens_per_day); it begins again at midnight UTC", most)
}

// maySend returns an error if the caller's role or a bound does not allow a send. Otherwise it counts the
// request. another says that it adds to the requests that have not ended: a request that joins the running
// request of its session, or replaces it, does not.
func (b By) maySend(tx *store.Tx, h store.Head, stored storedSend, another bool) error {
	if err := b.mayUse(h.AgentID); err != nil {
		return err
	}
	if err := mayUseModel(b.Rules, stored.ProviderID, stored.Model); err != nil {
		return err
	}
	if err := b.mayStore(&tx.Reader); err != nil {
		return err
	}
	return b.mayCall(tx, another)
}

// mayCall returns an error if a bound does not allow another request. Otherwise it counts the request.
func (b By) mayCall(tx *store.Tx, another bool) error {
	if err := b.hasRoom(&tx.Reader, tx.Now, another); err != nil || b.Meter == "" || b.Rules.Bounds.RequestsPerMinute == 0 {
		return err
	}
	return tx.CountRequest(b.Meter)
}

// hasRoom returns an error if a bound does not allow another request.
func (b By) hasRoom(r *store.Reader, now time.Time, another bool) error {
	most := b.Rules.Bounds
	if b.Meter == "" {
		return nil
	}
	if most.RunningRequests > 0 && another {
		n, err := r.UnendedOf(b.Meter, most.RunningRequests)
		if err != nil {
			return err
		}
		if n >= most.RunningRequests {
			return errBound(boundRunning, retryRunning, "%d requests run or wait already, which is the bound (running_requests); wait for the end of one", n)
		}
	}
	if most.TokensPerDay > 0 {
		if err := b.mayUseTokens(r, now, another); err != nil {
			return err
		}
	}
	if most.RequestsPerMinute > 0 {
		wait, err := r.RequestsOf(b.Meter, most.RequestsPerMinute, now)
		if err != nil {
			return err
		}
		if wait > 0 {
			return errBound(boundRequests, time.Duration(wait)*time.Second, "there were %d requests within a minute, which is the bound (requests_per_minute)", most.RequestsPerMinute)
		}
	}
	return nil
}

// lookForRoom refuses a send for which the server has no room, or that a bound does not allow, before its
// transaction begins, so that callers who are at their bound do not hold up others. Only the transaction decides
// for sure about bounds. A repeat is not refused.
func (s *Requests) lookForRoom(ctx context.Context, call Call, requestID string, another bool) error {
	var fault error // it is counted where it is found, so only one of both looks
	if another {
		fault = s.room.ForRequest(s.workers.count())
	} else {
		fault = s.room.ForData()
	}
	if fault == nil && call.By.Meter == "" {
		return nil
	}
	repeat, err := isReplay(ctx, s.store, call)
	if err != nil || repeat {
		return err
	}
	return s.store.View(ctx, func(r *store.Reader) error {
		if requestID != "" {
			if taken, err := r.RequestTaken(requestID); err != nil || taken {
				return err
			}
		}
		if fault != nil {
			return fault
		}
		return call.By.hasRoom(r, time.Now(), another)
	})
}

// lookForRoomIn is lookForRoom for the send of a new session, which may be nil.
func (s *Requests) lookForRoomIn(ctx context.Context, call Call, p *loquat.Send) error {
	if p == nil {
		return nil
	}
	return s.lookForRoom(ctx, call, p.RequestID, true)
}

// expectedTokens is what a request is expected to use while none has ended today.
const expectedTokens = 1000

// mayUseTokens refuses a request if the bound is reached, or if the requests that have not ended may
// reach it. Each is expected to use twice as much as the largest one of the day that has ended, so that
// together they exceed the bound by less than one request.
func (b By) mayUseTokens(r *store.Reader, now time.Time, another bool) error {
	most := b.Rules.Bounds.TokensPerDay
	today, err := r.MeteredToday(b.Meter, now)
	if err != nil {
		return err
	}
	if today.Tokens >= most {
		return errTokens(most, today.Left)
	}
	if !another {
		return nil
	}
	each := cmp.Or(2*today.Largest, expectedTokens)
	room := int((most - today.Tokens) / each) // requests
	n, err := r.UnendedOf(b.Meter, room+1)
	if err != nil || n == 0 || n < room {
		return err
	}
	return errBound(boundTokens, retryRunning, "the bound of %d tokens a day (tokens_per_day) is near, and %d requests run that may reach it; wait for the end of one", most, n)
}

// mayUse refuses an agent that the caller's role may not use.
func (b By) mayUse(agentID string) error {
	if b.Rules.AllowsAgent(agentID) {
		return nil
	}
	return loquat.Errorf(loquat.CodeForbidden, "the role %s may not use the agent %q; GET /agents lists those that it may use", b.Role, loquat.Clip(agentID, loquat.Excerpt))
}

// mayUseModel refuses a model that a role may not use.
func mayUseModel(rules config.Role, providerID, model string) error {
	if rules.AllowsModel(providerID, model) {
		return nil
	}
	return loquat.Errorf(loquat.CodeForbidden, "the caller's role may not use the model %q of %s; GET /models lists those that it may use", loquat.Clip(model, loquat.Excerpt), providerID)
}

// mayAddSession refuses a new session of a user, or one of an agent that the caller's role may not use.
func (b By) mayAddSession(r *store.Reader, user, agentID string) error {
	if err := b.mayUse(agentID); err != nil {
		return err
	}
	if most := b.Rules.Bounds.Sessions; most > 0 && b.User != "" {
		n, err := r.SessionsOf(user, most)
		if err != nil {
			return err
		}
		if n >= most {
			return errBound(boundSessions, retryRoom, "there are %d sessions already, which is the bound (sessions); delete one first", n)
		}
	}
	return b.mayStore(r)
}

// mayCreate refuses a new session, or one with a send that has no room. It does so before anything is
// written that would have to be undone.
func (b By) mayCreate(tx *store.Tx, p loquat.NewSession) error {
	if err := b.mayAddSession(&tx.Reader, p.User, p.AgentID); err != nil || p.Send == nil {
		return err
	}
	return b.hasRoom(&tx.Reader, tx.Now, true)
}

// mayStore refuses more messages or images of a user who has reached the bound.
func (b By) mayStore(r *store.Reader) error {
	most := b.Rules.Bounds.StorageBytes
	if most <= 0 || b.User == "" {
		return nil
	}
	n, err := r.BytesOf(b.User)
	if err != nil || n < most {
		return err
	}
	return errBound(boundStorage, retryRoom, "the messages and images have %d bytes, and the bound is %d (storage_bytes); delete sessions or alternatives first", n, most)
}

// rulesOf returns what the role of a stored send allows. A role that the configuration no longer has
// allows nothing.
func (d dependencies) rulesOf(stored storedSend) (config.Role, error) {
	if stored.Role == "" {
		return config.Role{}, nil
	}
	rules, ok := d.config.Now().Server.Roles[stored.Role]
	if !ok {
		return config.Role{}, loquat.Errorf(loquat.CodeForbidden, "the role %q of the request is not in server.roles any more", stored.Role)
	}
	return rules, nil
}

// chargeEvery is how often the meter of a request counts tokens while they arrive.
const chargeEvery = time.Second

// meter counts the tokens of a request while it streams, so that requests that run at the same time,
// on all nodes, end soon after they have reached their bound together. It counts in the transactions
// that publish increments. The mutex of its sink guards it.
type meter struct {
	most    int64     // tokens_per_day; 0: nothing is counted before a step ends
	closed  int64     // tokens of closed steps
	charged int64     // tokens that were counted
	arrived int       // bytes of the open step
	next    time.Time // when to count again
	attempt uint64    // the transaction that has counted
}

// due reports whether a transaction is to count what has arrived. A transaction that is rolled back is
// repeated under another number, and counts again.
func (m *meter) due(tx *store.Tx) bool {
	return m.most > 0 && m.attempt != tx.Attempt() && !tx.Now.Before(m.next)
}

// bound sets tokens_per_day of the request's role.
func (k *sink) bound(most int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.q.Meter != "" {
		k.meter.most = most
	}
}

// meterIn leaves it to a step to count in its transaction.
func (k *sink) meterIn(tx *store.Tx) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.meter.attempt = tx.Attempt()
}

// closeMeter notes the tokens of the closed steps.
func (k *sink) closeMeter(tokens int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.meter.closed, k.meter.arrived = tokens, 0
}

// usedBy returns all tokens that the closed steps of a request have used.
func usedBy(q store.Request) int64 {
	if q.Usage == nil {
		return 0
	}
	return q.Usage.All()
}

// charge counts what a request has used so far, and stops it after the commit if it has reached its
// bound.
func (k *sink) charge(tx *store.Tx, q *store.Request, used int64) error {
	if q.Meter == "" {
		return nil
	}
	if err := tx.Charge(q, used); err != nil {
		return err
	}
	k.mu.Lock()
	most := k.meter.most
	k.meter.attempt = tx.Attempt()
	k.mu.Unlock()
	var reached error
	if most > 0 {
		today, err := tx.MeteredToday(q.Meter, tx.Now)
		if err != nil {
			return err
		}
		if today.Tokens >= most {
			reached = errTokens(most, today.Left)
		}
	}
	charged, next := q.Charged, tx.Now.Add(chargeEvery)
	tx.AfterCommit(func() {
		k.mu.Lock()
		k.meter.charged, k.meter.next = charged, next
		k.mu.Unlock()
		if reached != nil {
			k.s.workers.cancel(k.q.RequestID, reached)
		}
	})
	return nil
}
