package storetest

import (
	"fmt"
	"testing"
	"time"

	"loquat"
	"loquat/internal/store"
)

// look reads something that has to be readable.
func look[T any](t *testing.T, s *store.Store, fn func(*store.Reader) (T, error)) T {
	t.Helper()
	out, err := store.Read(t.Context(), s, fn)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// usageRows checks that usage is summed up, grouped and selected.
func usageRows(t *testing.T, open Open) {
	s := start(t, open)
	cost := 0.25
	used := loquat.Usage{Source: loquat.UsageReported, Attempts: 2, Reported: loquat.Tokens{Input: 10, CachedInput: 4, Output: 5, Reasoning: 1}, Cost: &cost}
	guessed := loquat.Usage{Source: loquat.UsageEstimated, Attempts: 1, Estimated: loquat.Tokens{Input: 3, Output: 2}}
	update(t, s, func(tx *store.Tx) error {
		for range 2 {
			if err := tx.AddUsage(store.UsageOf{User: "ann", AgentID: "a", ProviderID: "p", Model: "m"}, used, 1); err != nil {
				return err
			}
		}
		if err := tx.AddUsage(store.UsageOf{User: "ann", AgentID: "a", ProviderID: "p", Model: "n"}, guessed, 1); err != nil {
			return err
		}
		return tx.AddUsage(store.UsageOf{AgentID: "a", ProviderID: "p", Model: "m"}, loquat.Usage{Source: loquat.UsageNone}, 0)
	})
	rows := func(q loquat.UsageQuery, skip, limit int) (out []loquat.UsageRow) {
		return look(t, s, func(r *store.Reader) ([]loquat.UsageRow, error) {
			out = nil
			err := r.EachUsage(q, skip, limit, func(u loquat.UsageRow) error { out = append(out, u); return nil })
			return out, err
		})
	}
	day := time.Now().UTC().Format(time.DateOnly)
	all := rows(loquat.UsageQuery{GroupBy: []string{loquat.ByUser, loquat.ByModel}}, 0, 10)
	want := loquat.UsageRow{User: "ann", Model: "m", Requests: 2, OfSource: loquat.OfSource{Reported: 2}, Attempts: 4, Reported: loquat.Tokens{Input: 20, CachedInput: 8, Output: 10, Reasoning: 2}, Cost: 0.5}
	if len(all) != 3 || all[1] != want || all[2].OfSource.Estimated != 1 || all[2].Estimated.Input != 3 || all[0].Requests != 0 {
		t.Errorf("grouped: %+v", all)
	}
	if page := rows(loquat.UsageQuery{GroupBy: []string{loquat.ByUser, loquat.ByModel}}, 1, 1); len(page) != 1 || page[0] != want {
		t.Errorf("the second page: %+v", page)
	}
	if of := rows(loquat.UsageQuery{User: "ann", From: day, GroupBy: []string{loquat.ByUser}}, 0, 10); len(of) != 1 || of[0].Requests != 3 || of[0].Day != "" {
		t.Errorf("of ann: %+v", of)
	}
	if none := rows(loquat.UsageQuery{To: "2020-01-01", GroupBy: []string{loquat.ByDay}}, 0, 10); len(none) != 0 {
		t.Errorf("before: %+v", none)
	}
}

// meters checks that meters count requests by the minute and tokens by the day.
func meters(t *testing.T, open Open) {
	s := start(t, open)
	for n := range 3 {
		update(t, s, func(tx *store.Tx) error {
			wait, err := tx.RequestsOf("user ann", 3, tx.Now)
			if err == nil && wait != 0 {
				err = fmt.Errorf("request %d has to wait for %d s", n, wait)
			}
			if err != nil {
				return err
			}
			return tx.CountRequest("user ann")
		})
	}
	now := time.Now()
	if wait := look(t, s, func(r *store.Reader) (int, error) { return r.RequestsOf("user ann", 3, now) }); wait < 59 || wait > 61 {
		t.Errorf("the fourth waits for %d s", wait)
	}
	if wait := look(t, s, func(r *store.Reader) (int, error) { return r.RequestsOf("user ann", 3, now.Add(62*time.Second)) }); wait != 0 {
		t.Errorf("a minute later it waits for %d s", wait)
	}
	if wait := look(t, s, func(r *store.Reader) (int, error) { return r.RequestsOf("user ann", 3, now.Add(-5*time.Second)) }); wait < 59 || wait > 66 {
		t.Errorf("by a clock that is behind it waits for %d s", wait)
	}
	if wait := look(t, s, func(r *store.Reader) (int, error) { return r.RequestsOf("user ann", 3, now.Add(-time.Hour)) }); wait != 0 {
		t.Errorf("after the clock was set back it waits for %d s", wait)
	}
	if wait := look(t, s, func(r *store.Reader) (int, error) { return r.RequestsOf("user bob", 3, now) }); wait != 0 {
		t.Errorf("bob waits for %d s", wait)
	}
	update(t, s, func(tx *store.Tx) error {
		if err := tx.CountTokens("user ann", 7, 0); err != nil {
			return err
		}
		return tx.CountTokens("user ann", 5, 12)
	})
	today := look(t, s, func(r *store.Reader) (store.Metered, error) { return r.MeteredToday("user ann", now) })
	if today.Tokens != 12 || today.Largest != 12 || today.Left <= 0 || today.Left > 24*time.Hour {
		t.Errorf("today: %+v", today)
	}
	if later := look(t, s, func(r *store.Reader) (store.Metered, error) { return r.MeteredToday("user ann", now.Add(25*time.Hour)) }); later.Tokens != 0 {
		t.Errorf("tomorrow: %+v", later)
	}
	runningCalls(t, s)
	if err := s.Cleanup(t.Context()); err != nil {
		t.Error(err)
	}
}

// runningCalls checks that a meter counts calls until they end, and those of a process until it ends.
func runningCalls(t *testing.T, s *store.Store) {
	t.Helper()
	running := func() int {
		return look(t, s, func(r *store.Reader) (int, error) { return r.UnendedOf("user ann", 9) })
	}
	call := func(owner string, change func(tx *store.Tx, meter, owner string) error, want int) {
		t.Helper()
		update(t, s, func(tx *store.Tx) error { return change(tx, "user ann", owner) })
		if n := running(); n != want {
			t.Errorf("%d calls run, want %d", n, want)
		}
	}
	call(s.Owner(), (*store.Tx).BeginCall, 1)
	call(s.Owner(), (*store.Tx).BeginCall, 2)
	call("a process that has ended", (*store.Tx).BeginCall, 2)
	call(s.Owner(), (*store.Tx).EndCall, 1)
	if err := s.Cleanup(t.Context()); err != nil {
		t.Error(err)
	}
	call(s.Owner(), (*store.Tx).EndCall, 0)
	call(s.Owner(), (*store.Tx).EndCall, 0)
}

// webhookDeliveries checks that the first waiting event of each session is due, and what becomes of the others.
func webhookDeliveries(t *testing.T, open Open) {
	s := start(t, open)
	create(t, s, "before", 1)
	update(t, s, func(tx *store.Tx) error {
		return tx.AddWebhook(loquat.Webhook{WebhookID: "w", URL: "https://x.example/☂", Types: []string{"final"}, User: "ann", Key: "whsec_x", CreatedAt: tx.Now})
	})
	w := look(t, s, func(r *store.Reader) (loquat.Webhook, error) { return r.Webhook("w") })
	if read := look(t, s, (*store.Reader).WebhooksRead); w.Key != "whsec_x" || w.User != "ann" || len(w.Types) != 1 || w.Since != s.Last() || read != s.Last() {
		t.Errorf("%+v, read up to %s", w, read)
	}
	update(t, s, func(tx *store.Tx) error {
		for n, session := range []string{"a", "a", "b", "a"} {
			if err := tx.AddDelivery(&w, loquat.WebhookDelivery{EventID: loquat.EventID(100 + n), Type: "final", SessionID: session, Body: []byte(`{"x": 1}`)}); err != nil {
				return err
			}
		}
		return tx.AddDelivery(&w, loquat.WebhookDelivery{EventID: 100, Type: "final", SessionID: "a", Body: []byte("again")})
	})
	due := func() string { return dueDeliveries(t, s) }
	if got := due(); got != "100a 102b " {
		t.Errorf("due: %s", got)
	}
	later := time.Now().Add(time.Hour)
	update(t, s, func(tx *store.Tx) error {
		if err := tx.EndDelivery("w", 102); err != nil {
			return err
		}
		return tx.DelayDelivery("w", loquat.WebhookDelivery{EventID: 100, Attempts: 1, NextAt: &later, Error: "no"})
	})
	if got := due(); got != "" { // the later events of the session wait, too
		t.Errorf("due: %s", got)
	}
	update(t, s, func(tx *store.Tx) error {
		return tx.DelayDelivery("w", loquat.WebhookDelivery{EventID: 100, Attempts: 2, Failed: true, Error: "no"})
	})
	if got := due(); got != "101a " {
		t.Errorf("due: %s", got)
	}
	w = look(t, s, func(r *store.Reader) (loquat.Webhook, error) { return r.Webhook("w") })
	failed := look(t, s, func(r *store.Reader) ([]loquat.WebhookDelivery, error) { return r.Deliveries("w", true, 0, 10) })
	if w.Waiting != 2 || w.Failed != 1 || len(failed) != 1 || failed[0].Error != "no" || failed[0].Attempts != 2 || !failed[0].Failed {
		t.Errorf("%+v, %+v", w, failed)
	}
	update(t, s, func(tx *store.Tx) error {
		n, err := tx.Resend("w", 0)
		if err == nil && n != 1 {
			err = fmt.Errorf("%d are sent again", n)
		}
		return err
	})
	if got := due(); got != "100a " {
		t.Errorf("due: %s", got)
	}
	update(t, s, func(tx *store.Tx) error { return tx.RemoveWebhook("w") })
	if got := due(); got != "" {
		t.Errorf("due: %s", got)
	}
}

// dueDeliveries returns the events and sessions of the deliveries that are due.
func dueDeliveries(t *testing.T, s *store.Store) (out string) {
	t.Helper()
	list := look(t, s, func(r *store.Reader) ([]loquat.WebhookDelivery, error) {
		return r.DueDeliveries("w", time.Now().Add(time.Second), 10)
	})
	for _, d := range list {
		out += fmt.Sprintf("%d%s ", d.EventID, d.SessionID)
	}
	return out
}

// auditEntries checks that the audit is listed from the newest on.
func auditEntries(t *testing.T, open Open) {
	s := start(t, open)
	for _, target := range []string{"x", "y", "x"} {
		update(t, s, func(tx *store.Tx) error {
			return tx.Audit(loquat.AuditEntry{Action: "made", Target: target, Actor: loquat.Actor{Kind: "token", Name: "☂"}, Detail: loquat.AuditDetail("a", 1)})
		})
	}
	list := look(t, s, func(r *store.Reader) ([]loquat.AuditEntry, error) {
		return r.AuditEntries(store.AuditFilter{Action: "made", Target: "x"}, 10)
	})
	if len(list) != 2 || list[0].AuditID <= list[1].AuditID || list[0].Actor.Name != "☂" || string(list[0].Detail["a"]) != "1" || list[0].At.IsZero() {
		t.Errorf("%+v", list)
	}
	below := look(t, s, func(r *store.Reader) ([]loquat.AuditEntry, error) {
		return r.AuditEntries(store.AuditFilter{Below: 2}, 10)
	})
	if len(below) != 1 || below[0].AuditID != "1" {
		t.Errorf("below: %+v", below)
	}
	if err := s.Cleanup(t.Context()); err != nil {
		t.Error(err)
	}
}
