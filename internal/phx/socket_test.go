package phx

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo is a topic that refuses joins with the payload "no". It pushes hello after a join, and
// replies to each push with its payload.
type echo struct {
	mu      sync.Mutex
	members []*Member
	left    int
}

type echoChannel struct {
	e *echo
	m *Member
}

func (e *echo) Join(_ context.Context, m *Member, payload json.RawMessage) (Channel, any, error) {
	if string(payload) == `"no"` {
		return nil, nil, &Refusal{"no"}
	}
	return &echoChannel{e, m}, map[string]int{"n": 1}, nil
}

func (c *echoChannel) Joined() {
	c.m.Offer(NewPush(c.m.Topic(), "hello", []byte(`{}`)))
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	c.e.members = append(c.e.members, c.m)
}

func (c *echoChannel) Handle(ctx context.Context, in Incoming) {
	if in.Event == "silence" {
		return
	}
	_ = in.Reply(ctx, StatusOK, in.Payload)
}

func (c *echoChannel) Left() {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	c.e.left++
}

func (e *echo) counts() (joined, left int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.members), e.left
}

// rig is a server with an endpoint and the topics "room" and "room:…".
type rig struct {
	t        *testing.T
	topic    *echo
	endpoint *Endpoint
	url      string
}

func newRig(t *testing.T, limits Limits) *rig {
	t.Helper()
	r := &rig{t: t, topic: &echo{}}
	r.endpoint = NewEndpoint(func(name string) Topic {
		if strings.HasPrefix(name, "room") {
			return r.topic
		}
		return nil
	}, limits, slog.New(slog.DiscardHandler))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		from := netip.MustParseAddrPort(q.RemoteAddr).Addr()
		if status, detail := r.endpoint.Admit(q, from); status != 0 {
			http.Error(w, detail, status)
			return
		}
		r.endpoint.Serve(w, q, from)
	}))
	r.url = "ws" + strings.TrimPrefix(server.URL, "http")
	t.Cleanup(func() {
		r.endpoint.Close()
		server.Close()
	})
	return r
}

func (r *rig) dial(vsn string) *websocket.Conn {
	r.t.Helper()
	ws, _, err := websocket.Dial(r.t.Context(), r.url+"/websocket?vsn="+vsn, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = ws.CloseNow() })
	return ws
}

// scripts are conversations in both serializers: frames from the client (>), frames from the
// server (<) and the code with which the server closes the socket (!).
var scripts = map[string]string{
	"join, push and leave": `2.0.0
		> [null,"1","phoenix","heartbeat",{}]
		< [null,"1","phoenix","phx_reply",{"status":"ok","response":{}}]
		> ["2","2","room","phx_join",{}]
		< ["2","2","room","phx_reply",{"status":"ok","response":{"n":1}}]
		< ["2",null,"room","hello",{}]
		> ["2","3","room","say",{"a":1}]
		< ["2","3","room","phx_reply",{"status":"ok","response":{"a":1}}]
		> ["2","4","room","phx_leave",{}]
		< ["2","4","room","phx_reply",{"status":"ok","response":{}}]
		< ["2","2","room","phx_close",{}]
		> ["2","5","room","say",{}]
		< ["2","5","room","phx_reply",{"status":"error","response":{"reason":"unmatched topic"}}]
		> ["2","6","room","phx_leave",{}]
		< ["2","6","room","phx_reply",{"status":"ok","response":{}}]`,
	"join and leave with serializer 1.0.0": `1.0.0
		> {"topic":"phoenix","event":"heartbeat","payload":{},"ref":"1"}
		< {"topic":"phoenix","event":"phx_reply","ref":"1","payload":{"status":"ok","response":{}}}
		> {"topic":"room","event":"phx_join","payload":{},"ref":"2"}
		< {"topic":"room","event":"phx_reply","ref":"2","payload":{"status":"ok","response":{"n":1}}}
		< {"topic":"room","event":"hello","ref":null,"payload":{}}
		> {"topic":"room","event":"phx_leave","payload":{},"ref":"3"}
		< {"topic":"room","event":"phx_reply","ref":"3","payload":{"status":"ok","response":{}}}
		> {"topic":"room","event":"phx_join","payload":{},"ref":"4"}
		< {"topic":"room","event":"phx_reply","ref":"4","payload":{"status":"ok","response":{"n":1}}}`,
	"refused join and unknown topics": `2.0.0
		> ["1","1","room","phx_join","no"]
		< ["1","1","room","phx_reply",{"status":"error","response":{"reason":"no"}}]
		> ["2","2","other","phx_join",{}]
		< ["2","2","other","phx_reply",{"status":"error","response":{"reason":"unmatched topic"}}]
		> [null,"3","phoenix","dance",{}]
		< [null,"3","phoenix","phx_reply",{"status":"error","response":{"reason":"unmatched topic"}}]`,
	"push without a join": `2.0.0
		> ["1","1","room","say",{}]
		< ["1","1","room","phx_reply",{"status":"error","response":{"reason":"unmatched topic"}}]`,
	"a second join ends the first": `2.0.0
		> ["1","1","room","phx_join",{}]
		< ["1","1","room","phx_reply",{"status":"ok","response":{"n":1}}]
		< ["1",null,"room","hello",{}]
		> ["2","2","room","phx_join",{}]
		< ["1","1","room","phx_close",{}]
		< ["2","2","room","phx_reply",{"status":"ok","response":{"n":1}}]
		< ["2",null,"room","hello",{}]
		> ["1","3","room","say",{"stale":true}]
		> ["1","4","room","phx_leave",{}]
		> ["2","5","room","say",{"stale":false}]
		< ["2","5","room","phx_reply",{"status":"ok","response":{"stale":false}}]`,
	"not JSON":                   "2.0.0\n> nonsense\n! 1007",
	"an object where arrays are": "2.0.0\n> {}\n! 1007",
	"an array where objects are": "1.0.0\n> [null,\"1\",\"phoenix\",\"heartbeat\",{}]\n! 1007",
	"a frame that is too large":  "2.0.0\n> [null,\"1\",\"phoenix\",\"heartbeat\",\"" + strings.Repeat("x", 64<<10) + "\"]\n! 1009",
	"more topics than allowed": `2.0.0
		> ["1","1","room:1","phx_join",{}]
		< ["1","1","room:1","phx_reply",{"status":"ok","response":{"n":1}}]
		< ["1",null,"room:1","hello",{}]
		> ["2","2","room:2","phx_join",{}]
		< ["2","2","room:2","phx_reply",{"status":"ok","response":{"n":1}}]
		< ["2",null,"room:2","hello",{}]
		> ["3","3","room:3","phx_join",{}]
		< ["3","3","room:3","phx_reply",{"status":"error","response":{"reason":"too many topics"}}]`,
}

