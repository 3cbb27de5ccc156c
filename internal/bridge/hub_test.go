package bridge

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"loquat"
	"loquat/internal/phx"
)

func TestJoin(t *testing.T) {
	r := newRig(t, phx.Limits{}, nil)
	for i := range 9 {
		r.log.partial("one", fmt.Sprint(i))
	}
	r.log.forget(3)
	for _, c := range []struct {
		name   string
		topic  string
		params map[string]any
		want   joined
		reason string
		first  loquat.EventID // the first missed event; 0 means none
	}{
		{"from now on", rigTopic, map[string]any{"token": "good"}, joined{LatestEventID: 9}, "", 0},
		{"null is from now on", rigTopic, map[string]any{"token": "good", "since_id": nil}, joined{LatestEventID: 9}, "", 0},
		{"from an event", rigTopic, map[string]any{"token": "good", "since_id": "0000000000000008"}, joined{LatestEventID: 9}, "", 9},
		{"what is compacted has the id of the last", rigTopic, map[string]any{"token": "good", "since_id": "0000000000000003"}, joined{LatestEventID: 9}, "", 9},
		{"from the newest", rigTopic, map[string]any{"token": "good", "since_id": "0000000000000009"}, joined{LatestEventID: 9}, "", 0},
		{"removed by age", rigTopic, map[string]any{"token": "good", "since_id": "0000000000000002"}, joined{true, 9}, "", 0},
		{"above the newest", rigTopic, map[string]any{"token": "good", "since_id": "0000000000000010"}, joined{true, 9}, "", 0},
		{"empty is from now on", rigTopic, map[string]any{"token": "good", "since_id": ""}, joined{LatestEventID: 9}, "", 0},
		{"from an event without its zeros", rigTopic, map[string]any{"token": "good", "since_id": "8"}, joined{LatestEventID: 9}, "", 9},
		{"from an event with more zeros", rigTopic, map[string]any{"token": "good", "since_id": "000000000000000000008"}, joined{LatestEventID: 9}, "", 9},
		{"from the beginning, which was removed", rigTopic, map[string]any{"token": "good", "since_id": "0"}, joined{true, 9}, "", 0},
		{"above what an id can be", rigTopic, map[string]any{"token": "good", "since_id": strings.Repeat("9", 40)}, joined{true, 9}, "", 0},
		{"no digits", rigTopic, map[string]any{"token": "good", "since_id": "9x"}, joined{}, "invalid", 0},
		{"a sign", rigTopic, map[string]any{"token": "good", "since_id": "-9"}, joined{}, "invalid", 0},
		{"a number as id", rigTopic, map[string]any{"token": "good", "since_id": 9}, joined{}, "invalid", 0},
		{"another session", rigTopic, map[string]any{"token": "good", "session": "keep"}, joined{}, "invalid", 0},
		{"a number as token", rigTopic, map[string]any{"token": 1}, joined{}, "invalid", 0},
		{"no token", rigTopic, nil, joined{}, "unauthorized", 0},
		{"a wrong token", rigTopic, map[string]any{"token": "wrong"}, joined{}, "unauthorized", 0},
		{"another server", appTopic + "work", map[string]any{"token": "good"}, joined{}, "unmatched topic", 0},
		{"as a server", serverTopic + "home", map[string]any{"token": "good"}, joined{}, "unmatched topic", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := call(t, r.url)
			got, reason := p.join(c.topic, c.params)
			if got != c.want || reason != c.reason {
				t.Fatalf("%+v %q, want %+v %q", got, reason, c.want, c.reason)
			}
			if c.first != 0 {
				if id := p.next().eventID(); id != c.first {
					t.Errorf("the first event is %s, want %s", id, c.first)
				}
			}
		})
	}
}

// An app receives the events that its token allows, in the form that it asked for.
func TestForms(t *testing.T) {
	r := newRig(t, phx.Limits{}, nil)
	all, bare, one := call(t, r.url), call(t, r.url), call(t, r.url)
	all.join(rigTopic, map[string]any{"token": "good"})
	bare.join(rigTopic, map[string]any{"token": "good", "session": "omit"})
	one.join(rigTopic, map[string]any{"token": "of-one"})
	carries := func(p push) bool { return strings.Contains(string(p.payload), `"session":{`) }
	r.log.add(loquat.Event{Type: loquat.SessionCreated, SessionID: "two"})
	r.log.add(loquat.Event{Type: loquat.SessionCreated, SessionID: "one"})
	for _, want := range []loquat.EventID{1, 2} {
		if got := all.next(); got.eventID() != want || !carries(got) || got.event != eventSession {
			t.Errorf("all: %s %s", got.event, got.payload)
		}
		if got := bare.next(); got.eventID() != want || carries(got) {
			t.Errorf("without sessions: %s", got.payload)
		}
	}
	if got := one.next(); got.eventID() != 2 || !carries(got) {
		t.Errorf("of one session: %s", got.payload)
	}
}

