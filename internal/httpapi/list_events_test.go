package httpapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"loquat"
)

// row is what a list shows of a session.
type row struct {
	agent, title, created, updated, active string
	count                                  int
}

// listClient keeps a list of sessions up to date by events alone, as docs/events.md says.
type listClient struct {
	rows   map[string]row
	cursor loquat.EventID
}

func rowOf(s loquat.SessionSummary) row {
	return row{s.AgentID, string(s.Metadata["title"]), s.CreatedAt.Format(time.RFC3339Nano), s.UpdatedAt.Format(time.RFC3339Nano), s.ActiveRequestID, s.MessageCount}
}

func (r *rig) list() (map[string]row, loquat.EventID) {
	r.t.Helper()
	var list loquat.SessionList
	r.do("GET", "/sessions?limit=100&archived=any", "").want(r.t, 200).into(r.t, &list)
	rows := map[string]row{}
	for _, s := range list.Sessions {
		rows[s.SessionID] = rowOf(s)
	}
	if list.CursorEventID == nil {
		r.t.Fatal("the list has no cursor")
	}
	return rows, *list.CursorEventID
}

func (c *listClient) apply(e loquat.Event) {
	c.cursor = e.EventID
	s := c.rows[e.SessionID]
	switch e.Type {
	case loquat.SessionDeleted:
		delete(c.rows, e.SessionID)
		return
	case loquat.SessionCreated:
		s = row{agent: e.AgentID, created: e.CreatedAt.Format(time.RFC3339Nano)}
	case loquat.Checkpoint:
		s.updated, s.count = e.Timestamp.Format(time.RFC3339Nano), *e.MessageCount
		if e.UpdatedAt != nil {
			s.updated = e.UpdatedAt.Format(time.RFC3339Nano)
		}
		if e.AgentID != "" {
			s.agent, s.title = e.AgentID, string(e.Metadata["title"])
		}
	case loquat.RequestStarted:
		if e.SteeredInto == "" {
			s.active = e.RequestID
		}
	case loquat.RequestCompleted:
		if s.active == e.RequestID {
			s.active = ""
		}
	}
	c.rows[e.SessionID] = s
}

// poll applies all events that there are. others are the sessions that are followed, too.
func (r *rig) update(c *listClient, others string) {
	r.t.Helper()
	for {
		var list loquat.EventList
		r.do("GET", fmt.Sprintf("/events?list=true&session=omit&limit=7&since_id=%s&session_id=%s", c.cursor, others), "").want(r.t, 200).into(r.t, &list)
		if len(list.Events) == 0 {
			return
		}
		for _, e := range list.Events {
			c.apply(e)
		}
	}
}

