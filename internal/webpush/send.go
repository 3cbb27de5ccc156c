package webpush

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	webpush "github.com/SherClockHolmes/webpush-go"

	"loquat"
	"loquat/internal/backoff"
	"loquat/internal/outbound"
	"loquat/internal/store"
)

// Bounds of a delivery.
const (
	maxAttempts   = 5
	maxRetryAfter = 5 * time.Minute // a longer one ends the delivery
	recordSize    = 2048            // every notification is padded to it, so that its length says nothing
	maxAnswer     = 4 << 10         // bytes of an answer that are read, to use the connection again
)

// timeToLive is how long a push service keeps a notification for a browser that is not connected.
const timeToLive = 12 * time.Hour

// retryDelay is the delay between the attempts of a delivery.
var retryDelay = backoff.Backoff{First: time.Second, Max: time.Minute, Jitter: true}

// deliver sends a notification. It tries again until the push service accepts it or no attempt can
// succeed.
func (n *Notifier) deliver(ctx context.Context, p loquat.PushSubscription, note loquat.PushNotification) {
	var failure error
	for attempt := range maxAttempts {
		valid, err := n.isValid(ctx, p)
		if err == nil && !valid {
			return
		}
		var a answer
		if err == nil {
			a, err = n.post(ctx, p, note)
		}
		switch {
		case ctx.Err() != nil || err == nil && a.status < 300:
			return
		case a.status == http.StatusNotFound || a.status == http.StatusGone:
			n.drop(ctx, p)
			return
		}
		if failure = err; err == nil {
			failure = errors.New("it answered " + strconv.Itoa(a.status))
		}
		if !a.again() || errors.Is(err, outbound.ErrPrivate) || attempt == maxAttempts-1 {
			break
		}
		if backoff.Sleep(ctx, a.retryAfter) != nil || retryDelay.Wait(ctx, attempt) != nil {
			return
		}
	}
	n.failures.Log(slog.LevelWarn, "a push service does not accept a notification", "push_service", hostOf(p.Endpoint), "session_id", note.SessionID, "error", failure)
}

// answer is the answer of a push service. A status of 0 means that there was none.
type answer struct {
	status     int
	retryAfter time.Duration
}

// again reports whether a later attempt may succeed.
func (a answer) again() bool {
	return (a.status == 0 || a.status == http.StatusTooManyRequests || a.status >= 500) && a.retryAfter <= maxRetryAfter
}

// isValid reports whether a subscription is still stored and its owner may still read. It removes
// the subscription of an owner that was revoked or has expired.
func (n *Notifier) isValid(ctx context.Context, p loquat.PushSubscription) (bool, error) {
	stored, err := store.Read(ctx, n.store, func(r *store.Reader) (bool, error) { return r.HasPushSubscription(p) })
	if err != nil || !stored {
		return false, err
	}
	_, held, err := n.access.OwnedBy(ctx, p.Owner)
	if err == nil && !held {
		n.drop(ctx, p)
	}
	return held, err
}

// drop removes a subscription that is not valid any more.
func (n *Notifier) drop(ctx context.Context, p loquat.PushSubscription) {
	if err := n.store.DropPushSubscription(ctx, p); err != nil {
		n.report(ctx, err)
	}
}

// post makes one call of a push service.
func (n *Notifier) post(ctx context.Context, p loquat.PushSubscription, note loquat.PushNotification) (answer, error) {
	keys, err := n.pushKeys(ctx)
	if err != nil {
		return answer{}, err
	}
	text, err := json.Marshal(note)
	if err != nil {
		return answer{}, err
	}
	ended, err := n.calls.begin(ctx, hostOf(p.Endpoint))
	if err != nil {
		return answer{}, err
	}
	accepted := false
	defer func() { ended(accepted) }()
	resp, err := webpush.SendNotificationWithContext(ctx, text,
		&webpush.Subscription{Endpoint: p.Endpoint, Keys: webpush.Keys{P256dh: p.P256dh, Auth: p.Auth}},
		&webpush.Options{
			HTTPClient: n.client, Subscriber: strings.TrimPrefix(n.config.Subject, "mailto:"), TTL: int(timeToLive.Seconds()), Topic: topicOf(note.SessionID),
			Urgency: webpush.UrgencyNormal, VAPIDPublicKey: keys.Public, VAPIDPrivateKey: keys.Private, RecordSize: recordSize,
		})
	if err != nil {
		return answer{}, withoutURL(err)
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer)
	accepted = resp.StatusCode/100 == 2
	return answer{resp.StatusCode, backoff.ParseRetryAfter(resp.Header.Get("Retry-After"))}, nil
}

// calls bounds the calls that run at the same time, in all and of one push service.
type calls struct {
	all chan struct{}

	mu       sync.Mutex
	services map[string]*serviceCalls // by host, those that are called; guarded by mu
}

type serviceCalls struct {
	running chan struct{}
	known   int       // how many calls run or wait
	last    time.Time // when the service accepted a notification, or these calls began
}

func newCalls() *calls {
	return &calls{all: make(chan struct{}, maxInflight), services: map[string]*serviceCalls{}}
}

// begin waits until a call of a push service may run. Without an error, ended must be called at its end.
func (c *calls) begin(ctx context.Context, host string) (ended func(accepted bool), err error) {
	s := c.join(host)
	select {
	case s.running <- struct{}{}:
	case <-ctx.Done():
		c.leave(host)
		return nil, ctx.Err()
	}
	select {
	case c.all <- struct{}{}:
	case <-ctx.Done():
		<-s.running
		c.leave(host)
		return nil, ctx.Err()
	}
	return func(accepted bool) {
		if accepted {
			c.mu.Lock()
			s.last = time.Now()
			c.mu.Unlock()
		}
		<-c.all
		<-s.running
		c.leave(host)
	}, nil
}

func (c *calls) join(host string) *serviceCalls {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.services[host]
	if s == nil {
		s = &serviceCalls{running: make(chan struct{}, maxService), last: time.Now()}
		c.services[host] = s
	}
	s.known++
	return s
}

// lastAccepted returns when a push service accepted a notification, or began to be called. It is zero if no call
// runs or waits.
func (c *calls) lastAccepted(host string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.services[host]; s != nil {
		return s.last
	}
	return time.Time{}
}

func (c *calls) leave(host string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.services[host].known--; c.services[host].known == 0 {
		delete(c.services, host)
	}
}

// topicOf returns the topic of a session: a push service keeps only the newest notification of a
// topic. It has at most 32 characters, and says nothing about the session.
func topicOf(sessionID string) string {
	hash := sha256.Sum256([]byte("topic " + sessionID))
	return base64.RawURLEncoding.EncodeToString(hash[:24])
}

// withoutURL returns an error without the endpoint, which is a secret.
func withoutURL(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	return err
}

func hostOf(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return ""
	}
	return u.Host
}
