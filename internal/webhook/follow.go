package webhook

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"time"

	"loquat"
	"loquat/internal/backoff"
	"loquat/internal/store"
)

// Times and bounds of following the log.
const (
	lookAgain  = 500 * time.Millisecond
	rest       = 10 * time.Second // between looks while there are no webhooks
	windowSize = 256
	noteEvery  = 10_000  // events
	maxBody    = 1 << 20 // bytes of an event; a larger one is sent without its content

	// maxDeliveries is the most deliveries that one transaction makes, unless one event makes more: on PostgreSQL each
	// takes a round trip, and the writers of all nodes wait.
	maxDeliveries = 80
)

// run makes deliveries from the log and sends them while this node leads.
func (s *Sender) run(ctx context.Context) {
	for ctx.Err() == nil {
		if s.store.Leads() {
			s.lead(ctx)
		}
		_ = backoff.Sleep(ctx, lookAgain)
	}
}

// lead runs until ctx ends or this node no longer leads.
func (s *Sender) lead(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	l := &leader{Sender: s, lanes: map[lane]bool{}, looks: map[string]time.Time{}, failing: map[string]bool{}, ended: make(chan outcome, maxInflight)}
	// Nearly all events come with one that changes a list; increments need not wake anybody.
	l.wake, l.log = s.store.Watch(store.Filter{Among: store.NewSelection(nil, true)}), s.store.Watch(store.Filter{})
	defer l.wake.Stop()
	defer l.log.Stop()
	defer l.all.Wait()
	defer stop()
	for s.store.Leads() {
		again := lookAgain
		more, err := l.read(ctx)
		if err == nil {
			again, err = l.send(ctx)
		}
		if err != nil && ctx.Err() == nil {
			s.failures.Log(slog.LevelWarn, "webhooks wait for the store", "error", err)
			_ = backoff.Sleep(ctx, lookAgain)
		}
		if more && err == nil {
			continue
		}
		wake := l.wake.C()
		if err == nil && len(l.webhooks) == 0 {
			again = rest
			if !s.store.Shared() { // another node cannot have made one
				wake = nil
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-s.changed:
		case ended := <-l.ended:
			l.end(ended)
		case <-time.After(again):
		}
	}
}

// read makes deliveries from the next events of the log, in the transaction that notes that they were
// read. If no webhook wants them, the store is written now and then, so that the next leader goes on from there. It reports whether there are more events.
func (l *leader) read(ctx context.Context) (more bool, err error) {
	var stored loquat.EventID
	err = l.store.View(ctx, func(r *store.Reader) (err error) {
		if l.webhooks, err = r.Webhooks(""); err == nil {
			stored, err = r.WebhooksRead()
		}
		return err
	})
	if l.at = max(l.at, stored); err != nil || len(l.webhooks) == 0 || l.log.Newest() <= l.at {
		return false, err
	}
	window, err := l.log.Events(ctx, nil, l.at, "", store.Bounds{Events: windowSize})
	if err != nil || len(window) == 0 {
		return false, err
	}
	wanted, last := l.wanted(window)
	if len(wanted) > 0 || last-stored >= noteEvery {
		var waiting map[string]int
		err = l.store.Update(ctx, func(tx *store.Tx) (err error) {
			waiting, err = l.addAll(tx, stored, last, wanted)
			return err
		})
		if err == nil {
			l.waiting = waiting
		}
	}
	switch {
	case errors.Is(err, errOvertaken):
		l.at, err = 0, nil // what it has read is in the store
	case err == nil:
		l.at = last
	}
	return err == nil, err
}

// wanted returns the first events of a window that webhooks want, as many as one transaction makes deliveries of, and
// the last event that it has looked at.
func (l *leader) wanted(window []loquat.Record) (events []loquat.Record, last loquat.EventID) {
	deliveries := 0
	for _, rec := range window {
		n := 0
		for _, w := range l.webhooks {
			if wants(w, rec) && w.Wants(rec.User) {
				n++
			}
		}
		if deliveries += n; deliveries > maxDeliveries && len(events) > 0 {
			return events, last
		}
		if n > 0 {
			events = append(events, rec)
		}
		last = rec.ID
	}
	return events, last
}

// errOvertaken reports that another node has read the log for webhooks.
var errOvertaken = errors.New("another node sends the events of webhooks")

// wants reports whether a webhook may be sent an event, if it is one of its user.
func wants(w loquat.Webhook, rec loquat.Record) bool {
	return w.Disabled == "" && rec.ID > w.Since && w.WantsType(rec.Type)
}

// addAll makes the deliveries of events after which the log was read up to last, unless another node was
// faster. It returns how many events then wait for each webhook at most.
func (l *leader) addAll(tx *store.Tx, before, last loquat.EventID, events []loquat.Record) (waiting map[string]int, err error) {
	read, err := tx.WebhooksRead()
	if err == nil && read != before {
		err = errOvertaken
	}
	if err != nil {
		return nil, err
	}
	hooks, err := tx.Webhooks("")
	if err != nil {
		return nil, err
	}
	// To count takes longer the more events wait, and keeps all other writers waiting. So it is done only where the
	// bound may be reached.
	for i := range hooks {
		most, known := l.waiting[hooks[i].WebhookID]
		if hooks[i].Waiting = most; known && most+len(events) <= store.MaxUndelivered {
			continue
		}
		if err := tx.CountDeliveries(&hooks[i]); err != nil {
			return nil, err
		}
	}
	for _, rec := range events {
		if err := addDeliveries(tx, hooks, rec); err != nil {
			return nil, err
		}
	}
	waiting = map[string]int{}
	for _, w := range hooks {
		waiting[w.WebhookID] = w.Waiting
	}
	return waiting, tx.SetWebhooksRead(last)
}

// addDeliveries makes the deliveries of an event.
func addDeliveries(tx *store.Tx, hooks []loquat.Webhook, rec loquat.Record) error {
	for i := range hooks {
		if !wants(hooks[i], rec) || !hooks[i].Wants(rec.User) {
			continue
		}
		d := loquat.WebhookDelivery{EventID: rec.ID, Type: string(rec.Type), SessionID: rec.SessionID, Body: payload(rec)}
		if err := tx.AddDelivery(&hooks[i], d); err != nil {
			return err
		}
	}
	return nil
}

// payload returns the message about an event: its type, its time, and the event without the session.
func payload(rec loquat.Record) []byte {
	var b bytes.Buffer
	b.WriteString(`{"type":`)
	b.Write(loquat.Quote(string(rec.Type)))
	b.WriteString(`,"timestamp":`)
	b.Write(loquat.Quote(rec.At.UTC().Format(time.RFC3339Nano)))
	b.WriteString(`,"data":{"event_id":`)
	b.Write(loquat.Quote(rec.ID.String()))
	whole := len(rec.Body) <= maxBody
	if rec.User != "" && !(whole && store.ChangesList(rec.Type)) { // of which the body has the user
		b.WriteString(`,"user":`)
		b.Write(loquat.Quote(rec.User))
	}
	if !whole {
		for _, f := range [][2]string{{"type", string(rec.Type)}, {"session_id", rec.SessionID}, {"request_id", rec.RequestID}} {
			if f[1] != "" {
				b.WriteString(`,"` + f[0] + `":`)
				b.Write(loquat.Quote(f[1]))
			}
		}
		b.WriteString(`,"omitted":true}}`)
		return b.Bytes()
	}
	if inner := bytes.TrimSpace(rec.Body); len(inner) > 2 {
		b.WriteByte(',')
		b.Write(inner[1 : len(inner)-1])
	}
	b.WriteString("}}")
	return b.Bytes()
}