func TestScripts(t *testing.T) {
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, Limits{Topics: 2})
			vsn, lines, _ := strings.Cut(script, "\n")
			ws := r.dial(vsn)
			ws.SetReadLimit(1 << 20)
			for line := range strings.Lines(lines) {
				kind, text, _ := strings.Cut(strings.TrimSpace(line), " ")
				switch kind {
				case ">":
					if err := ws.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
						t.Fatal(err)
					}
				case "<":
					_, got, err := ws.Read(t.Context())
					if err != nil || string(got) != text {
						t.Fatalf("received %s, %v; want %s", got, err, text)
					}
				case "!":
					_, got, err := ws.Read(t.Context())
					if code := fmt.Sprint(int(websocket.CloseStatus(err))); code != text {
						t.Fatalf("received %s, %v; want the code %s", got, err, text)
					}
				}
			}
		})
	}
}

func TestBinaryMessageIsRejected(t *testing.T) {
	r := newRig(t, Limits{})
	ws := r.dial("2.0.0")
	if err := ws.Write(t.Context(), websocket.MessageBinary, []byte(`[null,"1","phoenix","heartbeat",{}]`)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ws.Read(t.Context()); websocket.CloseStatus(err) != CloseUnclear {
		t.Errorf("%v", err)
	}
}

// All joins of a socket end with the socket, however the socket ends.
func TestJoinsEndWithSocket(t *testing.T) {
	r := newRig(t, Limits{})
	for _, end := range []func(*websocket.Conn){
		func(ws *websocket.Conn) { _ = ws.CloseNow() },
		func(ws *websocket.Conn) { _ = ws.Close(websocket.StatusNormalClosure, "") },
	} {
		before, _ := r.topic.counts()
		ws := r.dial("2.0.0")
		say(t, ws, `["1","1","room","phx_join",{}]`)
		waitUntil(t, func() bool { joined, _ := r.topic.counts(); return joined == before+1 })
		end(ws)
		waitUntil(t, func() bool { joined, left := r.topic.counts(); return joined == left })
	}
}

func say(t *testing.T, ws *websocket.Conn, frame string) {
	t.Helper()
	if err := ws.Write(t.Context(), websocket.MessageText, []byte(frame)); err != nil {
		t.Fatal(err)
	}
}

func waitUntil(t *testing.T, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the condition does not hold after 20 s")
		}
	}
}