// When a token is revoked, its sockets are closed at once. Other sockets stay open.
func TestRevoked(t *testing.T) {
	r := newRig(t, phx.Limits{}, nil)
	lost, stays := call(t, r.url), call(t, r.url)
	lost.join(rigTopic, map[string]any{"token": "of-one"})
	stays.join(rigTopic, map[string]any{"token": "good"})
	r.door.revoke("of-one")
	lost.gone()
	r.log.partial("one", "x")
	stays.next()
}

// When retention removes events that a lagging app needs, the app gets a gap and continues.
func TestGapWhileBehind(t *testing.T) {
	r := newRig(t, phx.Limits{}, nil)
	release := r.log.holdBack()
	r.log.partial("one", "a")
	r.log.partial("one", "b")
	p := call(t, r.url)
	p.join(rigTopic, map[string]any{"token": "good", "since_id": "0000000000000001"})
	r.log.forget(2)
	release()
	if got := p.next(); got.event != eventGap || string(got.payload) != `{"latest_event_id":"0000000000000002"}` {
		t.Fatalf("%s %s", got.event, got.payload)
	}
	r.log.partial("one", "c")
	if got := p.next(); got.content() != "c" {
		t.Errorf("%s", got.payload)
	}
}

// Without apps nothing reads the log. An app that joins after that gets every event after its
// cursor once, also when the last app before it has left.
func TestNoAppsNoReads(t *testing.T) {
	r := newRig(t, phx.Limits{}, nil)
	r.log.partial("one", "a")
	r.log.partial("one", "b")
	time.Sleep(50 * time.Millisecond)
	r.log.mu.Lock()
	if r.log.reads > 0 {
		t.Errorf("the log was read %d times", r.log.reads)
	}
	r.log.mu.Unlock()
	for since, want := range map[string]string{"0000000000000001": "b", "0000000000000000": "ab"} {
		p := call(t, r.url)
		p.join(rigTopic, map[string]any{"token": "good", "since_id": since})
		var got strings.Builder
		for got.Len() < len(want) {
			got.WriteString(p.next().content())
		}
		if got.String() != want {
			t.Errorf("from %s on an app gets %q, want %q", since, got.String(), want)
		}
		p.client.Close()
	}
	p := call(t, r.url)
	p.join(rigTopic, map[string]any{"token": "good", "since_id": "0000000000000002"})
	r.log.partial("one", "c")
	if got := p.next(); got.content() != "c" {
		t.Errorf("%s", got.payload)
	}
}

// Many apps, some of them slow, connect and disconnect while the log grows. Each app
// receives every character once and in order, however its events were compacted.
func TestEveryAppReceivesEachEventOnce(t *testing.T) {
	const apps, events, cuts = 12, 3000, 4
	r := newRig(t, phx.Limits{QueueFrames: 16, Upgrades: 1000, Joins: 1000}, nil)
	var want strings.Builder
	for i := range events {
		fmt.Fprintf(&want, "%d,", i)
	}
	var all sync.WaitGroup
	for i := range apps {
		random := rand.New(rand.NewPCG(uint64(i), 1))
		all.Go(func() {
			var received strings.Builder
			last := loquat.EventID(0)
			for cut := 0; last < events; cut++ {
				p := call(t, r.url)
				if _, reason := p.join(rigTopic, map[string]any{"token": "good", "since_id": last.String()}); reason != "" {
					t.Errorf("app %d is refused: %s", i, reason)
					return
				}
				stop := loquat.EventID(events)
				if cut < cuts {
					stop = last + loquat.EventID(random.IntN(events/cuts))
				}
				for last < min(stop, events) {
					got := p.next()
					if got.event != eventSession || got.eventID() <= last {
						t.Errorf("app %d at %s: %s %s", i, last, got.event, got.payload)
						return
					}
					last = got.eventID()
					received.WriteString(got.content())
					if random.IntN(100) == 0 {
						time.Sleep(time.Millisecond)
					}
				}
				p.client.Close()
			}
			if received.String() != want.String() {
				t.Errorf("app %d has not received all events once and in order", i)
			}
		})
	}
	for i := range events {
		r.log.partial("one", fmt.Sprintf("%d,", i))
		if i%16 == 0 {
			time.Sleep(time.Millisecond) // a burst now and then
		}
	}
	all.Wait()
}

// An app that reads nothing does not delay other apps.
func TestStuckApp(t *testing.T) {
	r := newRig(t, phx.Limits{QueueFrames: 4}, nil)
	stuck, well := callWith(t, r.url, 0), call(t, r.url)
	stuck.join(rigTopic, map[string]any{"token": "good"})
	well.join(rigTopic, map[string]any{"token": "good"})
	text := strings.Repeat("x", 64<<10)
	for range 200 { // 12 MiB: more than the connection of the stuck one takes
		r.log.partial("one", text)
		time.Sleep(100 * time.Microsecond)
	}
	for well.next().eventID() < 200 {
	}
}

