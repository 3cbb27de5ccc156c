package httpapi

import (
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
	})
	for i := range r.api.routes {
		route := &r.api.routes[i]
		for _, session := range []string{"mine", "theirs"} {
			target := strings.NewReplacer("{session_id}", session, "{request_id}", "x", "{index}", "0", "{$}", "").Replace(route.path)
			if strings.HasPrefix(route.path, "/events") {
				target += "?session_id=" + session
			}
			mine := session == "mine" && strings.Contains(target, "mine")
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

func allowedIf(ok bool) loquat.Code {
	if ok {
		return ""
	}
	return loquat.CodeForbidden
}
