// Package webhook sends events of the log to URLs, signed as the Standard Webhooks specification says.
//
// Each event is delivered at least once, and those of a session in their order: an event waits until
// the one before it was delivered or given up. A repeat has the same webhook-id. Of several nodes, the
// one that leads sends. What is not delivered is in the store, so a crash loses nothing. An event that
// is given up is kept, and can be sent again.
//
// The package does not send increments, and does not make the webhooks' order hold between sessions.
package webhook

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/loglimit"
	"loquat/internal/outbound"
	"loquat/internal/store"
)

// Options configure a Sender.
type Options struct {
	Store  *store.Store
	Config config.Webhooks
	Logger *slog.Logger // nil: the default one

	CallTimeout time.Duration // how long a call of a receiver may take; 0: 15 seconds
	Idle        bool          // sends nothing: what is due is sent by another server of the store
}

// Sender keeps webhooks and sends their events.
type Sender struct {
	store    *store.Store
	config   config.Webhooks
	log      *slog.Logger
	failures *loglimit.Logger
	client   *http.Client
	timeout  time.Duration // of a call
	attempts *prometheus.CounterVec
	changed  chan struct{} // signalled when there may be more to send
	stop     context.CancelFunc
	running  sync.WaitGroup
}

// The bounds of calls of receivers.
const (
	maxInflight    = 64
	defaultTimeout = 15 * time.Second
)

// oldSecretFor is how long a secret that was replaced still signs.
const oldSecretFor = 24 * time.Hour

// Start returns a Sender that sends until Close.
func Start(opts Options) *Sender {
	ctx, stop := context.WithCancel(context.Background())
	s := &Sender{
		store: opts.Store, config: opts.Config, log: opts.Logger, changed: make(chan struct{}, 1), stop: stop, timeout: cmp.Or(opts.CallTimeout, defaultTimeout),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "loquat_webhook_attempts_total", Help: "Calls of receivers, by their result: delivered, failed, or given_up for the last one of an event.",
		}, []string{"result"}),
	}
	s.client = outbound.Client(outbound.Options{AllowPrivate: opts.Config.AllowPrivate, Timeout: s.timeout})
	if s.log == nil {
		s.log = slog.Default()
	}
	s.failures = loglimit.Once(s.log)
	for _, result := range []string{resultDelivered, resultFailed, resultGivenUp} {
		s.attempts.WithLabelValues(result)
	}
	if !opts.Idle {
		s.running.Go(func() { s.run(ctx) })
	}
	return s
}

// Collectors returns metrics for Prometheus.
func (s *Sender) Collectors() []prometheus.Collector { return []prometheus.Collector{s.attempts} }

// The results of calls of receivers, as the metric names them.
const (
	resultDelivered = "delivered"
	resultFailed    = "failed"
	resultGivenUp   = "given_up"
)

// Close stops sending. What was not sent is sent after the next start.
func (s *Sender) Close() {
	s.stop()
	s.running.Wait()
	s.failures.Flush()
	s.client.CloseIdleConnections()
}

// List returns the webhooks, the oldest first.
func (s *Sender) List(ctx context.Context) ([]loquat.Webhook, error) {
	return store.Read(ctx, s.store, func(r *store.Reader) ([]loquat.Webhook, error) {
		list, err := r.Webhooks("")
		for i := range list {
			if err == nil {
				err = r.CountDeliveries(&list[i])
			}
		}
		return list, err
	})
}

// Get returns a webhook.
func (s *Sender) Get(ctx context.Context, id string) (loquat.Webhook, error) {
	return store.Read(ctx, s.store, func(r *store.Reader) (loquat.Webhook, error) { return r.Webhook(id) })
}

// Add makes a webhook. Only this answer has its secret.
func (s *Sender) Add(ctx context.Context, in loquat.NewWebhook) (loquat.Webhook, error) {
	w := loquat.Webhook{
		WebhookID: uuid.Must(uuid.NewV7()).String(), URL: in.URL, Types: in.Types, User: in.User, Description: in.Description,
		CreatedAt: time.Now().UTC().Truncate(time.Millisecond), Key: newSecret(),
	}
	if w.Types == nil {
		w.Types = []string{}
	}
	if w.User != "" {
		if err := loquat.CheckUser("body.user", w.User); err != nil {
			return w, err
		}
	}
	if err := s.check(ctx, w); err != nil {
		return w, err
	}
	err := s.store.Update(ctx, func(tx *store.Tx) error {
		if err := tx.AddWebhook(w); err != nil {
			return err
		}
		return tx.Audit(auditOf(loquat.ActorOf(ctx), loquat.AuditWebhookMade, w))
	})
	w.Secret = w.Key
	s.wake()
	return w, err
}

