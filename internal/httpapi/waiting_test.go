package httpapi_test

import (
	"fmt"
	"testing"
	"time"

	"loquat"
)

// A session that is loaded has its queue and its last request, also when the messages are large and
// a queued message looks like the list of messages.
func TestLoadedSessionHasQueueAndLastRequest(t *testing.T) {
	r := newRig(t)
	r.do("POST", "/sessions", `{"session_id":"s"}`).want(t, 201)
	var empty loquat.Snapshot
	r.do("GET", "/sessions/s", "").want(t, 200).into(t, &empty)
	if empty.Queue == nil || len(empty.Queue) != 0 || empty.LastRequest != nil {
		t.Errorf("a new session: %+v", empty.Waiting)
	}
	large := make([]byte, 60<<10)
	for i := range large {
		large[i] = 'x'
	}
	for range 20 {
		r.do("POST", "/sessions/s/messages", `{"role":"assistant","content":"`+string(large)+`"}`).want(t, 201)
	}
	r.do("POST", "/sessions/s/send", `{"content":"one","request_id":"q1"}`).want(t, 202)
	r.do("POST", "/sessions/s/send", `{"content":"two","on_busy":"queue","request_id":"q2","metadata":{"messages":[]}}`).want(t, 202)
	for _, path := range []string{"/sessions/s", "/sessions/s/messages", "/sessions/s/messages?last=2"} {
		var got loquat.MessagePage
		r.do("GET", path, "").want(t, 200).into(t, &got)
		if len(got.Queue) != 1 || got.Queue[0].Message.Content != "two" || got.LastRequest == nil || got.LastRequest.RequestID != "q1" || got.LastRequest.Status != loquat.StatusRunning || len(got.Messages) == 0 {
			t.Errorf("%s: %+v with %d messages", path, got.Waiting, len(got.Messages))
		}
	}
	r.do("POST", "/requests/q2/cancel", "").want(t, 202)
	r.do("POST", "/requests/q1/cancel", "").want(t, 202)
	var got loquat.Snapshot
	for range 1000 {
		if r.do("GET", "/sessions/s", "").want(t, 200).into(t, &got); got.ActiveRequestID == "" {
			break
		}
		got = loquat.Snapshot{}
		time.Sleep(5 * time.Millisecond)
	}
	if last := got.LastRequest; len(got.Queue) != 0 || last == nil || last.RequestID != "q1" || last.Status != loquat.StatusCancelled || last.EndedAt == nil {
		t.Errorf("at the end: %+v, %+v", got.Queue, got.LastRequest)
	}
}

// The last page is counted from the end of the snapshot that it belongs to.
func TestLastMessages(t *testing.T) {
	r := newRig(t)
	r.do("POST", "/sessions", `{"session_id":"s"}`).want(t, 201)
	var cursor loquat.EventID
	for i := range 7 {
		var made loquat.MessageResult
		r.do("POST", "/sessions/s/messages", fmt.Sprintf(`{"role":"user","content":"%d"}`, i)).want(t, 201).into(t, &made)
		if i == 3 {
			cursor = made.CursorEventID
		}
	}
	for query, want := range map[string]string{
		"last=2": "5 6 ", "last=0": "", "last=100": "0 1 2 3 4 5 6 ", "last=2&at=" + cursor.String(): "2 3 ",
	} {
		var page loquat.MessagePage
		r.do("GET", "/sessions/s/messages?"+query, "").want(t, 200).into(t, &page)
		got := ""
		for _, m := range page.Messages {
			got += m.Content + " "
		}
		if got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	for _, query := range []string{"last=-1", "last=2&from=0", "last=2&limit=1"} {
		r.do("GET", "/sessions/s/messages?"+query, "").wantProblem(t, 422, loquat.CodeInvalid)
	}
}
