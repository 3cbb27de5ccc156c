package httpapi

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"loquat/internal/auth"
	"loquat/internal/config"
)

func (a *api) authRoutes() []route {
	return []route{
		{
			method: http.MethodPost, path: "/auth/session", id: "signIn", tag: "access", summary: "Get a browser's cookie for a token",
			open: true, serve: signIn, body: signInBody{}, answers: []answer{{status: http.StatusOK, body: signInAnswer{}}},
		},
		{
			method: http.MethodDelete, path: "/auth/session", id: "signOut", tag: "access", summary: "End the session of the cookie",
			open: true, serve: signOut, answers: []answer{{status: http.StatusNoContent}},
		},
		{
			method: http.MethodPost, path: "/tokens", id: "makeToken", tag: "access", summary: "Make a token",
			full: true, serve: makeToken, body: tokenBody{}, answers: []answer{{status: http.StatusCreated, body: newTokenAnswer{}}},
		},
		{
			method: http.MethodGet, path: "/tokens", id: "listTokens", tag: "access", summary: "List the tokens",
			full: true, serve: listTokens, answers: []answer{{status: http.StatusOK, body: tokenList{}}},
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

// signInBody shows a token.
type signInBody struct {
	Token string `json:"token" minLength:"1"`
}

func (signInBody) required() {}

// signInAnswer says as what the browser is signed in.
type signInAnswer struct {
	Name      string    `json:"name"`
	Scope     string    `json:"scope"`
	SessionID string    `json:"session_id,omitempty"`
	ExpiresAt time.Time `json:"expires_at"`
}

func signIn(x *exchange) error {
	in, err := decodeBody[signInBody](x)
	if err != nil {
		return err
	}
	s, err := x.api.access.keeper.SignIn(x.r.Context(), in.Token, x.from.address)
	if err != nil {
		return err
	}
	x.setCookie(s.Cookie, s.ExpiresAt)
	return x.reply(http.StatusOK, signInAnswer{Name: s.Name, Scope: s.Scope, SessionID: s.SessionID, ExpiresAt: s.ExpiresAt})
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

// tokenBody says what a token shall be.
type tokenBody struct {
	Name             string `json:"name" minLength:"1" maxLength:"100" doc:"To tell it from others."`
	Scope            string `json:"scope,omitempty" enum:"full,read,session" default:"full"`
	SessionID        string `json:"session_id,omitempty" doc:"Of scope session: the one that it opens."`
	ExpiresInSeconds *int   `json:"expires_in_seconds,omitempty" minimum:"1" maximum:"3153600000" doc:"For ever when left out."`
}

func (tokenBody) required() {}

// tokenAnswer is a token without its secret.
type tokenAnswer struct {
	TokenID    string     `json:"token_id"`
	Name       string     `json:"name"`
	Source     string     `json:"source" enum:"config,made" doc:"config is server.auth_tokens; only made ones can be revoked."`
	Scope      string     `json:"scope"`
	SessionID  string     `json:"session_id,omitempty"`
	CreatedAt  *time.Time `json:"created_at,omitempty"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty"`
	LastUsedOn string     `json:"last_used_on,omitempty" doc:"The day, in UTC."`
}

// newTokenAnswer is a token with its secret, which is shown this once.
type newTokenAnswer struct {
	TokenID   string     `json:"token_id"`
	Token     string     `json:"token" doc:"The secret. It is not kept and cannot be shown again."`
	Name      string     `json:"name"`
	Scope     string     `json:"scope"`
	SessionID string     `json:"session_id,omitempty"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
}

// tokenList is the answer of GET /tokens.
type tokenList struct {
	Tokens []tokenAnswer `json:"tokens"`
}

func makeToken(x *exchange) error {
	in, err := decodeBody[tokenBody](x)
	if err != nil {
		return err
	}
	t := auth.NewToken{Name: in.Name, Scope: in.Scope, SessionID: in.SessionID}
	if in.ExpiresInSeconds != nil {
		t.Lifetime = time.Duration(*in.ExpiresInSeconds) * time.Second
	}
	key, secret, err := x.api.access.keeper.MakeToken(x.r.Context(), t)
	if err != nil {
		return err
	}
	x.w.Header().Set("Location", "/tokens/"+url.PathEscape(key.ID))
	return x.reply(http.StatusCreated, newTokenAnswer{
		TokenID: key.ID, Token: secret, Name: key.Name, Scope: key.Scope, SessionID: key.SessionID, CreatedAt: key.CreatedAt, ExpiresAt: notZero(key.ExpiresAt),
	})
}

func listTokens(x *exchange) error {
	out := tokenList{Tokens: []tokenAnswer{}}
	for _, key := range x.api.access.keeper.Tokens() {
		source := "made"
		if key.Kind == auth.Config {
			source = "config"
		}
		out.Tokens = append(out.Tokens, tokenAnswer{
			TokenID: key.ID, Name: key.Name, Source: source, Scope: key.Scope, SessionID: key.SessionID,
			CreatedAt: notZero(key.CreatedAt), ExpiresAt: notZero(key.ExpiresAt), LastUsedOn: key.UsedOn,
		})
	}
	return x.reply(http.StatusOK, out)
}

func notZero(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func revokeToken(x *exchange) error {
	if err := x.api.access.keeper.RevokeToken(x.r.Context(), x.r.PathValue("token_id")); err != nil {
		return err
	}
	return x.done()
}
