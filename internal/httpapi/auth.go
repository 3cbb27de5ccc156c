package httpapi

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/httpapi/route"
)

func (a *api) authRoutes() []route.Route {
	return []route.Route{
		{
			Method: http.MethodPost, Path: "/auth/session", ID: "signIn", Tag: "access", Summary: "Get a browser's cookie for a token",
			Open: true, Serve: a.signIn, Body: loquat.SignIn{}, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.SignedIn{}}},
		},
		{
			Method: http.MethodDelete, Path: "/auth/session", ID: "signOut", Tag: "access", Summary: "End the session of the cookie",
			Open: true, Serve: a.signOut, Responses: []route.Response{{Status: http.StatusNoContent}},
		},
		{
			Method: http.MethodPost, Path: "/tokens", ID: "makeToken", Tag: "access", Summary: "Make a token",
			Full: true, Serve: a.makeToken, Body: loquat.NewToken{}, Responses: []route.Response{{Status: http.StatusCreated, Body: loquat.Token{}}},
		},
		{
			Method: http.MethodGet, Path: "/tokens", ID: "listTokens", Tag: "access", Summary: "List the tokens",
			Full: true, Serve: a.listTokens, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.TokenList{}}},
		},
		{
			Method: http.MethodDelete, Path: "/tokens/{token_id}", ID: "revokeToken", Tag: "access", Summary: "Revoke a token",
			Full: true, Serve: a.revokeToken, Responses: []route.Response{{Status: http.StatusNoContent}},
		},
	}
}

// publicAddress is the URLs and names under which others reach this server.
type publicAddress struct {
	public   string // server.public_url without a slash at its end, or ""
	bridge   string // bridge.url, or ""
	serverID string
	cookie   string // name of the browser's cookie
}

// newPublicAddress takes the addresses from the configuration. The cookie's name contains
// ownID, because browsers share cookies between all ports of a host.
func newPublicAddress(c *config.Config, ownID string) publicAddress {
	p := publicAddress{public: strings.TrimRight(c.Server.PublicURL, "/"), bridge: c.Bridge.URL, serverID: c.Bridge.ServerID, cookie: "loquat-" + ownID[:8]}
	if p.serverID == "" {
		p.serverID = ownID
	}
	return p
}

// base returns the URL under which the caller reaches this server.
func (p publicAddress) base(from caller) string {
	if p.public != "" {
		return p.public
	}
	return from.scheme + "://" + from.host
}

// secure reports whether browsers reach this server over HTTPS.
func (p publicAddress) secure(from caller) bool {
	return from.scheme == "https" || strings.HasPrefix(p.public, "https://")
}

// hostCookie is a cookie prefix. Browsers accept such a cookie only over HTTPS, and send it
// only to the exact host that set it.
const hostCookie = "__Host-"

// cookie returns the value of a cookie, with or without the prefix hostCookie.
func (c caller) cookie(r *http.Request, name string) (string, bool) {
	for _, n := range []string{hostCookie + name, name} {
		if cookie, err := r.Cookie(n); err == nil && cookie.Value != "" {
			return cookie.Value, true
		}
	}
	return "", false
}

// setCookie sets the browser's cookie, or removes it if value is "".
func (a *api) setCookie(x *route.Exchange, value string, until time.Time) {
	secure := a.public.secure(a.proxies.caller(x.R))
	c := &http.Cookie{Name: a.public.cookie, Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: secure}
	if secure {
		c.Name = hostCookie + c.Name
	}
	if c.MaxAge = int(time.Until(until).Seconds()); value == "" {
		c.MaxAge = -1
	}
	http.SetCookie(x.W, c)
}

func (a *api) signIn(x *route.Exchange) error {
	in, err := route.Decode[loquat.SignIn](x)
	if err != nil {
		return err
	}
	s, err := a.access.keeper.SignIn(x.R.Context(), in.Token, a.proxies.caller(x.R).address)
	if err != nil {
		return err
	}
	a.setCookie(x, s.Cookie, s.ExpiresAt)
	return x.Reply(http.StatusOK, loquat.SignedIn{Name: s.Name, Scope: s.Scope, SessionID: s.SessionID, ExpiresAt: s.ExpiresAt})
}

func (a *api) signOut(x *route.Exchange) error {
	if cookie, ok := a.proxies.caller(x.R).cookie(x.R, a.public.cookie); ok {
		if x.R.Header.Get("Origin") == "" {
			return errNoOrigin()
		}
		if err := a.access.keeper.SignOut(x.R.Context(), cookie); err != nil {
			return err
		}
		a.setCookie(x, "", time.Time{})
	}
	return done(x)
}

// done answers 204 No Content.
func done(x *route.Exchange) error {
	x.W.Header().Set("Cache-Control", "no-store")
	x.W.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *api) makeToken(x *route.Exchange) error {
	in, err := route.Decode[loquat.NewToken](x)
	if err != nil {
		return err
	}
	made, secret, err := a.access.keeper.MakeToken(x.R.Context(), in)
	if err != nil {
		return err
	}
	out := made.AsToken()
	out.Token, out.Source = secret, ""
	x.W.Header().Set("Location", "/tokens/"+url.PathEscape(out.TokenID))
	return x.Reply(http.StatusCreated, out)
}

func (a *api) listTokens(x *route.Exchange) error {
	out := loquat.TokenList{Tokens: []loquat.Token{}}
	for _, c := range a.access.keeper.Tokens() {
		out.Tokens = append(out.Tokens, c.AsToken())
	}
	return x.Reply(http.StatusOK, out)
}

func (a *api) revokeToken(x *route.Exchange) error {
	if err := a.access.keeper.RevokeToken(x.R.Context(), x.Path("token_id")); err != nil {
		return err
	}
	return done(x)
}
