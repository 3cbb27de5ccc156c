package httpapi

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"loquat"
	"loquat/internal/config"
)

func (a *api) authRoutes() []route {
	return []route{
		{
			method: http.MethodPost, path: "/auth/session", id: "signIn", tag: "access", summary: "Get a browser's cookie for a token",
			open: true, serve: signIn, body: loquat.SignIn{}, answers: []answer{{status: http.StatusOK, body: loquat.SignedIn{}}},
		},
		{
			method: http.MethodDelete, path: "/auth/session", id: "signOut", tag: "access", summary: "End the session of the cookie",
			open: true, serve: signOut, answers: []answer{{status: http.StatusNoContent}},
		},
		{
			method: http.MethodPost, path: "/tokens", id: "makeToken", tag: "access", summary: "Make a token",
			full: true, serve: makeToken, body: loquat.NewToken{}, answers: []answer{{status: http.StatusCreated, body: loquat.Token{}}},
		},
		{
			method: http.MethodGet, path: "/tokens", id: "listTokens", tag: "access", summary: "List the tokens",
			full: true, serve: listTokens, answers: []answer{{status: http.StatusOK, body: loquat.TokenList{}}},
		},
		{
			method: http.MethodDelete, path: "/tokens/{token_id}", id: "revokeToken", tag: "access", summary: "Revoke a token",
			full: true, serve: revokeToken, answers: []answer{{status: http.StatusNoContent}},
		},
	}
}

// door is what the outside knows of this server.
type door struct {
	public   string // server.public_url without a slash at its end, or ""
	bridge   string // bridge.url, or ""
	serverID string
	cookie   string // name of the browser's cookie
}

// newDoor names the cookie by the data, for browsers tell ports of one host not apart.
func newDoor(c *config.Config, ownID string) door {
	d := door{public: strings.TrimRight(c.Server.PublicURL, "/"), bridge: c.Bridge.URL, serverID: c.Bridge.ServerID, cookie: "loquat-" + ownID[:8]}
	if d.serverID == "" {
		d.serverID = ownID
	}
	return d
}

// base is the URL under which this server is reached.
func (d door) base(from caller) string {
	if d.public != "" {
		return d.public
	}
	return from.scheme + "://" + from.host
}

// secure reports whether browsers reach this server by HTTPS.
func (d door) secure(from caller) bool {
	return from.scheme == "https" || strings.HasPrefix(d.public, "https://")
}

// hostCookie is the prefix of cookies that browsers take from HTTPS alone, and only
// for the very host.
const hostCookie = "__Host-"

// cookie returns the cookie of that name.
func (c caller) cookie(r *http.Request, name string) (string, bool) {
	for _, n := range []string{hostCookie + name, name} {
		if cookie, err := r.Cookie(n); err == nil && cookie.Value != "" {
			return cookie.Value, true
		}
	}
	return "", false
}

// setCookie sets the browser's cookie, or takes it away when value is "".
func (x *exchange) setCookie(value string, until time.Time) {
	secure := x.api.door.secure(x.from)
	c := &http.Cookie{Name: x.api.door.cookie, Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: secure}
	if secure {
		c.Name = hostCookie + c.Name
	}
	if c.MaxAge = int(time.Until(until).Seconds()); value == "" {
		c.MaxAge = -1
	}
	http.SetCookie(x.w, c)
}

func signIn(x *exchange) error {
	in, err := decodeBody[loquat.SignIn](x)
	if err != nil {
		return err
	}
	s, err := x.api.access.keeper.SignIn(x.r.Context(), in.Token, x.from.address)
	if err != nil {
		return err
	}
	x.setCookie(s.Cookie, s.ExpiresAt)
	return x.reply(http.StatusOK, loquat.SignedIn{Name: s.Name, Scope: s.Scope, SessionID: s.SessionID, ExpiresAt: s.ExpiresAt})
}

func signOut(x *exchange) error {
	if cookie, ok := x.from.cookie(x.r, x.api.door.cookie); ok {
		if x.r.Header.Get("Origin") == "" {
			return errNoOrigin()
		}
		if err := x.api.access.keeper.SignOut(x.r.Context(), cookie); err != nil {
			return err
		}
		x.setCookie("", time.Time{})
	}
	return x.done()
}

// done answers that there is nothing more to say.
func (x *exchange) done() error {
	x.w.Header().Set("Cache-Control", "no-store")
	x.w.WriteHeader(http.StatusNoContent)
	return nil
}

func makeToken(x *exchange) error {
	in, err := decodeBody[loquat.NewToken](x)
	if err != nil {
		return err
	}
	made, secret, err := x.api.access.keeper.MakeToken(x.r.Context(), in)
	if err != nil {
		return err
	}
	out := made.AsToken()
	out.Token, out.Source = secret, ""
	x.w.Header().Set("Location", "/tokens/"+url.PathEscape(out.TokenID))
	return x.reply(http.StatusCreated, out)
}

func listTokens(x *exchange) error {
	out := loquat.TokenList{Tokens: []loquat.Token{}}
	for _, c := range x.api.access.keeper.Tokens() {
		out.Tokens = append(out.Tokens, c.AsToken())
	}
	return x.reply(http.StatusOK, out)
}

func revokeToken(x *exchange) error {
	if err := x.api.access.keeper.RevokeToken(x.r.Context(), x.r.PathValue("token_id")); err != nil {
		return err
	}
	return x.done()
}
