package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"loquat"
	"loquat/internal/backoff"
	"loquat/internal/outbound"
	"loquat/internal/store"
)

// Bounds of sending.
const (
	maxAnswer   = 16 << 10 // bytes of an answer that are read, so that the connection can be used again
	maxExcerpt  = 200      // characters of an answer that the list of deliveries shows
	lookShare   = 20       // a webhook's looks for due events take at most this part of the time: one in 20
	maxLanes    = 8        // sessions of one webhook whose events are sent at the same time; 1 while its receiver fails
	maxPostpone = time.Hour
)

// leader sends deliveries.
type leader struct {
	*Sender
	wake     *store.Watch
	log      *store.Watch
	at       loquat.EventID // the last event that was read
	webhooks []loquat.Webhook
	lanes    map[lane]bool        // those that are being sent; at most maxInflight
	waiting  map[string]int       // by webhook: how many events wait for it at most
	looks    map[string]time.Time // by webhook: when to look for due events again
	failing  map[string]bool      // by webhook: whether its last attempt failed
	ended    chan outcome         // has room for every lane
	all      sync.WaitGroup
}

// lane are the events of a session for a webhook, which are sent one after the other.
type lane struct{ webhook, session string }

// outcome says how sending a lane ended. sent says that an attempt was made, failed that the last one failed.
type outcome struct {
	lane         lane
	sent, failed bool
}

// free ends the lanes that have ended.
func (l *leader) free() {
	for {
		select {
		case o := <-l.ended:
			l.end(o)
		default:
			return
		}
	}
}

func (l *leader) end(o outcome) {
	delete(l.lanes, o.lane)
	if o.sent {
		l.failing[o.lane.webhook] = o.failed
	}
}

// byNeed returns the webhooks in the order in which they get lanes. Receivers that fail come last, because one that does
// not answer keeps its lane until the end of the call.
func (l *leader) byNeed() []loquat.Webhook {
	order := slices.Clone(l.webhooks)
	slices.SortStableFunc(order, func(a, b loquat.Webhook) int { return l.lanesOf(b) - l.lanesOf(a) })
	return order
}

// lanesOf returns how many lanes a webhook may have.
func (l *leader) lanesOf(w loquat.Webhook) int {
	if l.failing[w.WebhookID] {
		return 1
	}
	return maxLanes
}

// send starts to send what may be sent now. It returns after what time to call it again at the latest.
func (l *leader) send(ctx context.Context) (again time.Duration, err error) {
	again = lookAgain
	l.free()
	busy := map[string]int{}
	for at := range l.lanes {
		busy[at.webhook]++
	}
	for _, w := range l.byNeed() {
		if w.Disabled != "" || busy[w.WebhookID] >= l.lanesOf(w) {
			continue
		}
		began := time.Now()
		if pause := l.looks[w.WebhookID].Sub(began); pause > 0 {
			again = min(again, pause)
			continue
		}
		due, err := store.Read(ctx, l.store, func(r *store.Reader) ([]loquat.WebhookDelivery, error) {
			return r.DueDeliveries(w.WebhookID, time.Now(), 2*maxLanes)
		})
		if err != nil {
			return again, err
		}
		// To look takes longer the more events wait for a receiver that is away.
		l.looks[w.WebhookID] = began.Add(lookShare * time.Since(began))
		for _, d := range due {
			at := lane{w.WebhookID, d.SessionID}
			if l.lanes[at] || busy[w.WebhookID] >= l.lanesOf(w) || len(l.lanes) >= maxInflight {
				continue
			}
			l.lanes[at] = true
			busy[w.WebhookID]++
			l.all.Go(func() {
				sent, failed := l.sendLane(ctx, w, d.SessionID)
				l.ended <- outcome{at, sent, failed}
			})
		}
	}
	return again, nil
}

// sendLane sends the events of a session until one fails or none is left. It reports whether it sent any, and
// whether the last attempt failed.
func (l *leader) sendLane(ctx context.Context, w loquat.Webhook, session string) (sent, failed bool) {
	for ctx.Err() == nil && l.store.Leads() {
		now, d, ok, err := l.next(ctx, w.WebhookID, session)
		if err != nil || !ok || d.NextAt == nil || d.NextAt.After(time.Now()) {
			return sent, failed
		}
		status, failure := l.post(ctx, now, d)
		if ctx.Err() != nil {
			return sent, failed // nobody knows whether it arrived: it is sent again
		}
		sent, failed = true, failure != nil
		if err := l.settle(ctx, now, d, status, failure); err != nil || failed {
			return sent, failed
		}
	}
	return sent, failed
}

// next returns the first event of a lane, and its webhook as it is now. ok is false if there is none to be sent.
func (l *leader) next(ctx context.Context, webhook, session string) (w loquat.Webhook, d loquat.WebhookDelivery, ok bool, err error) {
	err = l.store.View(ctx, func(r *store.Reader) (err error) {
		if w, err = r.Webhook(webhook); err == nil && w.Disabled == "" {
			d, ok, err = r.FirstDelivery(webhook, session)
		}
		return err
	})
	return w, d, ok, err
}

