package bridge

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"loquat"
	"loquat/internal/faultproxy"
	"loquat/internal/phx"
)

// remoteServer is a remote server. Its forwarder is started by forward.
type remoteServer struct {
	log   *memLog
	store string
	api   http.Handler
	door  *fakeAuth // of the tokens of users

	mu      sync.Mutex
	access  Access
	changed chan struct{}
}

func newRemoteServer() *remoteServer {
	return &remoteServer{log: newMemLog(), store: "store-1", api: http.NotFoundHandler(), changed: make(chan struct{}), door: newDoor(), access: Access{
		Codes:  []string{"ABCD"},
		Tokens: []Token{NewToken(sha256.Sum256([]byte("good")), Principal{}), NewToken(sha256.Sum256([]byte("of-one")), Principal{Sight: Sight{SessionID: "one"}})},
	}}
}

func (o *remoteServer) currentAccess() (Access, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.access, o.changed
}

func (o *remoteServer) allow(a Access) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.access = a
	close(o.changed)
	o.changed = make(chan struct{})
}

// forward starts a forwarder to the bridge at url.
func (o *remoteServer) forward(t *testing.T, url, token string) *Forwarder {
	return o.forwardAs(t, url, token, o.log, nil)
}

// forwardAs starts the forwarder of one of the server's nodes.
func (o *remoteServer) forwardAs(t *testing.T, url, token string, log Log, leads func() bool) *Forwarder {
	f := StartForwarder(ForwarderOptions{
		URL: "ws" + strings.TrimPrefix(url, "http"), ServerID: "home", Token: token, StoreID: o.store, Log: log,
		Relay: &Relay{Handler: o.api, Host: "home.example"}, Access: o.currentAccess, Authenticate: o.door.authenticate, Leads: leads, Logger: quiet,
	})
	t.Cleanup(f.Close)
	return f
}

func newBridge(t *testing.T, history History) (*Hub, string) {
	t.Helper()
	h := NewHub(Options{Tokens: map[string]string{"home": "server-token"}, History: history, Logger: quiet, Limits: phx.Limits{Upgrades: 1000, Joins: 1000}})
	return h, serveHub(t, h)
}

func TestForward(t *testing.T) {
	o := newRemoteServer()
	for i := range 5 {
		o.log.partial("one", fmt.Sprint(i))
	}
	_, url := newBridge(t, History{})
	f := o.forward(t, url, "server-token")
	p := call(t, url)
	got, reason := p.join(rigTopic, map[string]any{"token": "good", "since_id": "0000000000000003"})
	if got.Gap || reason != "" { // a new bridge starts at the newest event, and reads what is before
		t.Fatalf("%+v %q", got, reason)
	}
	if first := p.next(); first.eventID() != 5 || first.content() != "34" {
		t.Errorf("%s", first.payload)
	}
	o.log.add(loquat.Event{Type: loquat.SessionCreated, SessionID: "two"})
	if got := p.next(); got.eventID() != 6 || !strings.Contains(string(got.payload), `"session":{`) {
		t.Errorf("%s", got.payload)
	}
	bare, one := call(t, url), call(t, url)
	bare.join(rigTopic, map[string]any{"token": "good", "since_id": "0000000000000005", "session": "omit"})
	if got := bare.next(); got.eventID() != 6 || strings.Contains(string(got.payload), `"session":{`) {
		t.Errorf("%s", got.payload)
	}
	one.join(rigTopic, map[string]any{"token": "of-one", "since_id": "0000000000000005"})
	o.log.partial("one", "x")
	if got := one.next(); got.eventID() != 7 {
		t.Errorf("%s", got.payload)
	}
	if _, reason := call(t, url).join(rigTopic, map[string]any{"token": "server-token"}); reason != reasonUnauthorized {
		t.Errorf("a server's token: %q", reason)
	}
	until(t, "all is acknowledged", func() bool { return f.acknowledged() == 7 && f.Connected() })
	o.allow(Access{Tokens: []Token{NewToken(sha256.Sum256([]byte("good")), Principal{})}})
	one.gone()
}

func TestForwarderIsRefused(t *testing.T) {
	_, url := newBridge(t, History{})
	f := newRemoteServer().forward(t, url, "wrong")
	p := call(t, url)
	if _, err := p.client.Join(t.Context(), serverTopic+"home", serverParams{Token: "wrong", StoreID: "s"}); err == nil || err.Error() != "refused: unauthorized" {
		t.Errorf("%v", err)
	}
	if f.Connected() {
		t.Error("Connected() is true after a refused join")
	}
}

