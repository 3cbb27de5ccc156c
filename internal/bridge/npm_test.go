package bridge

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"loquat"
	"loquat/internal/faultproxy"
	"loquat/internal/phx"
	"loquat/internal/phx/phxtest"
)

// The unmodified npm client with both serializers: joins, pushes, refusals, heartbeats,
// missed events, and reconnecting by itself.
func TestNpmClient(t *testing.T) {
	for _, pkg := range phxtest.Packages {
		for _, vsn := range []string{"2.0.0", "1.0.0"} {
			t.Run(pkg+" vsn "+vsn, func(t *testing.T) {
				t.Parallel()
				testNpmClient(t, pkg, vsn)
			})
		}
	}
}

func testNpmClient(t *testing.T, pkg, vsn string) {
	r := newRig(t, phx.Limits{}, nil)
	for i := range 5 {
		r.log.partial("one", fmt.Sprint(i))
	}
	c := phxtest.Start(t, phxtest.Options{URL: "ws" + strings.TrimPrefix(r.url, "http"), Package: pkg, Vsn: vsn, Heartbeat: 50, Whole: true})
	c.Until("open")
	c.Until("heartbeat")
	c.Join(rigTopic, map[string]any{"token": "wrong"}, false)
	if got := c.Until("refused"); string(got.Response) != `{"reason":"unauthorized"}` {
		t.Errorf("refused with %s", got.Response)
	}
	c.Until("refused") // it tries again and again
	c.Do("leave", nil)
	c.Until("left")
	c.Join(rigTopic, map[string]any{"token": "good", "since_id": "0000000000000003"}, true)
	if got := c.Until("joined"); string(got.Response) != `{"latest_event_id":"0000000000000005"}` {
		t.Errorf("joined with %s", got.Response)
	}
	var text strings.Builder
	hear := func(until loquat.EventID) {
		t.Helper()
		for {
			said := c.Until("event")
			var e loquat.Event
			if err := json.Unmarshal(said.Event, &e); err != nil {
				t.Fatal(err)
			}
			text.WriteString(e.Message.Content)
			if e.EventID >= until {
				return
			}
		}
	}
	hear(5)
	hear(r.log.partial("one", "5"))
	hear(r.log.partial("one", "6"))
	r.hub.endpoint.Hangup()
	if got := c.Until("close"); got.Code != int(phx.CloseRestart) {
		t.Errorf("closed with %d", got.Code)
	}
	r.log.partial("one", "7")
	c.Until("joined")
	hear(r.log.partial("one", "8"))
	if got := text.String(); got != "345678" {
		t.Errorf("the client received %q", got)
	}
	c.Do("leave", nil)
	c.Until("left")
	c.Join(rigTopic, map[string]any{"token": "good", "since_id": "0000000000000099"}, false)
	if got := c.Until("joined"); string(got.Response) != `{"gap":true,"latest_event_id":"0000000000000009"}` {
		t.Errorf("joined with %s", got.Response)
	}
}

// The npm client, in both releases and with both serializers, receives each event once and
// in order, although its connection and the one between server and bridge are cut at
// random. None of the events can be compacted, so all are counted.
func TestNpmFaultyNetwork(t *testing.T) {
	phxtest.Dir(t) // or all of this is for nothing
	events, cuts := 500, int64(2)
	if os.Getenv("LOQUAT_BRIDGE_ROUNDS") != "" {
		events, cuts = 10_000, 50
	}
	o := newRemoteServer()
	_, url := newBridge(t, History{})
	bad := func(seed uint64) *faultproxy.Proxy {
		p, err := faultproxy.Start(faultproxy.Options{
			Target: strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/bridge"), Seed: seed,
			Cut: 1, Stall: 0.1, Split: 0.05, Within: 32 << 10, StallFor: 50 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		return p
	}
	behind := bad(1)
	until(t, "the server is connected", o.forward(t, "http://"+behind.Addr()+"/bridge", "server-token").Connected)
	type follower struct {
		name   string
		line   *faultproxy.Proxy
		client *phxtest.Client
	}
	var all []follower
	for _, pkg := range phxtest.Packages {
		for _, vsn := range []string{"2.0.0", "1.0.0"} {
			line := bad(uint64(2 + len(all)))
			c := phxtest.Start(t, phxtest.Options{URL: "ws://" + line.Addr() + "/bridge", Package: pkg, Vsn: vsn})
			c.Join(rigTopic, map[string]any{"token": "good", "since_id": loquat.EventID(0).String()}, true)
			all = append(all, follower{pkg + " vsn " + vsn, line, c})
		}
	}
	var writer sync.WaitGroup
	defer writer.Wait()
	writer.Go(func() {
		for i := range events {
			o.log.add(loquat.Event{Type: loquat.ErrorEvent, SessionID: "one", RequestID: "r", Detail: fmt.Sprint(i)})
			time.Sleep(time.Millisecond)
		}
	})
	for _, f := range all {
		joins := receiveEach(t, f.name, f.client, loquat.EventID(events))
		if n := f.line.Stats().Cuts; n < cuts {
			t.Errorf("%s: only %d cuts", f.name, n)
		}
		t.Logf("%s: %d events, each received once and in order, over %d cuts and %d joins", f.name, events, f.line.Stats().Cuts, joins)
	}
	if n := behind.Stats().Cuts; n < cuts {
		t.Errorf("between server and bridge: only %d cuts", n)
	}
	t.Logf("between server and bridge: %d cuts", behind.Stats().Cuts)
}

// receiveEach reads until all events have arrived, each once and in order. It returns how
// often the client joined.
func receiveEach(t *testing.T, name string, c *phxtest.Client, events loquat.EventID) (joins int) {
	t.Helper()
	for next := loquat.EventID(1); next <= events; {
		switch said := c.Next(); {
		case said.Type == "event" && said.EventID() == next.String():
			next++
		case said.Type == "event", said.Type == "gap", strings.Contains(string(said.Response), `"gap"`):
			t.Fatalf("%s: %s %s%s instead of event %s", name, said.Type, said.EventID(), said.Response, next)
		case said.Type == "joined":
			joins++
		}
	}
	return joins
}
