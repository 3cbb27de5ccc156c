//go:build unix

package webpush_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"loquat"
	"loquat/internal/auth"
	"loquat/internal/config"
	"loquat/internal/migrate/migratetest"
	"loquat/internal/store"
	"loquat/internal/store/postgres"
	"loquat/internal/store/postgres/pgtest"
	"loquat/internal/store/sqlite"
	"loquat/internal/webpush"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		pgtest.StopShared()
		os.Exit(code)
	}))
}

// node is a server without the API.
type node struct {
	t        *testing.T
	store    *store.Store
	keeper   *auth.Keeper
	notifier *webpush.Notifier
	service  *pushService
	logged   *bytes.Buffer
	config   config.Push
}

func newNode(t *testing.T, service *pushService, tokens ...auth.ConfigToken) *node {
	t.Helper()
	db, err := sqlite.Open(t.Context(), t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return nodeOn(t, service, db, tokens...)
}

func nodeOn(t *testing.T, service *pushService, db store.Driver, tokens ...auth.ConfigToken) *node {
	t.Helper()
	n := &node{t: t, service: service, logged: &bytes.Buffer{}, config: config.Push{Subject: "mailto:admin@example.org", AllowPrivate: true}}
	var err error
	if n.store, err = store.Open(t.Context(), db, store.Options{Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.store.Close() })
	if n.keeper, err = auth.Open(t.Context(), auth.Options{Store: n.store, Configured: auth.Configured{Tokens: tokens}, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	n.startNotifier()
	return n
}

// startNotifier starts the notifier, again if it was closed.
func (n *node) startNotifier() {
	n.t.Helper()
	notifier := webpush.Start(webpush.Options{Store: n.store, Access: n.keeper, Config: n.config, Logger: slog.New(slog.NewTextHandler(n.logged, nil)), TLS: n.service.tls()})
	n.t.Cleanup(notifier.Close)
	n.notifier = notifier
	key, err := notifier.PublicKey(n.t.Context())
	if err != nil || key == "" {
		n.t.Fatalf("the key is %q: %v", key, err)
	}
	n.service.mu.Lock()
	n.service.key = key
	n.service.mu.Unlock()
}

// token makes a token of a scope and returns its principal.
func (n *node) token(scope, session string) auth.Principal {
	n.t.Helper()
	return n.make(loquat.NewToken{Name: scope, Scope: scope, SessionID: session})
}

// make makes a token and returns its principal.
func (n *node) make(token loquat.NewToken) auth.Principal {
	n.t.Helper()
	_, secret, err := n.keeper.MakeToken(n.t.Context(), token)
	if err != nil {
		n.t.Fatal(err)
	}
	who, err := n.keeper.Authenticate(n.t.Context(), secret, netip.Addr{})
	if err != nil {
		n.t.Fatal(err)
	}
	return who
}

func (n *node) subscribe(who auth.Principal) (id string) {
	n.t.Helper()
	id, err := n.notifier.Subscribe(n.t.Context(), who, n.service.subscription())
	if err != nil {
		n.t.Fatal(err)
	}
	return id
}

// reply adds sessions whose request has completed.
func (n *node) reply(sessions ...string) {
	n.t.Helper()
	err := n.store.Update(n.t.Context(), func(tx *store.Tx) (err error) {
		for _, session := range sessions {
			err = cmp.Or(err, migratetest.AddSession(tx, session, 1, n.store.Owner()))
		}
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

// subscriptions returns the owners of all subscriptions.
func (n *node) subscriptions() (owners []string) {
	n.t.Helper()
	err := n.store.View(n.t.Context(), func(r *store.Reader) error {
		list, _, err := r.PushState()
		owners = nil
		for _, p := range list {
			owners = append(owners, p.Owner)
		}
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return owners
}

// awaitSubscriptions waits until a number of subscriptions is left.
func (n *node) awaitSubscriptions(want int) {
	n.t.Helper()
	for end := time.Now().Add(20 * time.Second); len(n.subscriptions()) != want; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			n.t.Fatalf("the subscriptions are those of %q, want %d", n.subscriptions(), want)
		}
	}
}

var nobody = auth.Principal{Kind: auth.Nobody, Scope: auth.Full}

func TestNotification(t *testing.T) {
	n := newNode(t, startPushService(t))
	n.subscribe(nobody)
	n.reply("first")
	got := n.service.await(1)[0]
	if want := (loquat.PushNotification{SessionID: "first", RequestID: "request-first-0", Status: loquat.StatusCompleted, Title: "About first"}); got.PushNotification != want {
		t.Errorf("the notification is %+v, want %+v", got.PushNotification, want)
	}
	n.reply("second")
	if second := n.service.await(2)[1]; second.SessionID != "second" || second.topic == got.topic {
		t.Errorf("the notification of another session is %+v after %+v", second, got)
	}
	n.end("first", "again", loquat.StatusFailed)
	if again := n.service.await(3)[2]; again.topic != got.topic || again.Status != loquat.StatusFailed {
		t.Errorf("the second notification of a session is %+v after %+v", again, got)
	}
}

// end adds a request to a session and ends it with a status.
func (n *node) end(session, request string, status loquat.RequestStatus) {
	n.t.Helper()
	err := n.store.Update(n.t.Context(), func(tx *store.Tx) error {
		h, err := tx.Head(session)
		if err != nil {
			return err
		}
		q := store.Request{Request: loquat.Request{RequestID: request}, Send: []byte("{}"), Answer: []byte("{}")}
		if err := tx.AddRunning(&h, &q, n.store.Owner()); err != nil {
			return err
		}
		if _, err := tx.Publish(loquat.Event{Type: loquat.RequestCompleted}, &h, &q); err != nil {
			return err
		}
		return tx.EndRequest(&q, status, "")
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

func TestNothingIsSentOfACancelledRequest(t *testing.T) {
	n := newNode(t, startPushService(t))
	n.reply("before") // nobody has subscribed yet
	n.subscribe(nobody)
	n.end("before", "cancelled", loquat.StatusCancelled)
	n.reply("after")
	if got := n.service.await(1)[0]; got.SessionID != "after" {
		t.Errorf("the first notification is %+v", got)
	}
}

func TestScopes(t *testing.T) {
	n := newNode(t, startPushService(t))
	n.subscribe(n.token(auth.Session, "mine"))
	n.subscribe(n.token(auth.Read, ""))
	n.reply("theirs")
	n.service.await(1)
	n.reply("mine")
	var one []string
	for _, got := range n.service.await(3) {
		if got.browser == 0 {
			one = append(one, got.SessionID)
		}
	}
	if strings.Join(one, " ") != "mine" {
		t.Errorf("a token of one session got notifications of %q", one)
	}
}

func TestUsers(t *testing.T) {
	n := newNode(t, startPushService(t))
	n.subscribe(n.make(loquat.NewToken{Name: "ann", Scope: auth.User, User: "ann"}))
	n.subscribe(n.token(auth.Read, ""))
	for _, user := range []string{"bob", "", "ann"} {
		err := n.store.Update(t.Context(), func(tx *store.Tx) error {
			if err := migratetest.AddSession(tx, "of-"+user, 1, n.store.Owner()); err != nil {
				return err
			}
			h, err := tx.Head("of-" + user)
			if err != nil {
				return err
			}
			return tx.SetUser(&h, user)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var heard []string
	for _, got := range n.service.await(4) {
		if got.browser == 0 {
			heard = append(heard, got.SessionID)
		}
	}
	if strings.Join(heard, " ") != "of-ann" {
		t.Errorf("a user got notifications of %q", heard)
	}
}

// A subscription ends with its token or browser session, and when the push service says so.
func TestEndOfSubscriptions(t *testing.T) {
	for _, status := range []int{http.StatusGone, http.StatusNotFound} {
		n := newNode(t, startPushService(t))
		n.service.setAnswer(func(browser, _ int) (int, http.Header) {
			if browser == 0 {
				return status, nil
			}
			return http.StatusCreated, nil
		})
		n.subscribe(nobody)
		n.subscribe(nobody)
		n.reply("s")
		n.awaitSubscriptions(1)
		n.service.await(1)
		if calls := n.service.callsOf(0); calls != 1 {
			t.Errorf("a push service that answers %d is called %d times", status, calls)
		}
	}
}

// A push service that does not answer leaves calls to the others.
func TestPushServiceThatHangs(t *testing.T) {
	webpush.GiveUpFast(t)
	n := newNode(t, startPushService(t))
	const mostCalls = 8
	var calls atomic.Int32
	held := make(chan struct{})
	dead := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		calls.Add(1)
		<-held
	}))
	dead.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer dead.Close()
	defer close(held)
	defer n.notifier.Close()
	hanging := n.service.subscription()
	hanging.Endpoint = dead.URL
	if _, err := n.notifier.Subscribe(t.Context(), nobody, hanging); err != nil {
		t.Fatal(err)
	}
	for i := range 3 * mostCalls {
		n.reply(fmt.Sprint("s", i))
	}
	for end := time.Now().Add(20 * time.Second); calls.Load() < mostCalls; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d calls", calls.Load())
		}
	}
	n.subscribe(nobody)
	n.reply("last")
	if got := n.service.await(1)[0]; got.SessionID != "last" {
		t.Errorf("the notification is %+v", got)
	}
	if calls.Load() != mostCalls {
		t.Errorf("the push service that hangs has %d calls, want %d", calls.Load(), mostCalls)
	}
	var many []string // more than may be pending in all
	for i := range 1100 {
		many = append(many, fmt.Sprint("many", i))
	}
	n.reply(many...)
	if got := n.service.await(1 + len(many)); len(got) != 1+len(many) {
		t.Errorf("%d notifications", len(got))
	}
}

func TestRevokedToken(t *testing.T) {
	webpush.RetryFast(t)
	service := startPushService(t)
	n := newNode(t, service, auth.ConfigToken{Name: "c", Token: "of the configuration", Scope: auth.Full})
	who := func(secret string) auth.Principal {
		p, err := n.keeper.Authenticate(t.Context(), secret, netip.Addr{})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	token := n.token(auth.Full, "")
	signedIn, err := n.keeper.SignIn(t.Context(), "of the configuration", netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}
	n.subscribe(token)
	n.subscribe(signedIn.Principal)
	n.subscribe(who("of the configuration"))
	if err := n.keeper.SignOut(t.Context(), signedIn.Cookie); err != nil {
		t.Fatal(err)
	}
	n.awaitSubscriptions(2)

	// A token that is revoked between two attempts gets nothing any more.
	failed, revoked := make(chan struct{}), make(chan struct{})
	service.setAnswer(func(browser, call int) (int, http.Header) {
		if browser == 0 {
			if call > 0 {
				t.Error("a notification was sent for a token that was revoked")
			}
			close(failed)
			<-revoked
			return http.StatusServiceUnavailable, nil
		}
		return http.StatusCreated, nil
	})
	n.reply("s")
	<-failed
	if err := n.keeper.RevokeToken(t.Context(), token.ID); err != nil {
		t.Fatal(err)
	}
	close(revoked)
	n.awaitSubscriptions(1)
	service.await(1)

	// The configuration does not have the token any more.
	n.notifier.Close()
	if n.keeper, err = auth.Open(t.Context(), auth.Options{Store: n.store, Configured: auth.Configured{Tokens: []auth.ConfigToken{{Name: "o", Token: "other", Scope: auth.Full}}}, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	n.startNotifier()
	n.reply("t")
	n.awaitSubscriptions(0)
	service.await(1)
}

func TestRetries(t *testing.T) {
	webpush.RetryFast(t)
	for name, c := range map[string]struct {
		status int
		header http.Header
		calls  int
		after  time.Duration
	}{
		"429 with a time to wait":      {http.StatusTooManyRequests, http.Header{"Retry-After": {"1"}}, 2, time.Second},
		"503":                          {http.StatusServiceUnavailable, nil, 2, 0},
		"400":                          {http.StatusBadRequest, nil, 1, 0},
		"429 with a much longer time":  {http.StatusTooManyRequests, http.Header{"Retry-After": {"86400"}}, 1, 0},
		"a redirect is not followed":   {http.StatusTemporaryRedirect, http.Header{"Location": {"/capability/0"}}, 1, 0},
		"503 with a time in bad shape": {http.StatusServiceUnavailable, http.Header{"Retry-After": {"soon"}}, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, startPushService(t))
			n.service.setAnswer(func(_, call int) (int, http.Header) {
				if call == 0 {
					return c.status, c.header
				}
				return http.StatusCreated, nil
			})
			n.subscribe(nobody)
			began := time.Now()
			n.reply("s")
			if c.calls == 2 {
				if got := n.service.await(1)[0]; got.at.Sub(began) < c.after {
					t.Errorf("sent again after %v, not %v", got.at.Sub(began), c.after)
				}
			}
			n.service.awaitCall(0) // the other notification may be sent at the same time
			n.reply("other")
			got := n.service.await(c.calls)
			if calls := n.service.callsOf(0); got[len(got)-1].SessionID != "other" || calls != c.calls+1 {
				t.Errorf("%d calls, want %d; %+v", calls, c.calls+1, got)
			}
			n.notifier.Close()
			if logged := n.logged.String(); (c.calls == 1) != strings.Contains(logged, "does not accept") || strings.Contains(logged, "capability") {
				t.Errorf("logged is %q", logged)
			}
		})
	}
}

func TestAttemptsAreBounded(t *testing.T) {
	webpush.RetryFast(t)
	n := newNode(t, startPushService(t))
	n.service.setAnswer(func(browser, _ int) (int, http.Header) { return http.StatusInternalServerError, nil })
	n.subscribe(nobody)
	n.reply("s")
	for end := time.Now().Add(20 * time.Second); n.service.callsOf(0) < 5 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(200 * time.Millisecond)
	if calls := n.service.callsOf(0); calls != 5 {
		t.Errorf("a push service that fails is called %d times", calls)
	}
	n.awaitSubscriptions(1)
}

// What was not sent when the process ended is sent by the next one, and nothing else.
func TestRestart(t *testing.T) {
	n := newNode(t, startPushService(t))
	hang := make(chan struct{})
	n.service.setAnswer(func(_, call int) (int, http.Header) {
		if call == 1 {
			<-hang
			return http.StatusServiceUnavailable, nil
		}
		return http.StatusCreated, nil
	})
	n.subscribe(nobody)
	n.reply("sent")
	n.service.await(1)
	n.reply("lost")
	for n.service.callsOf(0) < 2 {
		time.Sleep(time.Millisecond)
	}
	n.notifier.Close()
	close(hang)
	n.reply("while nothing runs")
	n.startNotifier()
	var sessions []string
	for _, got := range n.service.await(3) {
		sessions = append(sessions, got.SessionID)
	}
	if !strings.Contains(strings.Join(sessions, ","), "lost") || sessions[0] != "sent" {
		t.Errorf("notified of %q", sessions)
	}
	n.awaitSent()
	n.notifier.Close()
	n.startNotifier()
	n.reply("last")
	if got := n.service.await(4)[3]; got.SessionID != "last" {
		t.Errorf("a notification was sent again: %+v", got)
	}
}

// awaitSent waits until the store has the last event as sent.
func (n *node) awaitSent() {
	n.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		var sent loquat.EventID
		err := n.store.View(n.t.Context(), func(r *store.Reader) (err error) {
			_, sent, err = r.PushState()
			return err
		})
		if err == nil && sent == n.store.Last() {
			return
		}
		if time.Now().After(end) {
			n.t.Fatalf("sent up to %s of %s: %v", sent, n.store.Last(), err)
		}
	}
}

func TestPrivateAddresses(t *testing.T) {
	n := newNode(t, startPushService(t))
	n.notifier.Close()
	n.config.AllowPrivate = false
	n.startNotifier()
	in := n.service.subscription()
	said := map[string]bool{}
	for _, endpoint := range []string{"https://nothing.invalid/x", "https://10.0.0.1/x"} { // which hosts exist is not said
		try := in
		try.Endpoint = endpoint
		_, err := n.notifier.Subscribe(t.Context(), nobody, try)
		said[fmt.Sprint(err)] = true
	}
	if text := fmt.Sprint(said); len(said) != 1 || !strings.Contains(text, "cannot be looked up") {
		t.Errorf("a host that cannot be looked up, and a private one: %s", text)
	}
	for _, endpoint := range []string{
		in.Endpoint, "https://localhost/x", "https://10.0.0.1/x", "https://192.168.1.1:8443/x", "https://169.254.169.254/latest", "https://[::1]/x",
		"https://[fe80::1]/x", "https://[::ffff:127.0.0.1]/x", "https://0.0.0.0/x", "https://user@8.8.8.8/x", "http://8.8.8.8/x", "https:///x", "8.8.8.8",
	} {
		try := in
		try.Endpoint = endpoint
		if _, err := n.notifier.Subscribe(t.Context(), nobody, try); loquat.CodeOf(err) != loquat.CodeInvalid {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
	// A name may have another address later.
	if err := n.store.AddPushSubscription(t.Context(), loquat.PushSubscription{ID: "a", Endpoint: in.Endpoint, P256dh: in.Keys.P256dh, Auth: in.Keys.Auth}); err != nil {
		t.Fatal(err)
	}
	n.reply("s")
	n.awaitSent()
	n.notifier.Close()
	if calls := n.service.callsOf(0); calls != 0 || !strings.Contains(n.logged.String(), "not public") {
		t.Errorf("%d calls of a private address; logged is %s", calls, n.logged)
	}
}

func TestInvalidKeys(t *testing.T) {
	n := newNode(t, startPushService(t))
	for name, change := range map[string]func(*loquat.NewPushSubscription){
		"not base64":       func(in *loquat.NewPushSubscription) { in.Keys.P256dh = "***" },
		"not on the curve": func(in *loquat.NewPushSubscription) { in.Keys.P256dh = "BA" + strings.Repeat("A", 85) },
		"short secret":     func(in *loquat.NewPushSubscription) { in.Keys.Auth = "AAAA" },
	} {
		in := n.service.subscription()
		change(&in)
		if _, err := n.notifier.Subscribe(t.Context(), nobody, in); loquat.CodeOf(err) != loquat.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSubscriptionsAreBounded(t *testing.T) {
	n := newNode(t, startPushService(t))
	who, other := n.token(auth.Full, ""), n.token(auth.Full, "")
	n.subscribe(other)
	var ids []string
	for range 12 {
		ids = append(ids, n.subscribe(who))
		time.Sleep(2 * time.Millisecond) // the oldest is to be known
	}
	if got := n.subscriptions(); len(got) != 11 {
		t.Errorf("%d subscriptions", len(got))
	}
	if err := n.notifier.Unsubscribe(t.Context(), who, ids[0]); loquat.CodeOf(err) != loquat.CodeNotFound {
		t.Errorf("the oldest: %v", err)
	}
	if err := n.notifier.Unsubscribe(t.Context(), other, ids[11]); loquat.CodeOf(err) != loquat.CodeNotFound {
		t.Errorf("that of another token: %v", err)
	}
	if err := n.notifier.Unsubscribe(t.Context(), who, ids[11]); err != nil {
		t.Error(err)
	}
	if again := n.subscribe(who); len(n.subscriptions()) != 11 || again == ids[11] {
		t.Errorf("subscribed again as %s: %q", again, n.subscriptions())
	}
}

func TestServerWithoutSubject(t *testing.T) {
	n := newNode(t, startPushService(t))
	n.notifier.Close()
	off := webpush.Start(webpush.Options{Store: n.store, Access: n.keeper, Logger: slog.New(slog.DiscardHandler)})
	defer off.Close()
	if key, err := off.PublicKey(t.Context()); key != "" || err != nil {
		t.Errorf("the key is %q: %v", key, err)
	}
	if _, err := off.Subscribe(t.Context(), nobody, n.service.subscription()); loquat.CodeOf(err) != loquat.CodeNotFound {
		t.Errorf("subscribe: %v", err)
	}
}

// Of several nodes one sends. When it is gone, another one continues.
func TestNodes(t *testing.T) {
	_, url := pgtest.Shared(t).Database(t)
	service := startPushService(t)
	open := func() *node {
		db, err := postgres.Open(t.Context(), postgres.Options{URL: url, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return nodeOn(t, service, db)
	}
	a := open()
	key := service.key
	b := open()
	if service.key != key {
		t.Errorf("the nodes have the keys %s and %s", key, service.key)
	}
	b.subscribe(nobody)
	var all sync.WaitGroup
	for _, n := range []*node{a, b} {
		all.Go(func() {
			for _, s := range []string{"1", "2", "3", "4", "5"} {
				n.reply(n.store.Owner() + s)
			}
		})
	}
	all.Wait()
	service.await(10)
	b.awaitSent()
	a.notifier.Close()
	if err := a.store.Close(); err != nil {
		t.Fatal(err)
	}
	b.reply("afterwards")
	if got := service.await(11)[10]; got.SessionID != "afterwards" {
		t.Errorf("the last notification is %+v", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	<-ctx.Done()
	service.await(11) // no node sends again
}