// Apps get a gap when the log was replaced, and when events that they missed are gone.
func TestGaps(t *testing.T) {
	t.Parallel() // it waits for a server that does not come
	o := newRemoteServer()
	o.log.partial("one", "a")
	_, url := newBridge(t, History{})
	f := o.forward(t, url, "server-token")
	p := call(t, url)
	p.join(rigTopic, map[string]any{"token": "good", "since_id": "0000000000000001"})
	f.Close()
	again := newRemoteServer() // another store under the same name
	again.store = "store-2"
	for range 3 {
		again.log.partial("one", "b")
	}
	f = again.forward(t, url, "server-token")
	if got := p.next(); got.event != eventGap || string(got.payload) != `{"latest_event_id":"0000000000000003"}` {
		t.Fatalf("%s %s", got.event, got.payload)
	}
	again.log.partial("one", "c")
	if got := p.next(); got.eventID() != 4 {
		t.Errorf("%s", got.payload)
	}
	if got, _ := call(t, url).join(rigTopic, map[string]any{"token": "good", "since_id": "0000000000000099"}); !got.Gap || got.LatestEventID != 4 {
		t.Errorf("above the newest: %+v", got)
	}
	f.Close()
	got, reason := call(t, url).join(rigTopic, map[string]any{"token": "good", "since_id": "0000000000000001"}) // before the bridge began, and the server is away
	if !got.Gap || reason != "" {
		t.Errorf("server disconnected: %+v %q", got, reason)
	}
	if got, _ := call(t, url).join(rigTopic, map[string]any{"token": "good", "since_id": "0000000000000003"}); got.Gap {
		t.Errorf("server disconnected, events in the tail: %+v", got)
	}
}

// Apps claim pairing codes and read paths of the server through the bridge.
func TestRelay(t *testing.T) {
	o := newRemoteServer()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /pairing/claim", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprintf(w, `{"got":%s}`, body)
	})
	big := strings.Repeat("x", 700<<10)
	mux.HandleFunc("GET /big", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprint(w, r.Header.Get("Authorization"), big)
	})
	o.api = mux
	_, url := newBridge(t, History{})
	f := o.forward(t, url, "server-token")
	p := call(t, url)
	p.join(rigTopic, map[string]any{"token": "good"})
	if _, body, reply := p.get("/big"); body != "Bearer good"+big || reply != `{"status":200,"content_type":"text/plain"}` {
		t.Errorf("%s with %d bytes", reply, len(body))
	}
	claim := func(body string) (int, string) {
		resp, err := http.Post(strings.TrimSuffix(url, "/bridge")+"/pairing/claim", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		defer http.DefaultClient.CloseIdleConnections()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	if status, body := claim(`{"code":"abcd-0123456789","device_name":"phone"}`); status != http.StatusAccepted || body != `{"got":{"code":"abcd-0123456789","device_name":"phone"}}` {
		t.Errorf("%d %s", status, body)
	}
	for body, want := range map[string]int{`{"code":"ZZZZ-0123456789"}`: 500, `nonsense`: 400, `{"code":"` + strings.Repeat("x", maxClaim) + `"}`: 413} {
		if status, answer := claim(body); status != want {
			t.Errorf("%.40s: %d %s", body, status, answer)
		}
	}
	f.Close()
	if status, _ := claim(`{"code":"abcd-0123456789","device_name":"phone"}`); status != http.StatusServiceUnavailable {
		t.Errorf("without its server: %d", status)
	}
	if _, _, reply := p.get("/big"); reply != `{"reason":"unavailable"}` {
		t.Error(reply)
	}
}

// A read of an app may be quiet for longer than other queries, as a long poll is.
func TestQuietRead(t *testing.T) {
	former := askWithin
	t.Cleanup(func() { askWithin = former })
	askWithin = 200 * time.Millisecond
	o := newRemoteServer()
	o.api = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(3 * askWithin):
		case <-r.Context().Done():
		}
		fmt.Fprint(w, "late")
	})
	_, url := newBridge(t, History{})
	o.forward(t, url, "server-token")
	p := call(t, url)
	p.join(rigTopic, map[string]any{"token": "good"})
	if status, body, reply := p.get("/events?wait=30"); status != phx.StatusOK || body != "late" {
		t.Errorf("%s %q %s", status, body, reply)
	}
}

