package httpapi

import (
	"net/http"
	"time"

	"loquat"
	"loquat/internal/auth"
	"loquat/internal/httpapi/route"
)

func (k *credentials) browserSessionRoutes() []route.Route {
	return []route.Route{
		{
			Method: http.MethodGet, Path: "/auth/me", ID: whoAmIRoute, Tag: "access", Summary: "Show who makes the call, and with which scope",
			Users: true, Serve: k.whoAmI, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.Caller{}}},
		},
		{
			Method: http.MethodPost, Path: "/auth/session", ID: "signIn", Tag: "access", Summary: "Get a browser's cookie for a token",
			Open: true, Serve: k.signIn, Body: loquat.SignIn{}, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.SignedIn{}}},
		},
		{
			Method: http.MethodDelete, Path: "/auth/session", ID: "signOut", Tag: "access", Summary: "End the session of the cookie",
			Open: true, Serve: k.signOut, Responses: []route.Response{{Status: http.StatusNoContent}},
		},
	}
}

// whoAmIRoute is the route that every valid token may call.
const whoAmIRoute = "whoAmI"

func (k *credentials) whoAmI(x *route.Exchange) error {
	who := callerOf(x)
	out := loquat.Caller{Kind: kindOf(who), RequiresToken: k.keeper.Closed(), Scope: who.Scope, SessionID: who.SessionID, User: who.User, Name: who.Name, CredentialID: who.ID, Browser: who.Browser != ""}
	if who.Kind == auth.Issued {
		out.CredentialID = "" // it has the issuer and the user
	}
	if until := k.keeper.Until(who); !until.IsZero() {
		out.ExpiresAt = &until
	}
	return x.Reply(http.StatusOK, out)
}

// kindOf returns the kind of a caller, as the API names it.
func kindOf(who auth.Principal) string {
	switch who.Kind {
	case auth.Nobody:
		return loquat.CallerNobody
	case auth.Issued:
		return loquat.CallerIssued
	case loquat.CredentialDevice:
		return loquat.CallerDevice
	case loquat.CredentialProcess:
		return loquat.CallerProcess
	}
	return loquat.CallerToken
}

// hostCookie is a cookie prefix. Browsers accept such a cookie only over HTTPS, and send it
// only to the exact host that set it.
const hostCookie = "__Host-"

// cookieName returns the name of the browser's cookie. Over HTTPS only a cookie with the prefix counts: a page of a
// neighbouring host, such as a subdomain, can set one without it, and so sign a browser in as somebody else.
func (p publicAddress) cookieName(from caller) string {
	if p.secure(from) {
		return hostCookie + p.cookie
	}
	return p.cookie
}

// cookieOf returns the value of the browser's cookie.
func (p publicAddress) cookieOf(r *http.Request, from caller) (string, bool) {
	cookie, err := r.Cookie(p.cookieName(from))
	if err != nil || cookie.Value == "" {
		return "", false
	}
	return cookie.Value, true
}

// setCookie sets the browser's cookie, or removes it if value is "".
func (k *credentials) setCookie(x *route.Exchange, value string, until time.Time) {
	public, from := k.now().public, k.now().proxies.caller(x.R)
	c := &http.Cookie{Name: public.cookieName(from), Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: public.secure(from)}
	if c.MaxAge = int(time.Until(until).Seconds()); value == "" {
		c.MaxAge = -1
	}
	http.SetCookie(x.W, c)
}

func (k *credentials) signIn(x *route.Exchange) error {
	in, err := route.Decode[loquat.SignIn](x)
	if err != nil {
		return err
	}
	s, err := k.keeper.SignIn(x.R.Context(), in.Token, k.now().proxies.caller(x.R).address)
	if err != nil {
		return err
	}
	k.setCookie(x, s.Cookie, s.ExpiresAt)
	return x.Reply(http.StatusOK, loquat.SignedIn{Name: s.Name, Scope: s.Scope, SessionID: s.SessionID, User: s.User, ExpiresAt: s.ExpiresAt})
}

func (k *credentials) signOut(x *route.Exchange) error {
	if cookie, ok := k.now().public.cookieOf(x.R, k.now().proxies.caller(x.R)); ok {
		if x.R.Header.Get("Origin") == "" {
			return errNoOrigin()
		}
		if err := k.keeper.SignOut(x.R.Context(), cookie); err != nil {
			return err
		}
		k.setCookie(x, "", time.Time{})
	}
	return done(x)
}
