package chat

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"loquat"
	"loquat/internal/backoff"
	"loquat/internal/settings"
	"loquat/internal/store"
)

// count adds calls of the backend to what a running request has used. It is called before the step
// changes the messages: an estimate counts those that the backend was sent.
func count(r *store.Reader, h store.Head, q *store.Request, attempts []loquat.Attempt) error {
	if len(attempts) == 0 {
		return nil
	}
	var sum loquat.Usage
	if q.Usage != nil {
		sum = *q.Usage
	}
	input := int64(-1)
	for _, a := range attempts {
		if input < 0 && a.Reported == nil && !a.Refused {
			var err error
			if input, err = estimateInput(r, h); err != nil {
				return err
			}
		}
		sum.Add(a, max(0, input))
	}
	q.Usage = &sum
	return nil
}

// estimateInput estimates the input tokens of a call with the messages of a session. It reads them from
// the end on, as far as it needs them.
func estimateInput(r *store.Reader, h store.Head) (sum int64, err error) {
	const most = 64
	for to, size := h.Count, 4; to > 0; size = min(2*size, most) {
		from := max(0, to-size)
		messages, err := r.Messages(h, h.Rev, from, to-from)
		if err != nil {
			return 0, err
		}
		n, whole := loquat.EstimateInput(messages)
		if sum += n; whole {
			break
		}
		to = from
	}
	return sum, nil
}

// sizeOf returns the bytes of text and reasoning of an increment.
func sizeOf(d *loquat.Delta) int {
	if d == nil {
		return 0
	}
	n := len(d.Content)
	for _, key := range []string{loquat.MetaReasoning, loquat.MetaReasoningContent} {
		if raw := d.Metadata[key]; hasText(raw) {
			n += len(raw) - 2
		}
	}
	return n
}

// countOpen counts the open step of a request that is about to end with its session, from the log. A step
// that cannot be read is not counted: it must not keep its session from being deleted.
func (s *Requests) countOpen(tx *store.Tx, h store.Head, q *store.Request) {
	attempts, err := readAttempts(&tx.Reader, *q)
	if err == nil {
		err = count(&tx.Reader, h, q, attempts)
	}
	if err != nil {
		s.log.Error("a request ends with its session and without the usage of its last step, which cannot be read", "session_id", h.SessionID, "request_id", q.RequestID, "error", err)
	}
}

// finish ends a request and counts what it has used for its user, agent and model.
func (s *Requests) finish(tx *store.Tx, h store.Head, q *store.Request, status loquat.RequestStatus, failure string) error {
	used := loquat.Usage{Source: loquat.UsageNone}
	if q.Usage != nil {
		used = *q.Usage
	}
	of := store.UsageOf{User: h.User, AgentID: h.AgentID}
	if stored, err := sendOf(*q); err == nil && stored.AgentID != "" { // it was started
		of.AgentID, of.ProviderID, of.Model = stored.AgentID, stored.ProviderID, stored.Model
	}
	s.price(of, &used)
	q.Usage = &used
	if err := tx.ChargeEnded(q, used.All()); err != nil {
		return err
	}
	if err := tx.EndRequest(q, status, failure); err != nil {
		return err
	}
	tx.AfterCommit(func() { s.counts.ended.WithLabelValues(string(status)).Inc() })
	return s.used(tx, of, used, 1)
}

// used counts usage in the store and in the metrics.
func (d dependencies) used(tx *store.Tx, of store.UsageOf, u loquat.Usage, requests int) error {
	tx.AfterCommit(func() { d.counts.add(of.ProviderID, u) })
	return tx.AddUsage(of, u, requests)
}

// price sets the cost of usage, if the configuration has a price.
func (d dependencies) price(of store.UsageOf, u *loquat.Usage) {
	if p, ok := d.config.Now().PriceOf(of.ProviderID, of.Model); ok {
		cost := p.Cost(u.Reported.Add(u.Estimated))
		u.Cost = &cost
	}
}

// otherUsage collects what calls have used that belong to no request: relayed ones, titles, compactions.
// It is stored every second, so that such a call costs no commit of its own. A crash loses that of the
// last second.
type otherUsage struct {
	dependencies
	mu    sync.Mutex
	sum   map[meteredUsage]loquat.Usage
	ended []meteredCall // calls whose ends could not be stored yet
}

// meteredCall is a call that counts for a meter while it runs. Its meter is "" if it counts for none.
type meteredCall struct{ meter, owner string }

// agentNamed returns the id of the agent that a name of a model stands for, or "".
func (d dependencies) agentNamed(name string) string {
	if d.config.Now().HasAgent(name) {
		return name
	}
	return ""
}

// mayUseNamed refuses a name of a model that stands for an agent which the caller's role may not use.
func (d dependencies) mayUseNamed(by By, name string) error {
	if id := d.agentNamed(name); id != "" {
		return by.mayUse(id)
	}
	return nil
}

// Relayed admits a relayed request of a caller: of the model that a name stands for, with a body of size
// bytes. It returns what counts its calls of the backend. Without an error, done must be called at the end.
func (s *Requests) Relayed(ctx context.Context, by By, name string, resolved settings.Resolved, size int) (attempted func(loquat.Attempt), done func(), err error) {
	of, done, err := s.admitCall(ctx, by, name, resolved)
	return func(a loquat.Attempt) { s.other.add(of, a, loquat.EstimateTokens(size)) }, done, err
}