// A client keeps its list right by events alone, through every change that a row shows.
func TestListIsKeptByEvents(t *testing.T) {
	r := newRig(t)
	r.do("POST", "/sessions", `{"session_id":"old","messages":[{"role":"user","content":"before"}]}`).want(t, 201)
	c := &listClient{}
	c.rows, c.cursor = r.list()
	followed := &listClient{rows: maps.Clone(c.rows), cursor: c.cursor}
	exported := string(r.do("GET", "/sessions/old/export", "").want(t, 200).body)
	await := func(what string, holds func(session string) bool) {
		r.t.Helper()
		for range 1000 {
			if holds(string(r.do("GET", "/sessions/a", "").want(t, 200).body)) {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
		t.Fatalf("the session does not come to this: %s", what)
	}
	steps := []func(){
		func() { r.do("POST", "/sessions", `{"session_id":"a"}`).want(t, 201) },
		func() { r.do("POST", "/sessions/a/messages", `{"role":"user","content":"names it"}`).want(t, 201) },
		func() { r.do("POST", "/sessions/a/send", `{"content":"go","request_id":"q1"}`).want(t, 202) },
		func() {
			r.do("POST", "/sessions/a/send", `{"content":"then","on_busy":"queue","request_id":"q2"}`).want(t, 202)
		},
		func() {
			r.do("PATCH", "/sessions/a", `{"metadata":{"title":"renamed","tags":["x"],"pinned":true}}`).want(t, 200)
		},
		func() {
			for range 3 {
				r.parrot.gate <- struct{}{}
			}
			await("q2 runs", func(session string) bool { return strings.Contains(session, `"active_request_id":"q2"`) })
		},
		func() {
			r.do("POST", "/requests/q2/cancel", `{}`)
			await("no request runs", func(session string) bool { return !strings.Contains(session, "active_request_id") })
		},
		func() { r.do("POST", "/sessions/a/fork", `{"up_to_index":1}`).want(t, 201) },
		func() { r.do("DELETE", "/sessions/a/messages?indices=0", "").want(t, 200) },
		func() {
			r.do("POST", "/sessions/import?new_ids=true", exported, "Content-Type: application/json").want(t, 200)
		},
		func() { r.do("DELETE", "/sessions/a", "").want(t, 204) },
		func() { r.do("PATCH", "/sessions/old", `{"metadata":{"archived":true,"title":null}}`).want(t, 200) },
	}
	for i, step := range steps {
		step()
		r.update(c, "")
		r.update(followed, "old")
		want, _ := r.list()
		if !reflect.DeepEqual(c.rows, want) || !reflect.DeepEqual(followed.rows, want) {
			got, _ := json.Marshal(slices.Sorted(maps.Keys(c.rows)))
			t.Fatalf("step %d: the list is\n%+v\n%s, and with a session\n%+v, want\n%+v", i, c.rows, got, followed.rows, want)
		}
	}
}

// The ids in session_id are checked one by one, and so is what goes together.
func TestSeveralSessionsAreChecked(t *testing.T) {
	r := newRig(t)
	r.do("POST", "/sessions", `{"session_id":"s"}`).want(t, 201)
	var many []string
	for i := range 101 {
		many = append(many, fmt.Sprint("s", i))
	}
	for path, want := range map[string]struct {
		status int
		code   loquat.Code
		says   string
	}{
		"/events?session_id=s,,t":                           {422, loquat.CodeInvalid, "place 1"},
		"/events?session_id=,":                              {422, loquat.CodeInvalid, "place 0"},
		"/events?since_id=0&session_id=s,nobody":            {404, loquat.CodeNotFound, `"nobody"`},
		"/events?session_id=" + strings.Join(many, ","):     {422, loquat.CodeInvalid, "at most 100"},
		"/events?list=perhaps":                              {400, loquat.CodeInvalid, "true or false"},
		"/events?session_id=s&session_id=t":                 {400, loquat.CodeInvalid, "2 times"},
		"/events?request_id=q&list=true":                    {422, loquat.CodeInvalid, "request_id"},
		"/events?request_id=q&session_id=s,t":               {422, loquat.CodeInvalid, "request_id"},
		"/events?list=true&since_id=9999":                   {410, loquat.CodeGone, "highest id"},
		"/events?since_id=0&session_id=s,s," + many[0] + "": {404, loquat.CodeNotFound, many[0]},
	} {
		if p := r.do("GET", path, "").wantProblem(t, want.status, want.code); !strings.Contains(p.Detail, want.says) {
			t.Errorf("%s: %s", path, p.Detail)
		}
	}
	r.do("GET", "/events?session_id=s,s,s&list=false", "").want(t, 200)
	lines := r.follow("/events/stream?session_id=s,nobody", never)
	if len(lines) != 1 || !strings.Contains(lines[0], "gone") || !strings.Contains(lines[0], `\"nobody\"`) {
		t.Errorf("a stream of an unknown session: %q", lines)
	}
	var latest loquat.EventList
	r.do("GET", "/events?list=true", "").want(t, 200).into(t, &latest)
	if latest.LatestEventID == nil {
		t.Error("the list without since_id has no latest_event_id")
	}
}

// A hundred sessions and the list, on one stream that is cut and resumed, have every event once.
func TestStreamOfAHundredSessions(t *testing.T) {
	r := newRig(t)
	var ids []string
	for i := range 100 {
		ids = append(ids, fmt.Sprint("s", i))
		r.do("POST", "/sessions", fmt.Sprintf(`{"session_id":"s%d"}`, i)).want(t, 201)
	}
	r.do("POST", "/sessions", `{"session_id":"other"}`).want(t, 201)
	since := r.store.Last()
	var writing sync.WaitGroup
	defer writing.Wait()
	writing.Go(func() {
		for i := range 100 {
			for _, id := range []string{"other", ids[i]} {
				r.do("POST", "/sessions/"+id+"/messages", fmt.Sprintf(`{"role":"user","content":"number %d"}`, i)).want(t, 201)
			}
		}
	})
	at, appended, checkpoints := since.String(), 0, 0
	for appended < 100 || checkpoints < 200 {
		n := 0
		lines := r.follow("/events/stream?list=true&session=omit&session_id="+strings.Join(ids, ","), func(line string) bool {
			n++
			return n == 40 || n > 1 && (strings.Contains(line, "number 99") || appended == 100)
		}, "Last-Event-ID: "+at)
		for _, line := range lines[1:] {
			id, data, _ := strings.Cut(line, " ")
			if id <= at {
				t.Fatalf("%s after %s", id, at)
			}
			at = id
			if strings.Contains(data, "message_appended") {
				if appended++; strings.Contains(data, `"other"`) {
					t.Fatalf("a message of another session: %s", line)
				}
			}
			if strings.Contains(data, `"checkpoint"`) {
				checkpoints++
			}
		}
	}
	if appended != 100 || checkpoints != 200 {
		t.Errorf("%d messages and %d checkpoints", appended, checkpoints)
	}
}

// into decodes the body.
func (g reply) into(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal(g.body, v); err != nil {
		t.Fatalf("%v in %s", err, g.body)
	}
}