// failed is an attempt that failed.
type failed struct {
	why        string
	retryAfter time.Duration
}

func (f *failed) Error() string { return f.why }

// settle stores the outcome of an attempt. It repeats that while the store cannot write, because an event that was
// delivered would be sent again.
func (l *leader) settle(ctx context.Context, w loquat.Webhook, d loquat.WebhookDelivery, status int, failure error) error {
	update, result := func(tx *store.Tx) error { return tx.EndDelivery(w.WebhookID, d.EventID) }, resultDelivered
	defer func() { l.attempts.WithLabelValues(result).Inc() }()
	if failure != nil {
		l.failures.Log(slog.LevelWarn, "a webhook's receiver does not accept an event", "webhook_id", w.WebhookID, "event_id", d.EventID, "error", failure)
		l.delay(&d, failure)
		if result = resultFailed; d.Failed {
			result = resultGivenUp
		}
		update = func(tx *store.Tx) error {
			if status == http.StatusGone {
				now, err := tx.Webhook(w.WebhookID)
				if err != nil {
					return err
				}
				now.Disabled = loquat.WebhookGone
				if err := tx.SetWebhook(now); err != nil {
					return err
				}
				if err := tx.Audit(auditOf(loquat.Actor{Kind: loquat.ActorServer}, loquat.AuditWebhookChanged, now)); err != nil {
					return err
				}
			}
			return tx.DelayDelivery(w.WebhookID, d)
		}
	}
	for n := 0; ; n++ {
		err := l.store.Update(ctx, update)
		if loquat.CodeOf(err) != loquat.CodeUnavailable {
			return err
		}
		if retryStore.Wait(ctx, n) != nil {
			return err
		}
	}
}

var retryStore = backoff.Backoff{First: 50 * time.Millisecond, Max: 2 * time.Second}

// delay sets when an event is tried again, or gives it up.
func (l *leader) delay(d *loquat.WebhookDelivery, failure error) {
	d.Error = loquat.Clip(failure.Error(), maxExcerpt)
	d.Attempts++
	if d.Attempts > len(l.config.RetryDelays) {
		d.Failed, d.NextAt = true, nil
		return
	}
	wait := l.config.RetryDelays[d.Attempts-1]
	if f, ok := errors.AsType[*failed](failure); ok {
		wait = max(wait, min(f.retryAfter, maxPostpone))
	}
	at := time.Now().Add(wait)
	d.NextAt = &at
}

// post makes one call of a receiver.
func (l *leader) post(ctx context.Context, w loquat.Webhook, d loquat.WebhookDelivery) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(d.Body))
	if err != nil {
		return 0, &failed{why: "the URL cannot be used"}
	}
	id, now := l.messageID(w, d), time.Now()
	signatures, err := signaturesOf(w, id, now, d.Body)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "Loquat-Webhooks")
	req.Header.Set(standardwebhooks.HeaderWebhookID, id)
	req.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	req.Header.Set(standardwebhooks.HeaderWebhookSignature, signatures)
	resp, err := l.client.Do(req)
	if err != nil {
		return 0, &failed{why: l.whyNot(err)}
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode/100 == 2 {
		return resp.StatusCode, nil
	}
	return resp.StatusCode, &failed{
		why:        fmt.Sprintf("the receiver answered %s: %s", resp.Status, loquat.Clip(loquat.CleanText(string(text)), maxExcerpt)),
		retryAfter: backoff.ParseRetryAfter(resp.Header.Get("Retry-After")),
	}
}

// messageID returns the webhook-id of an event: the same for each attempt. Event ids begin again in a copy
// of the store, which has another id.
func (l *leader) messageID(w loquat.Webhook, d loquat.WebhookDelivery) string {
	return "msg_" + l.store.ID() + "_" + w.WebhookID + "_" + d.EventID.String()
}

// signaturesOf signs a message with the secret of a webhook, and with the one before it.
func signaturesOf(w loquat.Webhook, id string, at time.Time, body []byte) (string, error) {
	keys := []string{w.Key}
	if w.OldKey != "" && at.Before(w.OldUntil) {
		keys = append(keys, w.OldKey)
	}
	all := ""
	for _, key := range keys {
		signer, err := standardwebhooks.NewWebhook(key)
		if err != nil {
			return "", errors.New("the stored secret of the webhook cannot be read; make another one with new_secret")
		}
		signature, err := signer.Sign(id, at, body)
		if err != nil {
			return "", fmt.Errorf("sign: %w", err)
		}
		if all != "" {
			all += " "
		}
		all += signature
	}
	return all, nil
}

// whyNot describes the error of a call without the URL, which may have a secret.
func (l *leader) whyNot(err error) string {
	if errors.Is(err, outbound.ErrPrivate) {
		return "the receiver has an address that is not public; webhooks.allow_private_addresses allows it"
	}
	if failed, ok := errors.AsType[*url.Error](err); ok {
		if failed.Timeout() {
			return fmt.Sprintf("the receiver did not answer within %s", l.timeout)
		}
		err = failed.Err
	}
	return err.Error()
}
