package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"loquat"
	"loquat/internal/auth"
	"loquat/internal/httpapi/route"
)

// access is who may do what: the one place where it is decided. Without tokens
// everybody who gets past the guard may do everything.
type access struct {
	keeper   *auth.Keeper
	cookie   string // name of the browser's cookie
	requests requests
}

// requests tells which session a request is of.
type requests interface {
	Request(ctx context.Context, id string) (loquat.Request, error)
}

// admit lets a call of a route in and says whose it is, or why not.
func (a access) admit(r *http.Request, t *route.Route, from caller) (auth.Principal, error) {
	if t.Open {
		return auth.Principal{}, nil
	}
	who, err := a.identify(r, from)
	if err != nil {
		return auth.Principal{}, err
	}
	if who.Browser != "" && !reads(r) && r.Header.Get("Origin") == "" {
		return auth.Principal{}, errNoOrigin()
	}
	if !a.allows(who, r, t) {
		return auth.Principal{}, loquat.Errorf(loquat.CodeForbidden, "a token of scope %s may not %s %s", who.Scope, t.Method, t.Path)
	}
	return who, nil
}

// identify says who makes a call. A token that is shown has to be good, also where
// none is needed: who shows one relies on it.
func (a access) identify(r *http.Request, from caller) (auth.Principal, error) {
	if token, ok := bearer(r); ok {
		return a.keeper.Authorize(r.Context(), token, from.address)
	}
	if cookie, ok := from.cookie(r, a.cookie); ok {
		if who, ok := a.keeper.Browser(r.Context(), cookie); ok {
			return who, nil
		}
	}
	return a.keeper.Anyone()
}

func bearer(r *http.Request) (token string, ok bool) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return token, strings.EqualFold(scheme, "Bearer")
}

// errNoOrigin refuses what another page may have made a browser do.
func errNoOrigin() error {
	return loquat.Errorf(loquat.CodeForbidden, "a change by cookie needs the header Origin, with an origin that is allowed; browsers send it")
}

func reads(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// allows reports whether a scope covers a call.
func (a access) allows(who auth.Principal, r *http.Request, t *route.Route) bool {
	switch {
	case who.Scope == auth.Full:
		return true
	case t.Full:
		return false
	case who.Scope == auth.Read:
		return reads(r)
	case who.Scope == auth.Session:
		return t.ID != forkRoute && who.SessionID != "" && who.SessionID == a.sessionOf(r, t)
	}
	return false
}

// follow calls a route whose answer may take long, and ends it when the caller loses
// the right to be here.
func (a access) follow(x *route.Exchange, who auth.Principal, serve func(*route.Exchange) error) error {
	ctx, done := a.keeper.During(x.R.Context(), who)
	defer done()
	x.R = x.R.WithContext(ctx)
	err := serve(x)
	if err != nil && errors.Is(context.Cause(ctx), auth.ErrEnded) {
		return loquat.Errorf(loquat.CodeUnauthorized, "the token was revoked, or has expired, during the call")
	}
	return err
}

// sessionOf returns the one session that a call is about, "" when it is about more.
func (a access) sessionOf(r *http.Request, t *route.Route) string {
	query := r.URL.Query()
	request := r.PathValue("request_id")
	switch {
	case strings.HasPrefix(t.Path, "/sessions/{session_id}"):
		return r.PathValue("session_id")
	case strings.HasPrefix(t.Path, "/events") && query.Get("session_id") != "", t.Path == "/models":
		return query.Get("session_id")
	case strings.HasPrefix(t.Path, "/events"):
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