// Heartbeats keep a socket open that has joined a topic, but not a socket without a join.
func TestIdle(t *testing.T) {
	const idle = 200 * time.Millisecond
	r := newRig(t, Limits{Idle: idle})
	silent, lobby, alive := r.dial("2.0.0"), r.dial("2.0.0"), r.dial("2.0.0")
	say(t, silent, `["1","1","room","phx_join",{}]`)
	say(t, alive, `["1","1","room","phx_join",{}]`)
	ended := make(chan string, 3)
	for name, ws := range map[string]*websocket.Conn{"silent": silent, "lobby": lobby, "alive": alive} {
		go func() {
			for {
				if _, _, err := ws.Read(t.Context()); err != nil {
					ended <- fmt.Sprintf("%s %d", name, websocket.CloseStatus(err))
					return
				}
			}
		}()
	}
	beat := time.NewTicker(idle / 8)
	defer beat.Stop()
	over := map[string]bool{}
	for len(over) < 2 {
		select {
		case <-beat.C:
			_ = alive.Write(t.Context(), websocket.MessageText, []byte(`[null,"9","phoenix","heartbeat",{}]`))
			_ = lobby.Write(t.Context(), websocket.MessageText, []byte(`[null,"9","phoenix","heartbeat",{}]`))
		case who := <-ended:
			over[who] = true
		}
	}
	if !over["silent 1001"] || !over["lobby 1001"] {
		t.Errorf("these sockets ended: %v", over)
	}
}

// The queue of a client that does not read fills up, and its connection is closed.
func TestSlowReader(t *testing.T) {
	r := newRig(t, Limits{QueueFrames: 8, Progress: 200 * time.Millisecond})
	ws := r.dial("2.0.0")
	say(t, ws, `["1","1","room","phx_join",{}]`)
	waitUntil(t, func() bool { joined, _ := r.topic.counts(); return joined == 1 })
	m := r.topic.members[0]
	big := NewPush("room", "big", []byte(`"`+strings.Repeat("x", 8<<10)+`"`))
	refused := 0
	for range 5000 { // far more than the buffers of the connection
		if !m.Offer(big) {
			refused++
		}
	}
	if refused == 0 {
		t.Error("the queue accepted all pushes")
	}
	if err := m.Send(t.Context(), big); err == nil {
		for err == nil {
			err = m.Send(t.Context(), big)
		}
	}
	waitUntil(t, func() bool { return r.endpoint.Sockets() == 0 })
}

// The server reads a client that sends too quickly more slowly, and other clients at full
// speed.
func TestFlood(t *testing.T) {
	r := newRig(t, Limits{Frames: 50})
	ws, other := r.dial("2.0.0"), r.dial("2.0.0")
	go func() {
		for i := range 300 {
			if ws.Write(t.Context(), websocket.MessageText, fmt.Appendf(nil, `[null,"%d","phoenix","heartbeat",{}]`, i)) != nil {
				return
			}
		}
	}()
	began := time.Now()
	say(t, other, `[null,"1","phoenix","heartbeat",{}]`)
	if _, _, err := other.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 300 { // 200 at once, then 50 a second
		if _, _, err := ws.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took < 1500*time.Millisecond {
		t.Errorf("300 frames took %v", took)
	}
}

func TestUpgrades(t *testing.T) {
	r := newRig(t, Limits{Sockets: 2, Upgrades: 0.2}) // a burst of four
	status := func(vsn string) int {
		ws, resp, err := websocket.Dial(t.Context(), r.url+"/websocket?vsn="+vsn, nil)
		if err == nil {
			t.Cleanup(func() { _ = ws.CloseNow() })
		}
		if resp == nil {
			t.Fatal(err)
		}
		return resp.StatusCode
	}
	for i, want := range []int{http.StatusSwitchingProtocols, http.StatusSwitchingProtocols, http.StatusServiceUnavailable, http.StatusServiceUnavailable, http.StatusTooManyRequests} {
		if got := status("2.0.0"); got != want {
			t.Errorf("upgrade %d: %d, want %d", i, got, want)
		}
		waitUntil(t, func() bool { return r.endpoint.Sockets() == min(i+1, 2) })
	}
	if got := status("9.9.9"); got != http.StatusForbidden {
		t.Errorf("an unknown vsn: %d", got)
	}
}

func TestClient(t *testing.T) {
	r := newRig(t, Limits{})
	pushed := make(chan string, 10)
	c, err := Dial(t.Context(), r.url, ClientOptions{OnPush: func(topic, event string, _ json.RawMessage) { pushed <- topic + " " + event }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Join(t.Context(), "room", "no"); err == nil || err.Error() != "refused: no" {
		t.Errorf("%v", err)
	}
	if response, err := c.Join(t.Context(), "room", struct{}{}); err != nil || string(response) != `{"n":1}` {
		t.Errorf("%s, %v", response, err)
	}
	if got := <-pushed; got != "room hello" {
		t.Error(got)
	}
	answered := make(chan Reply, 1)
	if err := c.Push("room", "say", []byte(`{"a":1}`), func(r Reply) { answered <- r }); err != nil {
		t.Fatal(err)
	}
	if got := <-answered; got.Status != StatusOK || string(got.Response) != `{"a":1}` {
		t.Errorf("%+v", got)
	}
	r.endpoint.Hangup()
	<-c.Context().Done()
	if err := c.Push("room", "say", []byte(`{}`), nil); err == nil {
		t.Error("a push on a closed connection succeeds")
	}
}