// Invalid pushes of a server are refused. A repeated event is acknowledged and ignored.
func TestServerPushes(t *testing.T) {
	h, url := newBridge(t, History{})
	p := call(t, url)
	if _, err := p.client.Join(t.Context(), serverTopic+"home", serverParams{Token: "server-token", StoreID: "s"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ event, payload, status string }{
		{eventSession, `{"event":{"type":"partial","session_id":"s","event_id":"0000000000000002","more":1}}`, phx.StatusOK}, // in any order
		{eventSession, `{"event":{"event_id":"0000000000000002","type":"partial","session_id":"s"}}`, phx.StatusOK},          // again
		{eventSession, `{"event":{"event_id":"2","type":"partial","session_id":"s"}}`, phx.StatusError},
		{eventSession, `{"event":{"event_id":"0000000000000003","session_id":"s"}}`, phx.StatusError},
		{eventSession, `{"event":"x"}`, phx.StatusError},
		{eventSession, `[]`, phx.StatusError},
		{eventGap, `{"latest_event_id":3}`, phx.StatusError},
		{eventAccess, `{"tokens":1}`, phx.StatusError},
		{eventGetChunk, `{"id":"nobody's"}`, phx.StatusError},
		{"dance", `{}`, phx.StatusError},
	} {
		answered := make(chan phx.Reply, 1)
		if err := p.client.Push(serverTopic+"home", c.event, []byte(c.payload), func(r phx.Reply) { answered <- r }); err != nil {
			t.Fatal(err)
		}
		if r := <-answered; r.Status != c.status {
			t.Errorf("%s %s: %s %s", c.event, c.payload, r.Status, r.Response)
		}
	}
	testStatuses(t, p, url)
	r := h.remotes["home"]
	if window, _ := r.tail.window(0, 0); len(window) != 1 || string(window[0].AppendJSON(nil, nil)) != `{"event_id":"0000000000000002","type":"partial","session_id":"s","more":1}` {
		t.Errorf("the tail has %d events", len(window))
	}
}

// testStatuses checks that p, a server, cannot make the bridge answer a claim with an invalid status or with HTML.
func testStatuses(t *testing.T, p *phone, url string) {
	t.Helper()
	push := func(event, payload string) {
		replied := make(chan phx.Reply, 1)
		if err := p.client.Push(serverTopic+"home", event, []byte(payload), func(r phx.Reply) { replied <- r }); err != nil {
			t.Fatal(err)
		}
		<-replied
	}
	push(eventAccess, `{"codes":["ABCD"],"tokens":[]}`)
	defer http.DefaultClient.CloseIdleConnections()
	for done, want := range map[string]string{
		`"status":200,"content_type":"text/html"`: "200 application/json",
		`"status":422,"content_type":"text/html"`: "422 application/problem+json",
		`"content_type":"text/html"`:              "503 text/plain; charset=utf-8", // as the test's writeError writes it
		`"status":99`:                             "503 text/plain; charset=utf-8",
		`"status":101`:                            "503 text/plain; charset=utf-8",
		`"status":1000`:                           "503 text/plain; charset=utf-8",
	} {
		answered := make(chan string, 1)
		go func() {
			resp, err := http.Post(strings.TrimSuffix(url, "/bridge")+"/pairing/claim", "application/json", strings.NewReader(`{"code":"ABCD-0123456789"}`))
			if err != nil {
				answered <- err.Error()
				return
			}
			defer resp.Body.Close()
			answered <- fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("Content-Type"))
		}()
		var asked askParams
		if got := p.next(); got.event != eventClaim || json.Unmarshal(got.payload, &asked) != nil {
			t.Fatalf("%s %s", got.event, got.payload)
		}
		push(eventGetDone, fmt.Sprintf(`{"id":%q,%s}`, asked.ID, done))
		if got := <-answered; got != want {
			t.Errorf("%s: %s, want %s", done, got, want)
		}
	}
}

func TestRemoteTail(t *testing.T) {
	k := newTail(History{Events: 3, Bytes: 100})
	k.reset(10)
	rec := func(id loquat.EventID, size int) loquat.Record {
		return loquat.Record{ID: id, Type: loquat.Checkpoint, Body: make([]byte, size)}
	}
	for _, c := range []struct {
		id          loquat.EventID
		size, count int
		floor       loquat.EventID
	}{{11, 10, 1, 10}, {15, 10, 2, 10}, {16, 10, 3, 10}, {17, 10, 3, 11}, {18, 85, 2, 16}, {19, 500, 1, 18}} {
		k.add(rec(c.id, c.size))
		if len(k.records) != c.count || k.floor != c.floor || k.last != c.id {
			t.Errorf("after %d: %d records above %d", c.id, len(k.records), k.floor)
		}
	}
	if _, covered := k.window(17, 0); covered {
		t.Error("the tail still covers removed events")
	}
}

