package httpapi

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"loquat"
	"loquat/internal/config"
)

// The scopes of a token.
const (
	scopeFull    = "full"
	scopeRead    = "read"    // what changes nothing
	scopeSession = "session" // one session, and the events of it
)

// access is who may do what. Without tokens everybody who gets past the guard may do
// everything.
type access struct {
	tokens   []accessToken
	requests requests
}

// requests tells which session a request is of.
type requests interface {
	Request(ctx context.Context, id string) (loquat.Request, error)
}

// accessToken keeps no token in the clear.
type accessToken struct {
	digest    [sha256.Size]byte
	scope     string
	sessionID string
}

func newAccess(tokens []config.AuthToken, requests requests) access {
	a := access{requests: requests}
	for _, t := range tokens {
		a.tokens = append(a.tokens, accessToken{sha256.Sum256([]byte(t.Token)), t.Scope, t.SessionID})
	}
	return a
}

// admit lets a call of a route in, or says why not.
func (a access) admit(w http.ResponseWriter, r *http.Request, t *route) error {
	if len(a.tokens) == 0 || t.open {
		return nil
	}
	token, ok := a.find(r.Header.Get("Authorization"))
	if !ok {
		w.Header().Set("WWW-Authenticate", "Bearer")
		return loquat.Errorf(loquat.CodeUnauthorized, "this needs Authorization: Bearer with one of server.auth_tokens")
	}
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case token.scope == scopeFull, token.scope == scopeRead && reads:
		return nil
	case token.scope == scopeSession && t.id != forkRoute && token.sessionID == a.sessionOf(r, t):
		return nil
	}
	return loquat.Errorf(loquat.CodeForbidden, "a token of scope %s may not %s %s", token.scope, t.method, t.path)
}

// find compares with every token, whichever matches, so that the time it takes tells
// nothing.
func (a access) find(authorization string) (found accessToken, ok bool) {
	scheme, bearer, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return accessToken{}, false
	}
	digest := sha256.Sum256([]byte(bearer))
	for _, t := range a.tokens {
		if subtle.ConstantTimeCompare(digest[:], t.digest[:]) == 1 {
			found, ok = t, true
		}
	}
	return found, ok
}

// sessionOf returns the one session that a call is about, "" when it is about more.
func (a access) sessionOf(r *http.Request, t *route) string {
	query := r.URL.Query()
	request := r.PathValue("request_id")
	switch {
	case strings.HasPrefix(t.path, "/sessions/{session_id}"):
		return r.PathValue("session_id")
	case strings.HasPrefix(t.path, "/events") && query.Has("session_id"), t.path == "/models":
		return query.Get("session_id")
	case strings.HasPrefix(t.path, "/events"):
		request = query.Get("request_id")
	}
	if request == "" {
		return ""
	}
	q, err := a.requests.Request(r.Context(), request)
	if err != nil {
		return ""
	}
	return q.SessionID
}
