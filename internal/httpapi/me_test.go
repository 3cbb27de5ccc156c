package httpapi_test

import (
	"strings"
	"testing"

	"loquat"
	"loquat/internal/auth"
)

// Everybody with a valid token, or on an open server, learns who they are.
func TestWhoAmI(t *testing.T) {
	r := newRig(t)
	me := func(headers ...string) (c loquat.Caller) {
		t.Helper()
		r.do("GET", "/auth/me", "", headers...).want(t, 200).into(t, &c)
		return c
	}
	if c := me(); c != (loquat.Caller{Kind: loquat.CallerNobody, Scope: auth.Full}) {
		t.Errorf("on an open server: %+v", c)
	}
	make := func(n loquat.NewToken) (loquat.Token, string) {
		t.Helper()
		made, secret, err := r.keeper.MakeToken(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		return made.AsToken(), "Authorization: Bearer " + secret
	}
	hour := 3600
	one, bearer := make(loquat.NewToken{Name: "limited", Scope: auth.Session, SessionID: "s", ExpiresInSeconds: &hour})
	c := me(bearer)
	if !c.RequiresToken || c.Kind != loquat.CallerToken || c.Scope != auth.Session || c.SessionID != "s" || c.Name != "limited" || c.CredentialID != one.TokenID || c.Browser || c.ExpiresAt == nil || !c.ExpiresAt.Equal(*one.ExpiresAt) {
		t.Errorf("of one session: %+v, made %+v", c, one)
	}
	_, bearer = make(loquat.NewToken{Name: "reader", Scope: auth.Read})
	if c := me(bearer); c.Scope != auth.Read || c.ExpiresAt != nil {
		t.Errorf("of scope read: %+v", c)
	}
	_, secret, _ := strings.Cut(bearer, "Bearer ")
	cookie := r.do("POST", "/auth/session", `{"token":"`+secret+`"}`, "Origin: "+r.server.URL).want(t, 200).Cookies()[0]
	if c := me("Cookie: " + cookie.Name + "=" + cookie.Value); c.Scope != auth.Read || !c.Browser || c.ExpiresAt == nil {
		t.Errorf("by cookie: %+v", c)
	}
	r.do("GET", "/auth/me", "").wantProblem(t, 401, loquat.CodeUnauthorized)
	r.do("GET", "/auth/me", "", "Authorization: Bearer wrong").wantProblem(t, 401, loquat.CodeUnauthorized)
}