// largeLog is a log of small events of a session with 1 MiB.
type largeLog struct {
	*memLog
	encoded atomic.Int64
}

func (l *largeLog) AppendEvent(_ context.Context, dst []byte, rec loquat.Record, _ bool) ([]byte, error) {
	l.encoded.Add(1)
	return rec.AppendJSON(dst, loquat.Quote(strings.Repeat("x", 1<<20))), nil
}

// A burst of small events of a large session is not encoded as a whole before the first event is sent. All apps still
// get each event once.
func TestBurstOfLargeEvents(t *testing.T) {
	t.Parallel()
	const events, apps = 200, 2
	log, door := &largeLog{memLog: newMemLog()}, newDoor()
	url := serveHub(t, NewHub(Options{Local: &Server{ID: "home", Log: log, Authenticate: door.authenticate}, Logger: quiet}))
	var phones []*phone
	for range apps {
		p := callWith(t, url, 0)
		p.join(rigTopic, map[string]any{"token": "good"})
		phones = append(phones, p)
	}
	rec, err := loquat.Event{Type: loquat.SessionCreated, SessionID: "s"}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	log.mu.Lock()
	for i := range events - 1 {
		rec.ID = loquat.EventID(i + 1)
		log.records = append(log.records, rec)
	}
	log.mu.Unlock()
	log.append(rec) // wakes the broadcaster, which sees all events at once
	time.Sleep(time.Second)
	if n := log.encoded.Load(); n == 0 || n > 40 {
		t.Errorf("%d events were encoded before the apps read any", n)
	}
	var all sync.WaitGroup
	for _, p := range phones {
		all.Go(func() {
			for want := loquat.EventID(1); want <= events; want++ {
				if got := p.next(); !strings.HasPrefix(string(got.payload), `{"event":{"event_id":"`+want.String()) {
					t.Errorf("%.100s instead of %s", got.payload, want)
					return
				}
			}
		})
	}
	all.Wait()
}

func TestGet(t *testing.T) {
	text := strings.Repeat("é€😀", 100_000) // 900 KB, whose characters are cut by every part
	image := strings.Repeat("\x00\xff\x10", 200_000)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /text", func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, text)
	})
	mux.HandleFunc("GET /image", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "image/png")
		_, _ = io.WriteString(w, image)
	})
	mux.HandleFunc("GET /me", func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprint(w, q.Header.Get("Authorization"), " ", q.Host, " ", q.RemoteAddr != "", " ", q.URL.RawQuery)
	})
	r := newRig(t, phx.Limits{}, mux)
	p := call(t, r.url)
	p.join(rigTopic, map[string]any{"token": "good"})
	for _, c := range []struct{ path, body, reply string }{
		{"/text", text, `{"status":418,"content_type":"application/json; charset=utf-8"}`},
		{"/image", image, `{"status":200,"content_type":"image/png"}`},
		{"/me?a=b", "Bearer good home.example true a=b", `{"status":200,"content_type":"text/plain"}`},
		{"/events/stream", "", `{"reason":"invalid"}`},
		{"text", "", `{"reason":"invalid"}`},
		{"//elsewhere.example/text", "", `{"reason":"invalid"}`},
	} {
		if status, body, reply := p.get(c.path); body != c.body || reply != c.reply {
			t.Errorf("%s: %s %s with %d bytes, want %s with %d", c.path, status, reply, len(body), c.reply, len(c.body))
		}
	}
}

// get reads a path and joins the parts of the answer.
func (p *phone) get(path string) (status, body, reply string) {
	p.t.Helper()
	answered := make(chan phx.Reply, 1)
	payload, _ := json.Marshal(getParams{"g", path})
	if err := p.client.Push(rigTopic, eventGet, payload, func(r phx.Reply) { answered <- r }); err != nil {
		p.t.Fatal(err)
	}
	var r phx.Reply
	select {
	case r = <-answered:
	case <-time.After(20 * time.Second):
		p.t.Fatal("timeout: no reply")
	}
	for len(p.pushes) > 0 { // all parts came before the reply
		var part partParams
		got := <-p.pushes
		if err := json.Unmarshal(got.payload, &part); err != nil || part.ID != "g" || len(part.Data) > partBytes {
			p.t.Errorf("%s: a part of %d bytes for %q, %v", path, len(part.Data), part.ID, err)
		}
		data := []byte(part.Data)
		if part.Encoding != "" {
			data, _ = base64.StdEncoding.DecodeString(part.Data)
		}
		body += string(data)
	}
	return r.Status, body, string(r.Response)
}
