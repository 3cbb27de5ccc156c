package bridge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"loquat"
	"loquat/internal/phx"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

var quiet = slog.New(slog.DiscardHandler)

// memLog is a log in memory. Events up to gone were removed by age. Events between kept and
// kept+skipped were lost in a failover, and their ids are not used again.
type memLog struct {
	mu      sync.Mutex
	records []loquat.Record
	gone    loquat.EventID
	kept    loquat.EventID // meaningful if skipped is not 0
	skipped loquat.EventID
	changed chan struct{}
	hold    chan struct{}  // when set, reads of the past wait for it
	damaged loquat.EventID // an event that cannot be encoded
	reads   int            // calls of Window
}

func newMemLog() *memLog { return &memLog{changed: make(chan struct{})} }

// partial adds a partial of a session and returns its id.
func (l *memLog) partial(session, content string) loquat.EventID {
	return l.add(loquat.Event{Type: loquat.Partial, SessionID: session, RequestID: "r-" + session, Message: &loquat.Delta{Role: "assistant", Content: content}})
}

func (l *memLog) add(e loquat.Event) loquat.EventID {
	rec, err := e.Encode()
	if err != nil {
		panic(err)
	}
	if carriesSession(e.Type) {
		rec.Rev = 1
	}
	return l.append(rec)
}

func (l *memLog) append(rec loquat.Record) loquat.EventID {
	l.mu.Lock()
	defer l.mu.Unlock()
	rec.ID = l.latest() + 1
	l.records = append(l.records, rec)
	close(l.changed)
	l.changed = make(chan struct{})
	return rec.ID
}

// of adds a partial of a session of a user.
func (l *memLog) of(user, session, content string) loquat.EventID {
	rec, err := loquat.Event{Type: loquat.Partial, SessionID: session, RequestID: "r-" + session, Message: &loquat.Delta{Role: "assistant", Content: content}}.Encode()
	if err != nil {
		panic(err)
	}
	rec.User = user
	return l.append(rec)
}

// holdBack makes reads of past events wait until release is called.
func (l *memLog) holdBack() (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	hold := make(chan struct{})
	l.hold = hold
	return func() { close(hold) }
}

// lose loses the newest events, as a failover to a standby that lacks them does.
func (l *memLog) lose(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = l.records[:len(l.records)-n]
	l.kept, l.skipped = loquat.EventID(len(l.records)), 1000
	close(l.changed)
	l.changed = make(chan struct{})
}

// index returns how many records have ids up to id.
func (l *memLog) index(id loquat.EventID) loquat.EventID {
	if l.skipped != 0 && id >= l.kept {
		return max(l.kept, id-l.skipped)
	}
	return id
}

// forget removes everything up to an event.
func (l *memLog) forget(upTo loquat.EventID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = upTo
}

func (l *memLog) Latest() loquat.EventID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.latest()
}

func (l *memLog) latest() loquat.EventID { return loquat.EventID(len(l.records)) + l.skipped }

func (l *memLog) Check(_ context.Context, since loquat.EventID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.check(since)
}

func (l *memLog) check(since loquat.EventID) error {
	lost := l.skipped != 0 && since > l.kept && since < l.kept+l.skipped
	if since < l.gone || since > l.latest() || lost {
		return loquat.Errorf(loquat.CodeGone, "the events are gone")
	}
	return nil
}