// Change changes a webhook.
func (s *Sender) Change(ctx context.Context, id string, p loquat.WebhookPatch) (loquat.Webhook, error) {
	secret := newSecret()
	planned, err := s.Get(ctx, id)
	if err != nil {
		return planned, err
	}
	if p.URL != nil || p.Types != nil { // names are looked up before the transaction
		apply(&planned, p, secret, time.Now())
		if err := s.check(ctx, planned); err != nil {
			return planned, err
		}
	}
	out, err := store.Do(ctx, s.store, func(tx *store.Tx) (loquat.Webhook, error) {
		w, err := tx.Webhook(id)
		if err != nil {
			return w, err
		}
		apply(&w, p, secret, tx.Now)
		if err := tx.SetWebhook(w); err != nil {
			return w, err
		}
		return w, tx.Audit(auditOf(loquat.ActorOf(ctx), loquat.AuditWebhookChanged, w))
	})
	if p.NewSecret {
		out.Secret = secret
	}
	s.wake()
	return out, err
}

// apply changes a webhook as a patch says.
func apply(w *loquat.Webhook, p loquat.WebhookPatch, secret string, now time.Time) {
	if p.URL != nil {
		w.URL = *p.URL
	}
	if p.Types != nil {
		w.Types = *p.Types
	}
	if p.Description != nil {
		w.Description = *p.Description
	}
	if p.Disabled != nil && *p.Disabled != (w.Disabled != "") {
		w.Disabled = ""
		if *p.Disabled {
			w.Disabled = loquat.WebhookDisabledByCaller
		}
	}
	if p.NewSecret {
		w.OldKey, w.OldUntil, w.Key = w.Key, now.Add(oldSecretFor), secret
	}
}

// Remove removes a webhook with what waits for it.
func (s *Sender) Remove(ctx context.Context, id string) error {
	return s.store.Update(ctx, func(tx *store.Tx) error {
		w, err := tx.Webhook(id)
		if err != nil {
			return err
		}
		if err := tx.RemoveWebhook(id); err != nil {
			return err
		}
		return tx.Audit(auditOf(loquat.ActorOf(ctx), loquat.AuditWebhookRemoved, w))
	})
}

// Deliveries returns a page of what was not delivered.
func (s *Sender) Deliveries(ctx context.Context, id string, failedOnly bool, after loquat.EventID, limit int) (loquat.WebhookDeliveries, error) {
	list, err := store.Read(ctx, s.store, func(r *store.Reader) ([]loquat.WebhookDelivery, error) {
		if _, err := r.Webhook(id); err != nil {
			return nil, err
		}
		return r.Deliveries(id, failedOnly, after, limit+1)
	})
	out := loquat.WebhookDeliveries{Deliveries: list}
	if len(list) > limit {
		out.Deliveries, out.NextPageToken = list[:limit], list[limit-1].EventID.String()
	}
	if out.Deliveries == nil {
		out.Deliveries = []loquat.WebhookDelivery{}
	}
	return out, err
}

// Resend sends an event again that was given up, or all of a webhook with event 0.
func (s *Sender) Resend(ctx context.Context, id string, event loquat.EventID) error {
	err := s.store.Update(ctx, func(tx *store.Tx) error {
		w, err := tx.Webhook(id)
		if err != nil {
			return err
		}
		n, err := tx.Resend(id, event)
		if err == nil && n == 0 && event != 0 {
			err = loquat.Errorf(loquat.CodeNotFound, "event %s is not one that was given up for this webhook", event)
		}
		if err != nil || n == 0 {
			return err
		}
		e := auditOf(loquat.ActorOf(ctx), loquat.AuditWebhookResent, w)
		e.Detail = loquat.AuditDetail("events", n)
		return tx.Audit(e)
	})
	s.wake()
	return err
}

// auditOf returns the entry of a change of a webhook. A URL may have a secret in its path or query.
func auditOf(by loquat.Actor, action string, w loquat.Webhook) loquat.AuditEntry {
	host := ""
	if u, err := url.Parse(w.URL); err == nil {
		host = u.Scheme + "://" + u.Host
	}
	return loquat.AuditEntry{Action: action, Target: w.WebhookID, Actor: by, Detail: loquat.AuditDetail("host", host, "types", w.Types, "user", w.User, "disabled", w.Disabled)}
}

// check checks the URL and the types of a webhook.
func (s *Sender) check(ctx context.Context, w loquat.Webhook) error {
	for i, t := range w.Types {
		if !slices.Contains(loquat.WebhookTypes(), t) {
			return loquat.Invalid("body.types", "has entry %d, %q, which is no type of event that can be sent; these are: %s", i, loquat.Clip(t, loquat.Excerpt), strings.Join(loquat.WebhookTypes(), ", "))
		}
	}
	u, err := url.Parse(w.URL)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return loquat.Invalid("body.url", "is not an https:// or http:// URL with a host, and without a user and a fragment")
	}
	if s.config.AllowPrivate {
		return nil
	}
	err = outbound.Check(ctx, u.Hostname())
	if errors.Is(err, outbound.ErrNoAddress) {
		return loquat.Invalid("body.url", "names a host that cannot be looked up; check the name and try again")
	}
	if err != nil {
		return loquat.Invalid("body.url", "names a host without a public address; webhooks.allow_private_addresses in the configuration allows receivers with private addresses")
	}
	return nil
}

// secretBytes is the length of a secret.
const secretBytes = 32

func newSecret() string {
	var b [secretBytes]byte
	_, _ = rand.Read(b[:]) // never fails
	return "whsec_" + base64.StdEncoding.EncodeToString(b[:])
}

// wake makes the sender look for more to send.
func (s *Sender) wake() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}
