package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"go.uber.org/goleak"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/store"
	"loquat/internal/store/sqlite"
	"loquat/internal/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a store with a Sender.
type rig struct {
	*webhook.Sender
	t     *testing.T
	store *store.Store
}

func newRig(t *testing.T, cfg config.Webhooks) *rig {
	t.Helper()
	return newRigOn(t, cfg, func(db store.Driver) store.Driver { return db })
}

// newRigOn is newRig with a driver that the test wraps.
func newRigOn(t *testing.T, cfg config.Webhooks, front func(store.Driver) store.Driver) *rig {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	db, err := sqlite.Open(t.Context(), t.TempDir(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), front(db), store.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, store: s, Sender: webhook.Start(webhook.Options{Store: s, Config: cfg, Logger: quiet, CallTimeout: 300 * time.Millisecond})}
	t.Cleanup(func() {
		r.Close()
		s.Close()
	})
	return r
}

// session makes a session of a user with its events.
func (r *rig) session(id, user string) { r.sessions(user, id) }

// sessions makes sessions of a user in one transaction.
func (r *rig) sessions(user string, ids ...string) {
	r.t.Helper()
	err := r.store.Update(r.t.Context(), func(tx *store.Tx) error {
		for _, id := range ids {
			if err := addSession(tx, id, user); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

func addSession(tx *store.Tx, id, user string) error {
	h, err := tx.CreateSession(id, "default", nil)
	if err != nil {
		return err
	}
	if err := tx.SetUser(&h, user); err != nil {
		return err
	}
	if _, err := tx.Publish(loquat.Event{Type: loquat.SessionCreated}, &h, nil); err != nil {
		return err
	}
	return tx.Checkpoint(&h, nil, false)
}

// receiver notes what it is sent, and answers as the test says: the path value "session" is whose event it is.
type receiver struct {
	*httptest.Server
	answer func(w http.ResponseWriter, r *http.Request)

	mu   sync.Mutex
	got  []string // type and session
	head []http.Header
	body [][]byte
}

func newReceiver(t *testing.T, answer func(http.ResponseWriter, *http.Request)) *receiver {
	t.Helper()
	r := &receiver{answer: answer}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	var m struct {
		Type string
		Data struct {
			SessionID string `json:"session_id"`
		}
	}
	_ = json.Unmarshal(body, &m)
	r.mu.Lock()
	r.got, r.head, r.body = append(r.got, m.Type+" "+m.Data.SessionID), append(r.head, req.Header), append(r.body, body)
	r.mu.Unlock()
	req.SetPathValue("session", m.Data.SessionID)
	if r.answer != nil {
		r.answer(w, req)
	}
}

func (r *receiver) all() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.got, ", ")
}

// eventually waits until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 3000 {
		if ok() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("not within a minute: %s", what)
}

// A webhook that is disabled or gets another URL is that from the next event on, also for a session whose events are being
// sent.
func TestChangeWhileEventsAreSent(t *testing.T) {
	r := newRig(t, local)
	began, held := make(chan struct{}, 10), make(chan struct{})
	old := newReceiver(t, func(http.ResponseWriter, *http.Request) {
		began <- struct{}{}
		<-held
	})
	other := newReceiver(t, nil)
	w, err := r.Add(t.Context(), loquat.NewWebhook{URL: old.URL, Types: []string{string(loquat.SessionCreated), string(loquat.Checkpoint)}})
	if err != nil {
		t.Fatal(err)
	}
	r.session("s", "ann") // two events
	<-began
	if _, err := r.Change(t.Context(), w.WebhookID, loquat.WebhookPatch{URL: &other.URL}); err != nil {
		t.Fatal(err)
	}
	close(held)
	eventually(t, "the next event at the new URL", func() bool { return strings.Count(other.all(), "checkpoint s") == 1 })
	if got := old.all(); strings.Contains(got, "checkpoint") {
		t.Errorf("the old URL got %s", got)
	}
}

// Receivers that take a call and do not answer keep the events of others waiting for one call, and not
// until all of theirs are given up.
func TestReceiversThatHang(t *testing.T) {
	r := newRig(t, local)
	const hanging, sessions = 9, 40 // together they could use more lanes than there are
	var hung atomic.Int32
	dead := newReceiver(t, func(_ http.ResponseWriter, req *http.Request) {
		hung.Add(1)
		<-req.Context().Done()
	})
	healthy := newReceiver(t, nil)
	for range hanging {
		if _, err := r.Add(t.Context(), loquat.NewWebhook{URL: dead.URL, Types: []string{string(loquat.SessionCreated)}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Add(t.Context(), loquat.NewWebhook{URL: healthy.URL, Types: []string{string(loquat.SessionCreated)}}); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for i := range sessions {
		ids = append(ids, fmt.Sprint("s", i))
	}
	r.sessions("ann", ids...)
	eventually(t, "the healthy receiver has all", func() bool { return strings.Count(healthy.all(), "session_created") == sessions })
	const lanes = 64 // which those that hang took at first
	if n := hung.Load(); n > 2*lanes {
		t.Errorf("the healthy receiver had to wait for %d calls of those that hang", n)
	}
}

var local = config.Webhooks{AllowPrivate: true, RetryDelays: []time.Duration{10 * time.Millisecond, 10 * time.Millisecond}}

// A webhook is sent the events that it asked for, those after it was made.
func TestSelection(t *testing.T) {
	r := newRig(t, local)
	to := newReceiver(t, nil)
	r.session("before", "ann")
	add := func(in loquat.NewWebhook) loquat.Webhook {
		in.URL = to.URL
		w, err := r.Add(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	add(loquat.NewWebhook{Types: []string{"session_created"}, User: "ann"})
	r.session("a", "ann")
	r.session("b", "bob")
	eventually(t, "the event of ann", func() bool { return to.all() == "session_created a" })
	all := add(loquat.NewWebhook{})
	r.session("c", "carl")
	eventually(t, "the events of carl", func() bool { return to.all() == "session_created a, session_created c, checkpoint c" })
	if !strings.Contains(string(to.body[2]), `"user":"carl"`) || strings.Contains(string(to.body[2]), `"session":`) {
		t.Errorf("the checkpoint is %s", to.body[2])
	}
	off := true
	if _, err := r.Change(t.Context(), all.WebhookID, loquat.WebhookPatch{Disabled: &off}); err != nil {
		t.Fatal(err)
	}
	r.session("d", "dora")
	off = false
	if _, err := r.Change(t.Context(), all.WebhookID, loquat.WebhookPatch{Disabled: &off}); err != nil {
		t.Fatal(err)
	}
	r.session("e", "eve")
	eventually(t, "the events of eve", func() bool { return strings.HasSuffix(to.all(), "checkpoint c, session_created e, checkpoint e") })
}

// Both secrets sign for a while after one was replaced.
func TestSecrets(t *testing.T) {
	r := newRig(t, local)
	to := newReceiver(t, nil)
	old, err := r.Add(t.Context(), loquat.NewWebhook{URL: to.URL, Types: []string{"session_created"}})
	if err != nil {
		t.Fatal(err)
	}
	now, err := r.Change(t.Context(), old.WebhookID, loquat.WebhookPatch{NewSecret: true})
	if err != nil || now.Secret == old.Secret || now.Secret == "" {
		t.Fatalf("%+v %v", now, err)
	}
	r.session("s", "")
	eventually(t, "the event", func() bool { return to.all() != "" })
	for _, secret := range []string{old.Secret, now.Secret} {
		v, err := standardwebhooks.NewWebhook(secret)
		if err == nil {
			err = v.Verify(to.body[0], to.head[0])
		}
		if err != nil {
			t.Errorf("%s: %v", secret[:8], err)
		}
	}
	list, err := r.List(t.Context())
	if err != nil || len(list) != 1 || list[0].Secret != "" {
		t.Errorf("the list shows a secret: %+v %v", list, err)
	}
}

// A session whose event is refused waits, and others do not. What is given up can be sent again.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, local)
	var accepts atomic.Bool
	to := newReceiver(t, func(w http.ResponseWriter, req *http.Request) {
		if !accepts.Load() && req.PathValue("session") == "bad" {
			http.Error(w, "no <such> thing", http.StatusTeapot)
		}
	})
	w, err := r.Add(t.Context(), loquat.NewWebhook{URL: to.URL})
	if err != nil {
		t.Fatal(err)
	}
	r.session("bad", "")
	r.session("good", "")
	failed := func() []loquat.WebhookDelivery {
		list, err := r.Deliveries(t.Context(), w.WebhookID, true, 0, 10)
		if err != nil {
			t.Fatal(err)
		}
		return list.Deliveries
	}
	eventually(t, "two events are given up", func() bool { return len(failed()) == 2 })
	if got := to.all(); !strings.Contains(got, "checkpoint good") || strings.Count(got, "session_created bad") != 3 || strings.LastIndex(got, "session_created bad") > strings.Index(got, "checkpoint bad") {
		t.Errorf("arrived: %s", got)
	}
	if d := failed()[0]; d.Attempts != 3 || !d.Failed || !strings.Contains(d.Error, "418") || !strings.Contains(d.Error, "no <such> thing") {
		t.Errorf("%+v", d)
	}
	accepts.Store(true)
	first := failed()[0].EventID
	if err := r.Resend(t.Context(), w.WebhookID, first); err != nil {
		t.Fatal(err)
	}
	eventually(t, "one is left", func() bool { return len(failed()) == 1 })
	if err := r.Resend(t.Context(), w.WebhookID, first); loquat.CodeOf(err) != loquat.CodeNotFound {
		t.Errorf("again: %v", err)
	}
	if err := r.Resend(t.Context(), w.WebhookID, 0); err != nil {
		t.Fatal(err)
	}
	eventually(t, "none is left", func() bool {
		now, err := r.Get(t.Context(), w.WebhookID)
		return err == nil && now.Failed+now.Waiting == 0
	})
}

// Receivers that misbehave.
func TestBadReceivers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request)
		want   string
		calls  int
	}{
		"redirects": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }, "302", 3},
		"endless": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			for n := 0; n < 2<<30; n += 1 << 20 {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		}, "500", 3},
		"gone":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }, "410", 1},
		"hangs": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "did not answer within 300ms", 3},
		"hangs in its answer": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, "500", 3},
		"cuts": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF", 3},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, local)
			to := newReceiver(t, c.answer)
			w, err := r.Add(t.Context(), loquat.NewWebhook{URL: to.URL, Types: []string{"session_created"}})
			if err != nil {
				t.Fatal(err)
			}
			r.session("s", "")
			var d loquat.WebhookDelivery
			eventually(t, "it fails", func() bool {
				list, err := r.Deliveries(t.Context(), w.WebhookID, false, 0, 10)
				if err != nil || len(list.Deliveries) != 1 {
					return false
				}
				d = list.Deliveries[0]
				return d.Attempts == c.calls
			})
			time.Sleep(50 * time.Millisecond)
			if got := strings.Count(to.all(), "session_created"); got != c.calls || !strings.Contains(d.Error, c.want) {
				t.Errorf("%d calls, %+v", got, d)
			}
			if now, err := r.Get(t.Context(), w.WebhookID); err != nil || (now.Disabled != "") != (name == "gone") {
				t.Errorf("%+v %v", now, err)
			}
		})
	}
}