// A caller may call again as soon as it has the last byte, which is before the end of the call is stored. So a
// call that comes at the bound of running requests is looked at again before it is refused.
const (
	callAgain      = 5
	callAgainAfter = 20 * time.Millisecond
)

// admitCall checks whether a caller may call a model outside of the requests of sessions: relayed requests,
// compactions and actions do. It returns for whom the tokens count. Without an error, done must be called at the end.
func (s *Requests) admitCall(ctx context.Context, by By, name string, resolved settings.Resolved) (of meteredUsage, done func(), err error) {
	of = meteredUsage{store.UsageOf{User: by.User, AgentID: s.agentNamed(name), ProviderID: resolved.ProviderID, Model: resolved.Config.String("model")}, by.Meter}
	if err = s.mayUseNamed(by, name); err == nil {
		err = mayUseModel(by.Rules, of.ProviderID, of.Model)
	}
	if err != nil {
		return of, nil, err
	}
	call := meteredCall{by.Meter, s.store.Owner()}
	for n := 0; ; n++ {
		if err = s.lookForRoom(ctx, Call{By: by}, "", true); err == nil && by.Meter != "" {
			err = s.store.Update(ctx, func(tx *store.Tx) error {
				if err := by.mayCall(tx, true); err != nil {
					return err
				}
				return tx.BeginCall(call.meter, call.owner)
			})
		}
		if e, ok := errors.AsType[*loquat.Error](err); !ok || e.Bound != boundRunning || n == callAgain || backoff.Sleep(ctx, callAgainAfter) != nil {
			return of, func() { s.other.end(ctx, call) }, err
		}
	}
}

// end stores that a call has ended.
func (o *otherUsage) end(ctx context.Context, call meteredCall) {
	if call.meter == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), otherUsageEvery)
	defer cancel()
	if o.store.Update(ctx, func(tx *store.Tx) error { return tx.EndCall(call.meter, call.owner) }) == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = append(o.ended, call)
}

// meteredUsage says whose usage is counted, and by which meter, "" for none.
type meteredUsage struct {
	store.UsageOf
	meter string
}

// otherUsageEvery is how often otherUsage is stored.
const otherUsageEvery = time.Second

// add counts a call. Input is the estimate for one that reported nothing.
func (o *otherUsage) add(of meteredUsage, a loquat.Attempt, input int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	u := o.sum[of]
	u.Add(a, input)
	o.sum[of] = u
}

// loop stores what was collected until ctx ends, and once more after that.
func (o *otherUsage) loop(ctx context.Context) {
	for done := false; !done; {
		select {
		case <-ctx.Done():
			done = true
		case <-time.After(otherUsageEvery):
		}
		if err := o.flush(context.WithoutCancel(ctx)); err != nil && !done {
			o.log.Warn("the usage of relayed calls cannot be stored now; it is kept", "error", err)
		}
	}
}

// flush stores what was collected.
func (o *otherUsage) flush(ctx context.Context) error {
	o.mu.Lock()
	sum, ended := o.sum, o.ended
	o.sum, o.ended = map[meteredUsage]loquat.Usage{}, nil
	o.mu.Unlock()
	if len(sum)+len(ended) == 0 {
		return nil
	}
	err := o.store.Update(ctx, func(tx *store.Tx) error {
		for _, call := range ended {
			if err := tx.EndCall(call.meter, call.owner); err != nil {
				return err
			}
		}
		for of, u := range sum {
			o.price(of.UsageOf, &u)
			if err := o.used(tx, of.UsageOf, u, 0); err != nil {
				return err
			}
			if of.meter != "" {
				if err := tx.CountTokens(of.meter, u.All(), 0); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		for of, u := range sum {
			o.sum[of] = u.Plus(o.sum[of])
		}
		o.ended = append(ended, o.ended...)
	}
	return err
}

// maxUsageRows is the most rows of a page of usage, and those that a CSV file is read in.
const maxUsageRows = 1000

// Usage returns a page of what requests have used.
func (s *Service) Usage(ctx context.Context, q loquat.UsageQuery) (loquat.UsageList, error) {
	skip := 0
	if q.PageToken != "" {
		n, err := strconv.Atoi(q.PageToken)
		if err != nil || n < 0 {
			return loquat.UsageList{}, badPageToken(q.PageToken)
		}
		skip = n
	}
	limit := min(max(1, q.Limit), maxUsageRows)
	rows, err := store.Read(ctx, s.store, func(r *store.Reader) ([]loquat.UsageRow, error) {
		rows := []loquat.UsageRow{}
		err := r.EachUsage(q, skip, limit+1, func(u loquat.UsageRow) error {
			rows = append(rows, u)
			return nil
		})
		return rows, err
	})
	if err != nil {
		return loquat.UsageList{}, fmt.Errorf("read usage: %w", err)
	}
	out := loquat.UsageList{Usage: rows}
	if len(rows) > limit {
		out.Usage, out.NextPageToken = rows[:limit], strconv.Itoa(skip+limit)
	}
	return out, nil
}

// EachUsage calls fn with all rows of a query, in pages.
func (s *Service) EachUsage(ctx context.Context, q loquat.UsageQuery, fn func(loquat.UsageRow) error) error {
	q.Limit, q.PageToken = maxUsageRows, ""
	for {
		page, err := s.Usage(ctx, q)
		if err != nil {
			return err
		}
		for _, u := range page.Usage {
			if err := fn(u); err != nil {
				return err
			}
		}
		if q.PageToken = page.NextPageToken; q.PageToken == "" {
			return nil
		}
	}
}
