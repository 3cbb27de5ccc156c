// Package webpush sends notifications to browsers when a request ends, by Web Push (RFC 8030): also
// while no page of the server is open.
//
// The package follows the log. Of several nodes, the one that leads sends. The store keeps the
// subscriptions, the key pair of the server (RFC 8292), and the last event whose notifications were
// all sent. After a crash the notifications of later events are sent, some perhaps again. All
// notifications of a session have the same topic, so a push service keeps only the newest.
//
// A notification has the title of its session and no message. It is encrypted for its browser
// (RFC 8291). A subscription belongs to the token, or to the browser session, with which it was
// made: it is sent what this token may read, and is removed with the token.
package webpush

import (
	"context"
	"crypto/ecdh"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	webpush "github.com/SherClockHolmes/webpush-go"

	"loquat"
	"loquat/internal/auth"
	"loquat/internal/config"
	"loquat/internal/loglimit"
	"loquat/internal/outbound"
	"loquat/internal/store"
)

// Options configure a Notifier.
type Options struct {
	Store  *store.Store
	Access *auth.Keeper
	Config config.Push
	Logger *slog.Logger // nil: the default one
	TLS    *tls.Config  // for calls of push services; nil: the default
}

// Notifier keeps the subscriptions of browsers and sends their notifications.
type Notifier struct {
	store    *store.Store
	access   *auth.Keeper
	config   config.Push
	log      *slog.Logger
	failures *loglimit.Logger
	client   *http.Client
	calls    *calls
	stop     context.CancelFunc
	running  sync.WaitGroup

	mu   sync.Mutex
	keys loquat.PushKeys // guarded by mu; empty until they are needed
}

// The bounds of calls of push services.
const (
	maxInflight = 16
	maxService  = 8 // of one push service: one that does not answer leaves calls to the others
	callTimeout = 15 * time.Second
)

// Start returns a Notifier that sends until Close. If the configuration has no subject, it sends
// nothing and accepts no subscriptions.
func Start(opts Options) *Notifier {
	n := &Notifier{store: opts.Store, access: opts.Access, config: opts.Config, log: opts.Logger, calls: newCalls(), stop: func() {}}
	if n.log == nil {
		n.log = slog.Default()
	}
	n.failures = loglimit.Once(n.log)
	n.client = outbound.Client(outbound.Options{AllowPrivate: n.config.AllowPrivate, Timeout: callTimeout, TLS: opts.TLS})
	if n.enabled() {
		ctx, stop := context.WithCancel(context.Background())
		n.stop = stop
		n.running.Go(func() { n.run(ctx) })
	}
	return n
}

// Close stops sending. What was not sent is sent after the next start.
func (n *Notifier) Close() {
	n.stop()
	n.running.Wait()
	n.failures.Flush()
	n.client.CloseIdleConnections()
}

func (n *Notifier) enabled() bool { return n.config.Subject != "" }

// PublicKey returns the key with which browsers subscribe, or "" if the server sends no
// notifications.
func (n *Notifier) PublicKey(ctx context.Context) (string, error) {
	if !n.enabled() {
		return "", nil
	}
	keys, err := n.pushKeys(ctx)
	return keys.Public, err
}

// pushKeys returns the key pair, which is made when it is needed for the first time.
func (n *Notifier) pushKeys(ctx context.Context) (loquat.PushKeys, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.keys.Public != "" {
		return n.keys, nil
	}
	keys, err := n.store.PushKeys(ctx, func() (k loquat.PushKeys, err error) {
		k.Private, k.Public, err = webpush.GenerateVAPIDKeys()
		return k, err
	})
	if err == nil {
		n.keys = keys
	}
	return keys, err
}

// Subscribe stores the subscription of a browser for a principal and returns its id. The same
// endpoint has the same id.
func (n *Notifier) Subscribe(ctx context.Context, who auth.Principal, in loquat.NewPushSubscription) (id string, err error) {
	if !n.enabled() {
		return "", loquat.Errorf(loquat.CodeNotFound, "this server sends no notifications; its configuration has no push.web.subject")
	}
	if err := checkKeys(in.Keys); err != nil {
		return "", err
	}
	if err := n.checkEndpoint(ctx, in.Endpoint); err != nil {
		return "", err
	}
	if _, err := n.pushKeys(ctx); err != nil { // the store's row of the keys has the last event, too
		return "", err
	}
	hash := sha256.Sum256([]byte(in.Endpoint))
	id = base64.RawURLEncoding.EncodeToString(hash[:])
	return id, n.store.AddPushSubscription(ctx, loquat.PushSubscription{
		ID: id, Owner: n.access.Owner(who), Endpoint: in.Endpoint, P256dh: in.Keys.P256dh, Auth: in.Keys.Auth,
	})
}

// Unsubscribe removes a subscription of a principal.
func (n *Notifier) Unsubscribe(ctx context.Context, who auth.Principal, id string) error {
	return n.store.RemovePushSubscription(ctx, n.access.Owner(who), id)
}

// authBytes is the length of the secret of a browser.
const authBytes = 16

// checkKeys checks the keys of a browser.
func checkKeys(keys loquat.PushEncryptionKeys) error {
	public, err := decodeKey(keys.P256dh)
	if err == nil {
		_, err = ecdh.P256().NewPublicKey(public)
	}
	if err != nil {
		return loquat.Invalid("body.keys.p256dh", "is not a public key of the curve P-256 in base64url; send what PushSubscription.toJSON returns")
	}
	if secret, err := decodeKey(keys.Auth); err != nil || len(secret) != authBytes {
		return loquat.Invalid("body.keys.auth", "does not have 16 bytes in base64url; send what PushSubscription.toJSON returns")
	}
	return nil
}

func decodeKey(s string) ([]byte, error) {
	return base64.RawURLEncoding.DecodeString(strings.TrimRight(s, "="))
}

// checkEndpoint checks that an endpoint is an https URL, and that its host has only addresses to
// which the server may connect.
func (n *Notifier) checkEndpoint(ctx context.Context, endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return loquat.Invalid("body.endpoint", "is not an https:// URL of a push service")
	}
	if n.config.AllowPrivate {
		return nil
	}
	if outbound.Check(ctx, u.Hostname()) != nil { // one text for both reasons: two would show a user which internal names exist
		return loquat.Invalid("body.endpoint", "names a host that cannot be looked up or has no public address; check the name. push.web.allow_private_addresses in the configuration allows push services with private addresses")
	}
	return nil
}