// The networks between server and bridge and between bridge and app fail often, and the
// bridge is replaced and keeps few events. The app receives each event once and in order.
func TestFaultyNetwork(t *testing.T) {
	t.Parallel()
	events, kills := 2000, 3
	if os.Getenv("LOQUAT_BRIDGE_ROUNDS") != "" {
		events, kills = 10_000, 20
	}
	o := newRemoteServer()
	door := newSwitch(t)
	lines := [2]*faultproxy.Proxy{}
	for i := range lines {
		p, err := faultproxy.Start(faultproxy.Options{Target: door.address, Seed: uint64(i), Cut: 0.7, Stall: 0.1, Split: 0.1, Within: 40 << 10, StallFor: 50 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		lines[i] = p
	}
	door.open(t)
	f := o.forward(t, "http://"+lines[0].Addr()+"/bridge", "server-token")
	until(t, "the server is connected", f.Connected)
	var want strings.Builder
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := range events {
			o.log.partial("one", fmt.Sprintf("%d,", i))
			time.Sleep(time.Millisecond)
		}
	})
	for i := range events {
		fmt.Fprintf(&want, "%d,", i)
	}
	writer.Go(func() {
		for range kills {
			time.Sleep(time.Duration(events/kills) * time.Millisecond)
			door.open(t)
		}
	})
	var received strings.Builder
	last, lives := loquat.EventID(0), 0
	deadline := time.Now().Add(2 * time.Minute)
	for ; last < loquat.EventID(events) && time.Now().Before(deadline); lives++ {
		last = followUntilCut(t, "ws://"+lines[1].Addr()+"/bridge", last, loquat.EventID(events), &received)
	}
	writer.Wait()
	if received.String() != want.String() {
		t.Errorf("the app has not received all events once and in order: %d bytes of %d", received.Len(), want.Len())
	}
	t.Logf("%d events over %d lives of an app, %d bridges, %d+%d cuts", events, lives, kills+1, lines[0].Stats().Cuts, lines[1].Stats().Cuts)
}

// followUntilCut follows until the connection is cut, and returns the app's cursor.
func followUntilCut(t *testing.T, url string, last, end loquat.EventID, received *strings.Builder) loquat.EventID {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	pushes := make(chan push, 1<<16)
	client, err := phx.Dial(ctx, url, phx.ClientOptions{FrameBytes: 64 << 20, OnPush: func(_, event string, payload json.RawMessage) { pushes <- push{event, payload} }})
	if err != nil {
		time.Sleep(5 * time.Millisecond)
		return last
	}
	defer client.Close()
	response, err := client.Join(ctx, rigTopic, map[string]any{"token": "good", "since_id": last.String()})
	if err != nil {
		return last
	}
	if strings.Contains(string(response), "gap") {
		t.Errorf("a gap after %s: %s", last, response)
	}
	for {
		select {
		case got := <-pushes:
			if got.event != eventSession || got.eventID() <= last {
				t.Errorf("at %s: %s %s", last, got.event, got.payload)
			}
			last = got.eventID()
			received.WriteString(got.content())
		case <-ctx.Done():
			return last
		default:
			if last >= end || client.Context().Err() != nil {
				return last
			}
			time.Sleep(100 * time.Microsecond)
		}
	}
}

// sharedAddress is an address at which one bridge replaces another.
type sharedAddress struct {
	address string
	mu      sync.RWMutex
	handler http.Handler
	hub     *Hub
}

func newSwitch(t *testing.T) *sharedAddress {
	d := &sharedAddress{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.mu.RLock()
		h := d.handler
		d.mu.RUnlock()
		h.ServeHTTP(w, r)
	}))
	d.address = server.Listener.Addr().String()
	t.Cleanup(func() {
		d.hub.Close()
		server.Close()
	})
	return d
}

// open replaces the bridge with a new one.
func (d *sharedAddress) open(t *testing.T) {
	next := NewHub(Options{
		Tokens: map[string]string{"home": "server-token"}, History: History{Events: 50}, Logger: quiet,
		Limits: phx.Limits{Upgrades: 10_000, Joins: 10_000, Sockets: 1000},
	})
	d.mu.Lock()
	former := d.hub
	d.hub, d.handler = next, next.Handler(writeError, http.NotFoundHandler())
	d.mu.Unlock()
	if former != nil {
		former.Close()
	}
}
