package auth_test

import (
	"context"
	"testing"

	"loquat"
	"loquat/internal/auth"
	"loquat/internal/jwt"
)

// A changed configuration ends what its removed and changed tokens have open, and nothing else.
func TestReconfigure(t *testing.T) {
	token := func(name, secret, scope string) auth.ConfigToken {
		return auth.ConfigToken{Name: name, Token: secret, Scope: scope}
	}
	issuer := jwt.New([]jwt.Issuer{{Issuer: "https://id.example", Audience: "loquat", Keys: "https://id.example/keys"}})
	m := newMemory()
	k, err := auth.Open(t.Context(), auth.Options{Store: m, Logger: quiet, Configured: auth.Configured{JWT: issuer, Roles: []string{"old"}, Tokens: []auth.ConfigToken{
		token("goes", "1", auth.Full), token("stays", "2", auth.Full), token("moves", "3", auth.Read), token("is replaced", "4", auth.Full), token("may less", "5", auth.Full),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	_, stored := makeToken(t, k, loquat.NewToken{Name: "stored", Role: "old"})
	own := k.Own()
	open := map[string]context.Context{}
	follow := func(name string, who auth.Principal) {
		ctx, done := k.During(t.Context(), who)
		t.Cleanup(done)
		open[name] = ctx
	}
	for name, secret := range map[string]string{"goes": "1", "stays": "2", "moves": "3", "is replaced": "4", "may less": "5", "stored": stored, "own": own} {
		follow(name, must(k.Authenticate(t.Context(), secret, here)))
	}
	signedIn := must(k.SignIn(t.Context(), "2", here))
	follow("the browser of what stays", signedIn.Principal)
	signedIn = must(k.SignIn(t.Context(), "4", here))
	follow("the browser of what is replaced", signedIn.Principal)
	follow("issued", auth.Principal{ID: "https://id.example\nann", Kind: auth.Issued, Scope: auth.User, User: "ann"})
	owner := k.Owner(must(k.Authenticate(t.Context(), "3", here)))

	wantOpen := func(step string, ended map[string]bool) {
		t.Helper()
		for name, ctx := range open {
			if got := context.Cause(ctx) == auth.ErrEnded; got != ended[name] {
				t.Errorf("%s: %s: ended is %v, want %v", step, name, got, ended[name])
			}
		}
	}
	k.Reconfigure(auth.Configured{JWT: issuer, Roles: []string{"new"}, Tokens: []auth.ConfigToken{
		token("moves", "3", auth.Read), token("new", "6", auth.Full), token("may less", "5", auth.Read), token("is replaced", "44", auth.Full), token("stays", "2", auth.Full),
	}})
	ended := map[string]bool{"goes": true, "is replaced": true, "may less": true, "the browser of what is replaced": true}
	wantOpen("some change", ended)
	for secret, want := range map[string]loquat.Code{"1": loquat.CodeUnauthorized, "2": "", "3": "", "4": loquat.CodeUnauthorized, "44": "", "5": "", "6": "", stored: ""} {
		_, err := k.Authenticate(t.Context(), secret, here)
		if got := loquat.CodeOf(err); err == nil && want != "" || err != nil && got != want {
			t.Errorf("%q: %v, want %q", secret, err, want)
		}
	}
	if got := k.Owner(must(k.Authenticate(t.Context(), "3", here))); got != owner {
		t.Error("what belongs to a token that moved belongs to it no more")
	}
	_, _, err = k.MakeToken(t.Context(), loquat.NewToken{Name: "a", Role: "old"})
	wantCode(t, err, loquat.CodeInvalid)
	makeToken(t, k, loquat.NewToken{Name: "b", Role: "new"})
	if !k.Stores() {
		t.Error("the store has tokens")
	}

	k.Reconfigure(auth.Configured{})
	for _, name := range []string{"stays", "moves", "the browser of what stays", "issued"} {
		ended[name] = true
	}
	wantOpen("all go", ended)
	if !k.Closed() {
		t.Error("the stored tokens still count")
	}
}

// A token that the configuration and the store have stays when the configuration drops it.
func TestReconfigureSameSecret(t *testing.T) {
	m := newMemory()
	k := open(t, m)
	_, secret := makeToken(t, k, loquat.NewToken{Name: "stored"})
	k.Reconfigure(auth.Configured{Tokens: []auth.ConfigToken{{Name: "same", Token: secret, Scope: auth.Read}}})
	k.Reconfigure(auth.Configured{})
	if _, err := k.Authenticate(t.Context(), secret, here); err != nil {
		t.Error(err)
	}
}

// Nobody's streams end when the configuration closes the service, and nobody may call it then.
func TestReconfigureCloses(t *testing.T) {
	k := open(t, newMemory())
	ctx, done := k.During(t.Context(), must(k.Anyone()))
	defer done()
	k.Reconfigure(auth.Configured{Tokens: []auth.ConfigToken{{Name: "a", Token: "1", Scope: auth.Full}}})
	if context.Cause(ctx) != auth.ErrEnded {
		t.Error("the stream goes on")
	}
	_, err := k.Anyone()
	wantCode(t, err, loquat.CodeUnauthorized)
}