func (l *memLog) Window(ctx context.Context, since, until loquat.EventID, _ string, wait time.Duration) ([]loquat.Record, error) {
	l.mu.Lock()
	hold := l.hold
	l.reads++
	l.mu.Unlock()
	if hold != nil && until != 0 {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	for {
		l.mu.Lock()
		err := l.check(since)
		var window []loquat.Record
		if err == nil {
			from, to := l.index(since), loquat.EventID(len(l.records))
			if until != 0 {
				to = min(to, l.index(until))
			}
			window = append(window, l.records[from:max(from, min(to, from+100))]...)
		}
		changed := l.changed
		l.mu.Unlock()
		if err != nil || len(window) > 0 || wait <= 0 {
			return window, err
		}
		select {
		case <-changed:
		case <-deadline.C:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (l *memLog) AppendEvent(_ context.Context, dst []byte, rec loquat.Record, omit bool) ([]byte, error) {
	l.mu.Lock()
	damaged := l.damaged
	l.mu.Unlock()
	if rec.ID == damaged {
		return dst, errors.New("its session cannot be read")
	}
	if rec.Rev == 0 || omit {
		return rec.AppendJSON(dst, nil), nil
	}
	return rec.AppendJSON(dst, fmt.Appendf(nil, `{"session_id":%q,"messages":[]}`, rec.SessionID)), nil
}

// fakeAuth authenticates a fixed set of tokens.
type fakeAuth struct {
	mu     sync.Mutex
	tokens map[string]Sight
	visits map[string][]context.CancelFunc

	expires time.Time
	away    int // so many calls more are answered unavailable
}

func newDoor() *fakeAuth {
	return &fakeAuth{tokens: map[string]Sight{"good": {}, "of-one": {SessionID: "one"}, "of-ann": {User: "ann"}}, visits: map[string][]context.CancelFunc{}}
}

func (d *fakeAuth) authenticate(_ context.Context, token string, _ netip.Addr) (Principal, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.away > 0 {
		d.away--
		return Principal{}, loquat.Errorf(loquat.CodeUnavailable, "not now")
	}
	sight, ok := d.tokens[token]
	if !ok {
		return Principal{}, loquat.Errorf(loquat.CodeUnauthorized, "no")
	}
	return Principal{Sight: sight, ExpiresAt: d.expires, During: func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		d.mu.Lock()
		defer d.mu.Unlock()
		if _, ok := d.tokens[token]; !ok { // revoked since authenticate
			cancel()
		}
		d.visits[token] = append(d.visits[token], cancel)
		return ctx, cancel
	}}, nil
}

// revoke revokes a token and ends the contexts of its principals.
func (d *fakeAuth) revoke(token string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.tokens, token)
	for _, end := range d.visits[token] {
		end()
	}
}

// rig is a test setup: a hub with a server in its process.
type rig struct {
	t    *testing.T
	log  *memLog
	door *fakeAuth
	hub  *Hub
	url  string // of the endpoint, http
}

const rigTopic = appTopic + "home"

func newRig(t *testing.T, limits phx.Limits, api http.Handler) *rig {
	t.Helper()
	r := &rig{t: t, log: newMemLog(), door: newDoor()}
	if api == nil {
		api = http.NotFoundHandler()
	}
	relay := &Relay{Handler: api, Host: "home.example"}
	r.hub = NewHub(Options{Local: &Server{ID: "home", Log: r.log, Authenticate: r.door.authenticate, Get: relay.Get}, Limits: limits, Logger: quiet})
	r.url = serveHub(t, r.hub)
	return r
}

// serveHub serves a hub until the end of the test, and returns the URL of its endpoint.
func serveHub(t *testing.T, h *Hub) string {
	t.Helper()
	server := httptest.NewServer(h.Handler(writeError, http.NotFoundHandler()))
	t.Cleanup(func() {
		h.Close()
		server.Close()
	})
	return server.URL + "/bridge"
}

func writeError(w http.ResponseWriter, err error) {
	if e, ok := errors.AsType[*loquat.Error](err); ok && e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(e.RetryAfter))
	}
	status := map[loquat.Code]int{
		loquat.CodeInvalid: 400, loquat.CodeForbidden: 403, loquat.CodeNotFound: 404, loquat.CodeTooLarge: 413, loquat.CodeRateLimited: 429, loquat.CodeUnavailable: 503,
	}[loquat.CodeOf(err)]
	http.Error(w, err.Error(), cmp.Or(status, 500))
}

// phone is an app that uses the Go client.
type phone struct {
	t      *testing.T
	client *phx.Client
	pushes chan push
}

type push struct {
	event   string
	payload json.RawMessage
}

func (p push) eventID() loquat.EventID {
	var body struct {
		Event struct {
			EventID loquat.EventID `json:"event_id"`
		} `json:"event"`
	}
	_ = json.Unmarshal(p.payload, &body)
	return body.Event.EventID
}

func (p push) content() string {
	var body struct {
		Event loquat.Event `json:"event"`
	}
	if json.Unmarshal(p.payload, &body) != nil || body.Event.Message == nil {
		return ""
	}
	return body.Event.Message.Content
}

// call connects a phone.
func call(t *testing.T, url string) *phone { return callWith(t, url, 1<<16) }

// callWith connects a phone that buffers at most so many unread pushes.
func callWith(t *testing.T, url string, ahead int) *phone {
	t.Helper()
	p := &phone{t: t, pushes: make(chan push, ahead)}
	over := make(chan struct{})
	client, err := phx.Dial(t.Context(), "ws"+strings.TrimPrefix(url, "http"), phx.ClientOptions{FrameBytes: 64 << 20, OnPush: func(_, event string, payload json.RawMessage) {
		select {
		case p.pushes <- push{event, payload}:
		case <-over:
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	p.client = client
	t.Cleanup(func() {
		close(over)
		client.Close()
	})
	return p
}

// join joins with parameters and returns the response, or why it was refused.
func (p *phone) join(topic string, params map[string]any) (joined, string) {
	p.t.Helper()
	response, err := p.client.Join(p.t.Context(), topic, params)
	if err != nil {
		refusal, ok := err.(*phx.Refusal)
		if !ok {
			p.t.Fatal(err)
		}
		return joined{}, refusal.Reason
	}
	var j joined
	if err := json.Unmarshal(response, &j); err != nil {
		p.t.Fatal(err)
	}
	return j, ""
}

// next returns the next push.
func (p *phone) next() push {
	p.t.Helper()
	select {
	case got := <-p.pushes:
		return got
	case <-p.client.Context().Done():
		p.t.Fatalf("the connection ended: %v", context.Cause(p.client.Context()))
	case <-time.After(20 * time.Second):
		p.t.Fatal("timeout: no push arrived")
	}
	return push{}
}

// gone waits for the end of the connection.
func (p *phone) gone() {
	p.t.Helper()
	select {
	case <-p.client.Context().Done():
	case <-time.After(20 * time.Second):
		p.t.Fatal("the socket is still open")
	}
}

// until waits until a condition holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timeout: %s", what)
		}
	}
}