// publish adds an event to a session n times.
func (r *rig) publish(ctx context.Context, id string, n int, e loquat.Event) error {
	return r.store.Update(ctx, func(tx *store.Tx) error {
		h, err := tx.Head(id)
		for range n {
			if err == nil {
				_, err = tx.Publish(e, &h, nil)
			}
		}
		return err
	})
}

// A webhook whose receiver is away is disabled when too many events wait. Those that wait do not make it slower to add
// another: when each time all were counted, this took minutes.
func TestTooManyWait(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it stores 100,000 events")
	}
	r := newRig(t, config.Webhooks{AllowPrivate: true, RetryDelays: []time.Duration{time.Hour}})
	away := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	hook, err := r.Add(t.Context(), loquat.NewWebhook{URL: away.URL, Types: []string{"error"}})
	if err != nil {
		t.Fatal(err)
	}
	r.session("s", "")
	failure := loquat.Event{Type: loquat.ErrorEvent, Detail: "no answer"}
	for range store.MaxUndelivered / 1000 {
		if err := r.publish(t.Context(), "s", 1000, failure); err != nil {
			t.Fatal(err)
		}
	}
	waiting := func() loquat.Webhook {
		w, err := r.Get(t.Context(), hook.WebhookID)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	r.session("t", "") // which wakes the sender
	eventually(t, "all wait", func() bool { return waiting().Waiting == store.MaxUndelivered })
	if w := waiting(); w.Disabled != "" {
		t.Errorf("it is disabled too early: %+v", w)
	}
	if err := r.publish(t.Context(), "s", 1, failure); err != nil {
		t.Fatal(err)
	}
	r.session("u", "")
	eventually(t, "it is disabled", func() bool { return waiting().Disabled == loquat.WebhookBehind })
}

