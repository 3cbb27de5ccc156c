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

// access decides who may make which call. No other code decides this. While no token
// exists, everybody who passes the origin check may make every call.
type access struct {
	keeper   *auth.Keeper
	cookie   string // name of the browser's cookie
	requests requests
}

// requests returns requests, to look up the session of one.
type requests interface {
	Request(ctx context.Context, id string) (loquat.Request, error)
}

// admit returns the principal of a call, or the error that refuses the call. The principal
// of an open route is empty.
func (a access) admit(r *http.Request, t *route.Route, from caller) (auth.Principal, error) {
	if t.Open {
		return auth.Principal{}, nil
	}
	if t.AnyKey { // programs that need some key do not know that the server needs none
		if who, err := a.keeper.Anyone(); err == nil {
			return who, nil
		}
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

// identify returns the principal of a call. If the call carries a token, the token must be
// valid, even when the server requires none.
func (a access) identify(r *http.Request, from caller) (auth.Principal, error) {
	if token, ok := bearer(r); ok {
		return a.keeper.Authenticate(r.Context(), token, from.address)
	}
	if cookie, ok := from.cookie(r, a.cookie); ok {
		if who, ok, err := a.keeper.Browser(r.Context(), cookie); ok || err != nil {
			return who, err
		}
	}
	return a.keeper.Anyone()
}

func bearer(r *http.Request) (token string, ok bool) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return token, strings.EqualFold(scheme, "Bearer")
}

// errNoOrigin refuses a change with a cookie but without Origin: a page of another site may
// have made the browser send it.
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
	case t.ID == whoAmIRoute, t.Tag == pushTag: // about the caller alone
		return true
	case who.Scope == auth.Read:
		return reads(r)
	case who.Scope == auth.Session:
		return t.ID != forkRoute && who.SessionID != "" && who.SessionID == a.sessionOf(r, t)
	}
	return false
}

// follow calls a route whose answer may take long. It cancels the call when the caller's
// token is revoked or expires.
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

// sessionOf returns the session that a call is limited to, or "" if it is not limited to one.
func (a access) sessionOf(r *http.Request, t *route.Route) string {
	query := r.URL.Query()
	request := r.PathValue("request_id")
	switch {
	case strings.HasPrefix(t.Path, "/sessions/{session_id}"):
		return r.PathValue("session_id")
	case t.Path == "/models", t.Path == searchPath:
		return query.Get("session_id")
	case strings.HasPrefix(t.Path, "/events") && query.Get("session_id") != "":
		if ids, err := sessionsIn(query.Get("session_id")); err == nil && len(ids) == 1 {
			return ids[0]
		}
		return ""
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
