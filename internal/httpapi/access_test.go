package httpapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/config"
)

// Every route against every kind of token: made from the table of routes, so that a
// new one cannot be forgotten.
func TestAccess(t *testing.T) {
	r := newRig(t)
	access := newAccess([]config.AuthToken{
		{Name: "f", Token: "full-token", Scope: scopeFull},
		{Name: "r", Token: "read-token", Scope: scopeRead},
		{Name: "s", Token: "session-token", Scope: scopeSession, SessionID: "mine"},
	}, requestsOf{"request-of-mine": "mine", "request-of-theirs": "theirs"})
	for i := range r.api.routes {
		route := &r.api.routes[i]
		for _, session := range []string{"mine", "theirs"} {
			target := strings.NewReplacer("{session_id}", session, "{request_id}", "request-of-"+session, "{index}", "0", "{$}", "").Replace(route.path)
			if strings.HasPrefix(route.path, "/events") || route.path == "/models" {
				target += "?session_id=" + session
			}
			mine := session == "mine" && strings.Contains(target, "mine") && !strings.HasSuffix(target, "/fork")
			reads := route.method == http.MethodGet
			for authorization, want := range map[string]loquat.Code{
				"":                     loquat.CodeUnauthorized,
				"Bearer wrong":         loquat.CodeUnauthorized,
				"Basic full-token":     loquat.CodeUnauthorized,
				"Bearer full-token":    "",
				"bearer full-token":    "",
				"Bearer read-token":    allowedIf(reads),
				"Bearer session-token": allowedIf(mine),
			} {
				if route.open {
					want = ""
				}
				q := httptest.NewRequest(route.method, target, nil)
				q.SetPathValue("session_id", session)
				if strings.Contains(route.path, "{request_id}") {
					q.SetPathValue("request_id", "request-of-"+session)
				}
				q.Header.Set("Authorization", authorization)
				w := httptest.NewRecorder()
				err := access.admit(w, q, route)
				if loquat.CodeOf(err) != want {
					t.Errorf("%s %s with %q: %v, want %q", route.method, target, authorization, err, want)
				}
				if told := w.Header().Get("WWW-Authenticate") != ""; told != (want == loquat.CodeUnauthorized) {
					t.Errorf("%s %s with %q: WWW-Authenticate is %v", route.method, target, authorization, told)
				}
			}
		}
	}
}

// requestsOf says of requests which sessions they are of.
type requestsOf map[string]string

func (r requestsOf) Request(_ context.Context, id string) (loquat.Request, error) {
	session, ok := r[id]
	if !ok {
		return loquat.Request{}, loquat.Errorf(loquat.CodeNotFound, "there is no request %q", id)
	}
	return loquat.Request{RequestID: id, SessionID: session}, nil
}

// A token of one session follows a request of it by the request alone.
func TestAccessByRequest(t *testing.T) {
	r := newRig(t)
	access := newAccess([]config.AuthToken{{Token: "session-token", Scope: scopeSession, SessionID: "mine"}}, requestsOf{"a": "mine", "b": "theirs"})
	for i := range r.api.routes {
		route := &r.api.routes[i]
		if !strings.HasPrefix(route.path, "/events") {
			continue
		}
		for query, want := range map[string]loquat.Code{
			"?request_id=a": "", "?request_id=b": loquat.CodeForbidden, "?request_id=c": loquat.CodeForbidden, "": loquat.CodeForbidden,
			"?request_id=a&session_id=theirs": loquat.CodeForbidden,
		} {
			q := httptest.NewRequest(route.method, route.path+query, nil)
			q.Header.Set("Authorization", "Bearer session-token")
			if err := access.admit(httptest.NewRecorder(), q, route); loquat.CodeOf(err) != want {
				t.Errorf("%s%s: %v, want %q", route.path, query, err, want)
			}
		}
	}
}

func allowedIf(ok bool) loquat.Code {
	if ok {
		return ""
	}
	return loquat.CodeForbidden
}