// insertDriver notes the most deliveries that a transaction inserts.
type insertDriver struct {
	store.Driver
	most atomic.Int64
}

func (d *insertDriver) Write(ctx context.Context, fn func(store.SQL) error) error {
	return d.Driver.Write(ctx, func(q store.SQL) error {
		counted := &insertSQL{SQL: q}
		err := fn(counted)
		d.most.Store(max(d.most.Load(), counted.n)) // one transaction at a time
		return err
	})
}

type insertSQL struct {
	store.SQL
	n int64
}

func (q *insertSQL) Exec(query string, args ...any) (int64, error) {
	if strings.Contains(query, "INTO webhook_deliveries") {
		q.n++
	}
	return q.SQL.Exec(query, args...)
}

// However many events come together for however many webhooks, a transaction makes few deliveries: on PostgreSQL it
// keeps the writers of all nodes waiting.
func TestDeliveriesOfATransaction(t *testing.T) {
	driver := &insertDriver{}
	r := newRigOn(t, local, func(db store.Driver) store.Driver {
		driver.Driver = db
		return driver
	})
	const webhooks, events = 5, 200
	to := newReceiver(t, nil)
	for range webhooks {
		if _, err := r.Add(t.Context(), loquat.NewWebhook{URL: to.URL, Types: []string{"error"}}); err != nil {
			t.Fatal(err)
		}
	}
	r.session("s", "")
	if err := r.publish(t.Context(), "s", events, loquat.Event{Type: loquat.ErrorEvent, Detail: "no answer"}); err != nil {
		t.Fatal(err)
	}
	r.session("t", "") // which wakes the sender
	eventually(t, "all are sent", func() bool { return strings.Count(to.all(), "error s") == webhooks*events })
	if n := driver.most.Load(); n == 0 || n >= 100 {
		t.Errorf("a transaction makes %d deliveries", n)
	}
}

