package bridge

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/phx"
	"loquat/internal/phx/phxtest"
)

// The unmodified npm client, in both serializers: join, pushes, refusals, heartbeats,
// what it missed, and that it comes back by itself.
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
		t.Errorf("it has heard %q", got)
	}
	c.Do("leave", nil)
	c.Until("left")
	c.Join(rigTopic, map[string]any{"token": "good", "since_id": "0000000000000099"}, false)
	if got := c.Until("joined"); string(got.Response) != `{"gap":true,"latest_event_id":"0000000000000009"}` {
		t.Errorf("joined with %s", got.Response)
	}
}
