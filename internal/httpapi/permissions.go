package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"loquat"
	"loquat/internal/auth"
	"loquat/internal/chat"
	"loquat/internal/config"
	"loquat/internal/httpapi/route"
)

// access decides who may make which call. No other code decides this. While no token
// exists, everybody who passes the origin check may make every call.
type access struct {
	keeper   *auth.Keeper
	requests requests
	users    users
	now      func() *configured
}

// requests returns requests, to look up the session of one.
type requests interface {
	Request(ctx context.Context, id string) (loquat.Request, error)
}

// users decides what belongs to a user.
type users interface {
	CheckUser(ctx context.Context, user string, sessions []string, request string) error
}

// admit returns the principal of a call, or the error that refuses the call. The principal
// of an open route is empty.
func (a access) admit(r *http.Request, t *route.Route, from caller) (auth.Principal, error) {
	if t.Open {
		return auth.Principal{}, nil
	}
	who, err := a.identify(r, t, from)
	if err != nil {
		return auth.Principal{}, err
	}
	if who.Browser != "" && !reads(r) && r.Header.Get("Origin") == "" {
		return auth.Principal{}, errNoOrigin()
	}
	if who, err = onBehalf(r, t, who); err != nil {
		return auth.Principal{}, err
	}
	if who.Kind == auth.Issued && t.Tag == pushTag {
		return auth.Principal{}, loquat.Errorf(loquat.CodeForbidden, "a subscription belongs to a token or a device of this server, and would outlive a JSON Web Token; make a token of scope user")
	}
	if who.Scope == auth.User {
		return who, a.admitUser(r, t, who)
	}
	if !a.allows(who, r, t) {
		return auth.Principal{}, errScope(who, t)
	}
	return who, nil
}

// by returns what the changes of a caller are bound by. A role that the configuration does not have
// allows nothing.
func (a access) by(who auth.Principal) (chat.By, error) {
	name, roles := who.Role, a.now().roles
	if _, ok := roles[config.DefaultRole]; name == "" && ok && who.Scope == auth.User {
		name = config.DefaultRole
	}
	by := chat.By{User: who.User, Role: name}
	if name == "" {
		return by, nil
	}
	var ok bool
	if by.Rules, ok = roles[name]; !ok {
		return by, loquat.Errorf(loquat.CodeForbidden, "the token has the role %q, which server.roles does not have", loquat.Clip(name, loquat.Excerpt))
	}
	switch {
	case by.Rules.Bounds == config.Bounds{}:
	case who.User != "":
		by.Meter = "user " + who.User
	default:
		who.Browser = "" // all browser sessions of a token count together
		by.Meter = "token " + a.keeper.Owner(who)
	}
	return by, nil
}

// actorOf returns a caller as the audit names it.
func actorOf(who auth.Principal, onBehalf bool) loquat.Actor {
	a := loquat.Actor{Kind: kindOf(who), ID: who.ID, Name: who.Name, User: who.User, OnBehalfOf: onBehalf}
	if who.Kind == auth.Issued {
		a.ID = "" // it has the issuer and the user
	}
	return a
}

// onBehalfOf is the header in which a caller of scope full names a user for whom it acts.
const onBehalfOf = "On-Behalf-Of"

// onBehalf returns the principal of a call that a caller of scope full makes for a user: it may do what the user
// may.
func onBehalf(r *http.Request, t *route.Route, who auth.Principal) (auth.Principal, error) {
	names := r.Header.Values(onBehalfOf)
	if len(names) == 0 {
		return who, nil
	}
	if who.Scope != auth.Full {
		return who, loquat.Errorf(loquat.CodeForbidden, "only a token of scope full may send the header %s", onBehalfOf)
	}
	if t.Tag == pushTag { // a subscription hears what its token may read
		return who, loquat.Errorf(loquat.CodeForbidden, "%s does not go with %s, which is about the token itself; make a token of scope user", onBehalfOf, t.Path)
	}
	if len(names) > 1 {
		return who, loquat.Invalid("header."+onBehalfOf, "is given %d times", len(names))
	}
	who.Scope, who.User, who.Role = auth.User, names[0], ""
	return who, loquat.CheckUser("header."+onBehalfOf, names[0])
}

func errScope(who auth.Principal, t *route.Route) error {
	return loquat.Errorf(loquat.CodeForbidden, "a token of scope %s may not %s %s", who.Scope, t.Method, t.Path)
}

// admitUser refuses the calls that a token of scope user may not make. A session or a request of somebody else
// is answered like one that does not exist, and before anything else is looked at.
func (a access) admitUser(r *http.Request, t *route.Route, who auth.Principal) error {
	session, request := r.PathValue("session_id"), r.PathValue("request_id")
	switch {
	case t.Full && !t.Users:
		return errScope(who, t)
	case session != "", request != "":
	case !t.Users:
		return errScope(who, t)
	default:
		query := r.URL.Query()
		session, request = query.Get("session_id"), query.Get("request_id")
	}
	ids, err := sessionsIn(session)
	if err != nil {
		return err
	}
	return a.users.CheckUser(r.Context(), who.User, ids, request)
}

// callerOf returns the principal of a call.
func callerOf(x *route.Exchange) auth.Principal {
	if w, ok := x.W.(*responseWriter); ok {
		return w.who
	}
	return auth.Principal{}
}

// userOf returns the user whose sessions a call is about: that of a token of scope user, otherwise the one that
// the call names. "" means all users.
func userOf(x *route.Exchange, place, named string) (string, error) {
	who := callerOf(x)
	if who.Scope != auth.User {
		return named, nil
	}
	if named != "" && named != who.User {
		return "", loquat.Errorf(loquat.CodeForbidden, "%s names another user than the one of the token", place)
	}
	return who.User, nil
}

// identify returns the principal of a call. If the call carries a token, the token must be
// valid, even when the server requires none, unless the route takes any key then.
func (a access) identify(r *http.Request, t *route.Route, from caller) (auth.Principal, error) {
	if t.AnyKey { // programs that need some key do not know that the server needs none
		if who, err := a.keeper.Anyone(); err == nil {
			return who, nil
		}
	}
	if token, ok := bearer(r); ok {
		return a.keeper.Authenticate(r.Context(), token, from.address)
	}
	if cookie, ok := a.now().public.cookieOf(r, from); ok {
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
