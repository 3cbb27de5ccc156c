package httpapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/auth"
)

// since_id has any number of digits, and an empty id is an absent one, wherever one is
// taken.
func TestPositionsAndEmptyIDs(t *testing.T) {
	r := newRig(t)
	r.do("POST", "/sessions", `{"session_id":"s"}`).want(t, 201)
	firstOf := func(path string, headers ...string) string {
		t.Helper()
		got := r.do("GET", path, "", headers...).want(t, 200)
		var list struct {
			Events []loquat.Event  `json:"events"`
			Latest *loquat.EventID `json:"latest_event_id"`
		}
		if err := json.Unmarshal(got.body, &list); err != nil {
			t.Fatal(err)
		}
		switch {
		case list.Latest != nil:
			return "bootstrap"
		case len(list.Events) == 0:
			return "nothing"
		}
		return fmt.Sprint(int(list.Events[0].EventID))
	}
	for query, want := range map[string]string{
		"since_id=0":                "1",
		"since_id=00":               "1",
		"since_id=1":                "2",
		"since_id=0000000000000001": "2",
		"since_id=" + strings.Repeat("0", 90) + "1": "2",
		"since_id=2":                          "nothing",
		"since_id=":                           "bootstrap",
		"since_id=&session_id=&request_id=":   "bootstrap",
		"since_id=&wait=60":                   "bootstrap",
		"session_id=s&since_id=":              "nothing", // from the cursor on
		"session_id=&since_id=0":              "1",
		"session_id=s&request_id=&since_id=1": "2",
	} {
		if got := firstOf("/events?session=omit&" + query); got != want {
			t.Errorf("GET /events?%s begins with %s, want %s", query, got, want)
		}
	}
	for _, c := range []struct{ query, last, want string }{
		{"since_id=0", "", "0000000000000000 "},
		{"since_id=1&session_id=&request_id=", "", "0000000000000001 "},
		{"since_id=", "", "0000000000000002 "},
		{"since_id=0", "1", "0000000000000001 "},
		{"since_id=1", "0", "0000000000000000 "},
		{"since_id=", "000000000000000000001", "0000000000000001 "},
		{"since_id=" + strings.Repeat("9", 30), "", ` gone{"code":"gone"`},
		{"since_id=0", strings.Repeat("9", 30), ` gone{"code":"gone"`},
	} {
		var headers []string
		if c.last != "" {
			headers = []string{"Last-Event-ID: " + c.last}
		}
		got := r.follow("/events/stream?session=omit&"+c.query, func(string) bool { return true }, headers...)
		if len(got) != 1 || !strings.HasPrefix(got[0], c.want) {
			t.Errorf("the stream of %s after %q opens with %q, want %q", c.query, c.last, got, c.want)
		}
	}
	if got := r.do("GET", "/models?session_id=&agent_id=", "").want(t, 200); !strings.Contains(string(got.body), "m1") {
		t.Errorf("models: %s", got.body)
	}
	r.do("GET", "/sessions?page_token=", "").want(t, 200)
	if id := r.do("POST", "/sessions", `{"session_id":""}`).want(t, 201).field(t, "session_id"); len(id) < 16 {
		t.Errorf("a session with an empty id is called %q", id)
	}
	if id := r.do("POST", "/sessions/s/send", `{"content":"x","request_id":""}`).want(t, 202).field(t, "request_id"); len(id) < 16 {
		t.Errorf("a request with an empty id is called %q", id)
	}
}

// A token of one session gains nothing by an id that is empty.
func TestEmptyIDsAndAccess(t *testing.T) {
	r := newRig(t)
	r.do("POST", "/sessions", `{"session_id":"mine"}`).want(t, 201)
	r.do("POST", "/sessions", `{"session_id":"theirs"}`).want(t, 201)
	r.do("POST", "/sessions/mine/send", `{"content":"x","request_id":"of-mine"}`).want(t, 202)
	r.do("POST", "/sessions/theirs/send", `{"content":"x","request_id":"of-theirs"}`).want(t, 202)
	_, token, err := r.keeper.MakeToken(t.Context(), loquat.NewToken{Name: "n", Scope: auth.Session, SessionID: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	for query, status := range map[string]int{
		"":                                   403,
		"session_id=":                        403,
		"session_id=&request_id=":            403,
		"since_id=0&session_id=":             403,
		"session_id=&request_id=of-theirs":   403,
		"session_id=theirs&request_id=":      403,
		"session_id=mine&session_id=":        400,
		"session_id=&session_id=mine":        403,
		"session_id=mine&session_id=theirs":  400,
		"session_id=&request_id=of-mine":     200,
		"session_id=mine&request_id=":        200,
		"session_id=mine&since_id=0":         200,
		"session_id=mine&request_id=of-mine": 200,
	} {
		if got := r.do("GET", "/events?"+query, "", "Authorization: Bearer "+token); got.StatusCode != status {
			t.Errorf("GET /events?%s: %d, want %d: %s", query, got.StatusCode, status, got.body)
		}
	}
}

// A path whose slashes are wrong is answered with the right one.
func TestPathsWithWrongSlashes(t *testing.T) {
	r := newRig(t)
	long := "/sessions/" + strings.Repeat("s", 64) + "/messages"
	for wrong, right := range map[string]string{
		"/sessions/":                     "/sessions",
		"/sessions/?limit=1":             "/sessions",
		"//sessions":                     "/sessions",
		"/sessions/s/":                   "/sessions/s",
		"/sessions/s//messages/":         "/sessions/s/messages",
		"/events/stream/":                "/events/stream",
		"/x/../healthz":                  "/healthz",
		"/openapi.json/":                 "/openapi.json",
		"/icon.svg/":                     "/icon.svg",
		"//":                             "/",
		long + "/":                       long,
		"/nowhere/":                      "",
		"/sessions/s/none/":              "",
		"/sessions/a%2Fb/":               "",
		strings.Repeat("/", 5000):        "/",
		"/" + strings.Repeat("a/", 5000): "",
	} {
		for _, method := range []string{"GET", "POST", "BREW"} {
			p := r.do(method, wrong, "").wantProblem(t, 404, loquat.CodeNotFound)
			hint := fmt.Sprintf("use %q", right)
			if got := strings.Contains(p.Detail, "use "); got != (right != "") || got && !strings.Contains(p.Detail, hint) {
				t.Errorf("%s %.80s: %s, want a hint at %q", method, wrong, p.Detail, right)
			}
			if len(p.Detail) > 600 {
				t.Errorf("%s %.80s repeats %d bytes", method, wrong, len(p.Detail))
			}
		}
	}
}