// The next leader does not read again what no webhook wanted.
func TestLogThatNobodyWants(t *testing.T) {
	r := newRig(t, local)
	if _, err := r.Add(t.Context(), loquat.NewWebhook{URL: newReceiver(t, nil).URL, Types: []string{"session_deleted"}}); err != nil {
		t.Fatal(err)
	}
	r.session("s", "")
	for range 12 {
		if err := r.publish(t.Context(), "s", 1000, loquat.Event{Type: loquat.Partial, Message: &loquat.Delta{Role: loquat.RoleAssistant, Content: "x"}}); err != nil {
			t.Fatal(err)
		}
	}
	r.session("t", "") // which wakes the sender
	eventually(t, "it is noted that most was read", func() bool {
		read, err := store.Read(t.Context(), r.store, (*store.Reader).WebhooksRead)
		return err == nil && r.store.Last()-read < 10_000
	})
}

// Addresses of the operator's network are refused when the webhook is made, and at each connection.
func TestPrivateAddresses(t *testing.T) {
	strict := local
	strict.AllowPrivate = false
	r := newRig(t, strict)
	for _, url := range []string{"http://127.0.0.1/", "http://localhost/", "http://10.1.2.3/", "http://[::1]/", "http://169.254.169.254/latest", "http://[::ffff:10.0.0.1]/", "ftp://example.org/", "https://user@example.org/", "https://", "nothing"} {
		if _, err := r.Add(t.Context(), loquat.NewWebhook{URL: url}); loquat.CodeOf(err) != loquat.CodeInvalid {
			t.Errorf("%s: %v", url, err)
		}
	}
	_, err := r.Add(t.Context(), loquat.NewWebhook{URL: "https://nothing.invalid/"})
	if loquat.CodeOf(err) != loquat.CodeInvalid || !strings.Contains(err.Error(), "cannot be looked up") || strings.Contains(err.Error(), "allow_private_addresses") {
		t.Errorf("a host that cannot be looked up: %v", err)
	}
	// A name that was public when the webhook was made.
	calls := 0
	to := newReceiver(t, func(http.ResponseWriter, *http.Request) { calls++ })
	w := loquat.Webhook{WebhookID: "w", URL: "http://" + net.JoinHostPort("127.0.0.1", strings.Split(to.URL, ":")[2]), Types: []string{}, Key: "whsec_" + strings.Repeat("A", 44), CreatedAt: time.Now()}
	if err := r.store.Update(context.Background(), func(tx *store.Tx) error { return tx.AddWebhook(w) }); err != nil {
		t.Fatal(err)
	}
	r.Close() // the next one finds the webhook
	r.Sender = webhook.Start(webhook.Options{Store: r.store, Config: strict, Logger: slog.New(slog.DiscardHandler)})
	r.session("s", "")
	eventually(t, "it is refused", func() bool {
		list, err := r.Deliveries(t.Context(), "w", true, 0, 10)
		return err == nil && len(list.Deliveries) > 0 && strings.Contains(list.Deliveries[0].Error, "not public")
	})
	if calls != 0 {
		t.Errorf("%d calls", calls)
	}
}

