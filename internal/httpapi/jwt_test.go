package httpapi_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"loquat"
	"loquat/internal/auth"
	"loquat/internal/httpapi"
	"loquat/internal/jwt"
	"loquat/internal/jwt/jwttest"
)

// Tokens of another system act for its users, for as long as they say.
func TestJWT(t *testing.T) {
	issuer := jwttest.New(t)
	plan := ""
	token := func(user, scope string, life time.Duration) string {
		t.Helper()
		more := map[string]any{"scope": scope}
		if plan != "" {
			more["plan"] = plan
		}
		return "Authorization: Bearer " + issuer.Token(t, user, life, more)
	}
	r := newRigWith(t, func(o *httpapi.Options) {
		var err error
		o.Access, err = auth.Open(t.Context(), auth.Options{
			Configured: auth.Configured{JWT: jwt.New([]jwt.Issuer{{Issuer: issuer.URL, Audience: "loquat", Keys: issuer.URL, ScopeClaim: "scope", RoleClaim: "plan"}})}, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	close(r.parrot.gate)
	ann, bob := token("ann", "user", time.Hour), token("bob", "user", time.Hour)
	r.do("GET", "/sessions", "").wantProblem(t, 401, loquat.CodeUnauthorized) // the issuer closes the server
	r.do("POST", "/sessions", `{"session_id":"of-ann"}`, ann).want(t, 201)
	r.do("GET", "/sessions/of-ann", "", token("ann", "user", time.Minute)).want(t, 200)
	r.do("GET", "/sessions/of-ann", "", bob).wantProblem(t, 404, loquat.CodeNotFound)
	r.do("GET", "/sessions/of-ann", "", token("backend", "full", time.Minute)).want(t, 200)
	r.do("DELETE", "/sessions/of-ann", "", token("reader", "read", time.Minute)).wantProblem(t, 403, loquat.CodeForbidden)
	r.do("GET", "/sessions/of-ann", "", token("ann", "session", time.Minute)).wantProblem(t, 401, loquat.CodeUnauthorized)
	r.do("GET", "/sessions/of-ann", "", token("ann", "user", -time.Second)).wantProblem(t, 401, loquat.CodeUnauthorized)
	var me loquat.Caller
	r.do("GET", "/auth/me", "", ann).want(t, 200).into(t, &me)
	if me.Kind != loquat.CallerIssued || me.Scope != auth.User || me.User != "ann" || me.ExpiresAt == nil || me.CredentialID != "" {
		t.Errorf("the caller is %+v", me)
	}
	r.do("GET", "/push", "", ann).wantProblem(t, 403, loquat.CodeForbidden)
	r.do("GET", "/push", "", token("backend", "full", time.Minute)).wantProblem(t, 403, loquat.CodeForbidden)
	r.do("POST", "/pairing", `{}`, ann).wantProblem(t, 403, loquat.CodeForbidden) // a device would outlive it, too
	_, text, _ := strings.Cut(ann, "Bearer ")
	r.do("POST", "/auth/session", `{"token":"`+text+`"}`, "Origin: "+r.server.URL).wantProblem(t, 403, loquat.CodeForbidden)

	// The claim of the role.
	plan = "narrow"
	r.do("POST", "/sessions", `{}`, token("ann", "user", time.Minute)).wantProblem(t, 403, loquat.CodeForbidden)
	plan = "not in the configuration"
	r.do("GET", "/sessions", "", token("ann", "user", time.Minute)).wantProblem(t, 403, loquat.CodeForbidden)
	plan = ""

	// A stream ends with its token.
	began := time.Now()
	lines := r.follow("/events/stream?session_id=of-ann", func(string) bool { return false }, token("ann", "user", 2*time.Second))
	if took := time.Since(began); took > 10*time.Second || len(lines) == 0 {
		t.Errorf("the stream of a token of two seconds took %s: %v", took, lines)
	}
}
