package upgrade_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"loquat"
)

// The same calls have the same events as in an older version, in the same order and with the same
// fields; newer ones may have more fields.
func TestEventsOfOlderVersions(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r := &recorder{t: t, ctx: ctx, dir: t.TempDir(), program: current(t), out: recording{Tokens: map[string]string{}}}
	r.backend = r.launch("backend", "--listen", "127.0.0.1:0", "--rate", "300").URL
	r.serve("data", 0)
	r.talk()
	r.useTools()
	r.endBadly()
	r.useImages()
	now := map[string][]object{}
	for _, id := range []string{"talk", "many", "tools", "cancelled", "failed", "retried", "broken", "images"} {
		answer, err := load(ctx, r.server.URL, "", fromStart(id))
		r.must(err)
		now[id] = eventsOf(t, answer)
	}
	eachVersion(t, servedBy, func(t *testing.T, recorded recording) {
		compared := 0
		for _, answer := range recorded.Served {
			for id, events := range now {
				if answer.Path == fromStart(id) && answer.Token == "owner" {
					compared++
					compareEvents(t, id, eventsOf(t, answer), events)
				}
			}
		}
		if compared != len(now) {
			t.Errorf("%d of %d sessions are recorded", compared, len(now))
		}
	})
}

func fromStart(sessionID string) string {
	return fmt.Sprintf("/events?session_id=%s&since_id=%s&session=omit", sessionID, loquat.EventID(0))
}

func eventsOf(t *testing.T, answer served) (events []object) {
	t.Helper()
	var window struct{ Events []object }
	if err := json.Unmarshal(answer.Body, &window); err != nil {
		t.Fatalf("%s: %v", answer.Path, err)
	}
	for _, e := range window.Events {
		if e["type"] != string(loquat.QueueChanged) { // new since 3f0b70a
			events = append(events, e)
		}
	}
	return events
}

func compareEvents(t *testing.T, id string, older, newer []object) {
	t.Helper()
	if len(older) != len(newer) {
		t.Errorf("session %s had %d events and has %d", id, len(older), len(newer))
		return
	}
	for i, old := range older {
		if old["type"] != newer[i]["type"] {
			t.Errorf("session %s: event %d was %v and is %v", id, i, old["type"], newer[i]["type"])
			return
		}
		sameFields(t, fmt.Sprintf("session %s, %v", id, old["type"]), old, newer[i])
	}
}

// sameFields checks that a value has the fields that another one had, with the same types.
func sameFields(t *testing.T, place string, older, newer any) {
	t.Helper()
	if fmt.Sprintf("%T", older) != fmt.Sprintf("%T", newer) {
		t.Errorf("%s: was %v and is %v", place, older, newer)
		return
	}
	switch old := older.(type) {
	case object:
		now := newer.(object)
		for name, value := range old {
			if _, ok := now[name]; !ok {
				t.Errorf("%s: %s is gone", place, name)
				continue
			}
			sameFields(t, place+" "+name, value, now[name])
		}
	case []any:
		now := newer.([]any)
		if len(old) != len(now) {
			t.Errorf("%s has %d elements, not %d", place, len(now), len(old))
			return
		}
		for i := range old {
			sameFields(t, place, old[i], now[i])
		}
	}
}