// A look for due events reads those that wait once, also if all of a session are due but its first. Otherwise a receiver
// that is away would keep a processor busy.
func TestLookAtManyDueEvents(t *testing.T) {
	r := newRig(t, config.Webhooks{AllowPrivate: true, RetryDelays: []time.Duration{time.Hour}})
	away := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	hook, err := r.Add(t.Context(), loquat.NewWebhook{URL: away.URL, Types: []string{"error"}})
	if err != nil {
		t.Fatal(err)
	}
	const waiting = 20_000
	r.session("s", "")
	if err := r.publish(t.Context(), "s", waiting, loquat.Event{Type: loquat.ErrorEvent, Detail: "no answer"}); err != nil {
		t.Fatal(err)
	}
	r.session("t", "") // which wakes the sender
	eventually(t, "all wait", func() bool {
		w, err := r.Get(t.Context(), hook.WebhookID)
		return err == nil && w.Waiting == waiting
	})
	took := func(read func(*store.Reader) ([]loquat.WebhookDelivery, error)) time.Duration {
		began := time.Now()
		if _, err := store.Read(t.Context(), r.store, read); err != nil {
			t.Fatal(err)
		}
		return time.Since(began)
	}
	all := took(func(q *store.Reader) ([]loquat.WebhookDelivery, error) {
		return q.Deliveries(hook.WebhookID, false, 0, waiting)
	})
	due := took(func(q *store.Reader) ([]loquat.WebhookDelivery, error) {
		return q.DueDeliveries(hook.WebhookID, time.Now(), 1)
	})
	if due > 10*all {
		t.Errorf("it took %s; to read all took %s", due, all)
	}
}
