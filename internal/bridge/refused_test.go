package bridge

import (
	"errors"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"loquat"
	"loquat/internal/phx"
)

// unusable lists ways to add an event that cannot be forwarded; each returns the event's id.
var unusable = map[string]func(*memLog) loquat.EventID{
	"deeper than decoders read": func(l *memLog) loquat.EventID {
		deep := []byte(strings.Repeat("[", 9_996) + strings.Repeat("]", 9_996))
		return l.add(loquat.Event{Type: loquat.Partial, SessionID: "one", RequestID: "r", Message: &loquat.Delta{Role: "assistant", Metadata: loquat.Object{"weird": deep}}})
	},
	"much deeper": func(l *memLog) loquat.EventID {
		deep := []byte(strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000))
		return l.add(loquat.Event{Type: loquat.Partial, SessionID: "one", RequestID: "r", Message: &loquat.Delta{Role: "assistant", Metadata: loquat.Object{"weird": deep}}})
	},
	"without the fields of an event": func(l *memLog) loquat.EventID {
		return l.append(loquat.Record{Type: loquat.Checkpoint, SessionID: "one", Body: []byte(`{"type":"checkpoint"}`)})
	},
	"not valid JSON": func(l *memLog) loquat.EventID {
		return l.append(loquat.Record{Type: loquat.Checkpoint, SessionID: "one", Body: []byte(`{"type":"checkpoint","session_id":"one",}`)})
	},
	"not to be encoded": func(l *memLog) loquat.EventID {
		l.mu.Lock()
		l.damaged = loquat.EventID(len(l.records) + 1)
		l.mu.Unlock()
		return l.add(loquat.Event{Type: loquat.SessionCreated, SessionID: "one"})
	},
}

// An event that the bridge keeps refusing becomes a gap for its apps. Later events are
// still pushed.
func TestRefusedEventBecomesGap(t *testing.T) {
	for name, add := range unusable {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newRemoteServer()
			o.log.partial("one", "a")
			_, url := newBridge(t, History{})
			f := o.forward(t, url, "server-token")
			p := call(t, url)
			if got, reason := p.join(rigTopic, map[string]any{"token": "good", "since_id": "0000000000000001"}); got.Gap || reason != "" {
				t.Fatalf("%+v %q", got, reason)
			}
			o.log.partial("two", "b")
			if got := p.next(); got.eventID() != 2 {
				t.Errorf("before it: %s", got.payload)
			}
			at := add(o.log)
			o.log.partial("two", "c")
			if got := p.next(); got.event != eventGap || string(got.payload) != `{"latest_event_id":"`+at.String()+`"}` {
				t.Fatalf("in its place: %s %.200s", got.event, got.payload)
			}
			if got := p.next(); got.eventID() != at+1 {
				t.Errorf("after it: %.200s", got.payload)
			}
			until(t, "all is acknowledged", func() bool { return f.acknowledged() == at+1 && f.Connected() })
		})
	}
}

// An app also gets a gap if the bridge reads the unusable event from the server.
func TestUnusableEventInThePast(t *testing.T) {
	for name, add := range unusable {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			becomesGapInThePast(t, add)
		})
	}
}

// So does one whose event in the past is too large for an answer of the server.
func TestLargeEventInThePast(t *testing.T) {
	before := maxAnswer
	maxAnswer = 1 << 20
	t.Cleanup(func() { maxAnswer = before })
	becomesGapInThePast(t, func(log *memLog) loquat.EventID { return log.partial("two", strings.Repeat("x", 2<<20)) })
}

// becomesGapInThePast checks that an app which joins before an event gets a gap in its place, and what comes after it.
func becomesGapInThePast(t *testing.T, add func(*memLog) loquat.EventID) {
	t.Helper()
	o := newRemoteServer()
	o.log.partial("one", "a")
	add(o.log)
	o.log.partial("two", "b")
	_, url := newBridge(t, History{}) // it begins after all this
	f := o.forward(t, url, "server-token")
	until(t, "the server is connected", f.Connected)
	p := call(t, url)
	if got, reason := p.join(rigTopic, map[string]any{"token": "good", "since_id": "0000000000000001"}); got.Gap || reason != "" {
		t.Fatalf("%+v %q", got, reason)
	}
	if got := p.next(); got.event != eventGap {
		t.Fatalf("in its place: %s %.200s", got.event, got.payload)
	}
	last := o.log.partial("two", "c")
	for got := p.next(); got.eventID() != last; got = p.next() {
		t.Logf("%s %.100s", got.event, got.payload)
	}
}

// A bridge in the server's process also replaces an event that cannot be pushed with a gap.
func TestUnusableEventInTheServer(t *testing.T) {
	for _, kind := range []string{"deeper than decoders read", "much deeper", "not to be encoded"} {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t, phx.Limits{}, nil)
			p, late := call(t, r.url), call(t, r.url)
			p.join(rigTopic, map[string]any{"token": "good"})
			at := unusable[kind](r.log)
			last := r.log.partial("two", "c")
			late.join(rigTopic, map[string]any{"token": "good", "since_id": "0000000000000000"})
			for name, p := range map[string]*phone{"live": p, "late": late} {
				if got := p.next(); got.event != eventGap || string(got.payload) != `{"latest_event_id":"`+at.String()+`"}` {
					t.Errorf("%s: %s %.200s", name, got.event, got.payload)
				}
				if got := p.next(); got.eventID() != last {
					t.Errorf("%s: %s %.200s", name, got.event, got.payload)
				}
			}
		})
	}
}

// An event at which connections keep ending is given up: after few connections if the
// bridge refused it, after more if the reason is unknown.
func TestStuck(t *testing.T) {
	refused, unreadable := errors.Join(errEventRefused), errors.Join(websocket.CloseError{Code: websocket.StatusInvalidFramePayloadData})
	tooBig, broken := errors.Join(websocket.CloseError{Code: websocket.StatusMessageTooBig}), errors.New("connection reset")
	type end struct {
		times        int
		after, acked loquat.EventID
		sent         bool
		why          error
	}
	for name, c := range map[string]struct {
		ends    []end
		givesUp bool
	}{
		"nothing":                        {nil, false},
		"refused too seldom":             {[]end{{2, 5, 5, true, refused}}, false},
		"refused":                        {[]end{{3, 5, 5, true, refused}}, true},
		"not read":                       {[]end{{3, 5, 5, true, unreadable}}, true},
		"too big":                        {[]end{{3, 5, 5, true, tooBig}}, true},
		"broken, as lines are":           {[]end{{11, 5, 5, true, broken}}, false},
		"broken again and again":         {[]end{{12, 5, 5, true, broken}}, true},
		"broken before anything is sent": {[]end{{50, 5, 5, false, broken}}, false},
		"both":                           {[]end{{10, 5, 5, true, broken}, {2, 5, 5, true, refused}}, true},
		"with progress in between":       {[]end{{2, 5, 5, true, refused}, {1, 5, 6, true, broken}, {2, 5, 5, true, refused}}, false},
		"at another event before":        {[]end{{2, 4, 4, true, refused}, {2, 5, 5, true, refused}}, false},
	} {
		var s stuck
		for _, e := range c.ends {
			for range e.times {
				s.note(e.after, e.sent, e.acked, e.why)
			}
		}
		if got := s.givesUp(5); got != c.givesUp || s.givesUp(6) {
			t.Errorf("%s: %v", name, got)
		}
	}
}
