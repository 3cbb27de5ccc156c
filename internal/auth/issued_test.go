package auth_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"loquat"
	"loquat/internal/auth"
	"loquat/internal/jwt"
	"loquat/internal/jwt/jwttest"
)

// JSON Web Tokens of a configured issuer close the service, and act for their users with the scope that they say.
func TestIssued(t *testing.T) {
	issuer := jwttest.New(t)
	accepts := jwt.New([]jwt.Issuer{{Issuer: issuer.URL, Audience: "loquat", Keys: issuer.URL, ScopeClaim: "scope", RoleClaim: "role"}})
	k := must(auth.Open(t.Context(), auth.Options{Store: newMemory(), Logger: quiet, Configured: auth.Configured{JWT: accepts}}))
	_, err := k.Anyone()
	wantCode(t, err, loquat.CodeUnauthorized)
	token := func(user, scope string) string {
		more := map[string]any{"role": "narrow"}
		if scope != "" {
			more["scope"] = scope
		}
		return issuer.Token(t, user, time.Hour, more)
	}
	for scope, want := range map[string]auth.Principal{
		"":        {Scope: auth.User, User: "ann"},
		auth.User: {Scope: auth.User, User: "ann"},
		auth.Read: {Scope: auth.Read},
		auth.Full: {Scope: auth.Full},
	} {
		got := must(k.Authenticate(t.Context(), token("ann", scope), here))
		if left := time.Until(got.ExpiresAt); left < 50*time.Minute || left > time.Hour || !k.Holds(got) || !k.Until(got).Equal(got.ExpiresAt) {
			t.Errorf("scope %q: it lasts %v", scope, left)
		}
		want.ID, want.Name, want.Kind, want.Role, want.ExpiresAt = issuer.URL+"\nann", "ann", auth.Issued, "narrow", got.ExpiresAt
		if got != want {
			t.Errorf("scope %q: %+v, want %+v", scope, got, want)
		}
		past := got
		if past.ExpiresAt = time.Now().Add(-time.Second); k.Holds(past) {
			t.Error("an expired token holds")
		}
		other := got
		if other.ID = "https://other.example\nann"; k.Holds(other) {
			t.Error("a token of another issuer holds")
		}
	}
	_, err = k.SignIn(t.Context(), token("ann", auth.User), here)
	wantCode(t, err, loquat.CodeForbidden)

	// Wrong tokens count as guesses. Tokens whose keys cannot be loaded do not.
	away := jwt.New([]jwt.Issuer{{Issuer: issuer.URL, Audience: "loquat", Keys: issuer.URL + "/", ScopeClaim: "scope"}, {Issuer: "https://192.0.2.1", Audience: "loquat", Keys: "http://127.0.0.1:1/keys"}})
	k.Reconfigure(auth.Configured{JWT: away})
	gone := issuer.Token(t, "ann", time.Hour, map[string]any{"iss": "https://192.0.2.1"})
	for range 101 {
		_, err = k.Authenticate(t.Context(), gone, here)
		wantCode(t, err, loquat.CodeUnavailable)
	}
	for range 100 {
		_, err = k.Authenticate(t.Context(), token("ann", auth.Session), here)
		wantCode(t, err, loquat.CodeUnauthorized)
	}
	_, err = k.Authenticate(t.Context(), token("ann", auth.Session), here)
	wantCode(t, err, loquat.CodeRateLimited)
	_, err = k.Authenticate(t.Context(), token("ann", auth.User), here)
	wantCode(t, err, "")
}

// What belongs to a principal stays its own as long as its credential is valid.
func TestOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		k := open(t, m)
		nobody := must(k.Anyone())
		owned := func(owner string) (auth.Principal, bool) {
			t.Helper()
			who, ok, err := k.OwnedBy(t.Context(), owner)
			if err != nil {
				t.Fatal(err)
			}
			return who, ok
		}
		if owner := k.Owner(nobody); owner != "" {
			t.Errorf("nobody's owner is %q", owner)
		}
		if who, ok := owned(""); !ok || who != nobody {
			t.Errorf("nobody is %+v, %v", who, ok)
		}
		k.Reconfigure(auth.Configured{Tokens: []auth.ConfigToken{{Name: "first", Token: "other"}, {Name: "config", Token: "from the file", Scope: auth.Read}}})
		if _, ok := owned(""); ok {
			t.Error("what belongs to nobody goes on after the service was closed")
		}
		_, secret := makeToken(t, k, loquat.NewToken{Name: "a", ExpiresInSeconds: new(60)})
		signIn := func(secret string) (auth.Principal, string) {
			b := must(k.SignIn(t.Context(), secret, here))
			return b.Principal, b.Cookie
		}
		stored, config := must(k.Authenticate(t.Context(), secret, here)), must(k.Authenticate(t.Context(), "from the file", here))
		browser, _ := signIn(secret)
		signedOut, cookie := signIn("from the file")
		another, _ := signIn("from the file")
		owners := map[string]auth.Principal{}
		for _, who := range []auth.Principal{stored, config, browser, signedOut, another} {
			owners[k.Owner(who)] = who
		}
		if len(owners) != 5 {
			t.Fatalf("five principals are the owners %v", owners)
		}
		for owner, want := range owners {
			if who, ok := owned(owner); !ok || who != want {
				t.Errorf("%q is %+v, %v; want %+v", owner, who, ok, want)
			}
		}
		if err := k.SignOut(t.Context(), cookie); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		for owner, who := range owners {
			if _, ok := owned(owner); ok != (who == config || who == another) {
				t.Errorf("after a minute and a sign-out %q is still there: %v", owner, ok)
			}
		}
		time.Sleep(31 * 24 * time.Hour)
		if _, ok := owned(k.Owner(another)); ok {
			t.Error("a browser session goes on after a month")
		}
		k.Reconfigure(auth.Configured{})
		for _, owner := range []string{k.Owner(config), "config:", "unknown"} {
			if _, ok := owned(owner); ok {
				t.Errorf("%q is somebody", owner)
			}
		}
	})
}

// The day of use is stored once a day, for what the store has.
func TestDayOfUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		k := open(t, m, auth.ConfigToken{Name: "config", Token: "from the file", Scope: auth.Read})
		_, secret := makeToken(t, k, loquat.NewToken{Name: "a"})
		cookie := must(k.SignIn(t.Context(), secret, here)).Cookie
		own := k.Own()
		days := map[string]bool{}
		for range 3 {
			before := m.revision
			for range 3 {
				for _, token := range []string{secret, own, "from the file"} {
					must(k.Authenticate(t.Context(), token, here))
				}
			}
			tokens := k.Tokens()
			day := tokens[slices.IndexFunc(tokens, func(c loquat.Credential) bool { return c.Name == "a" })].UsedOn
			if day != time.Now().UTC().Format(time.DateOnly) || m.revision-before > 1 || len(days) > 0 && m.revision == before {
				t.Errorf("used on %s; %d changes of the store", day, m.revision-before)
			}
			days[day] = true
			time.Sleep(24 * time.Hour)
		}
		if len(days) != 3 {
			t.Errorf("days %v", days)
		}
		before := m.revision
		if _, ok, _ := k.Browser(t.Context(), cookie); !ok || m.revision != before+1 {
			t.Errorf("a browser's use is not stored: %v, %d", ok, m.revision-before)
		}
	})
}

// A browser session ends with its token or after a month, whichever comes first.
func TestEndOfBrowserSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := open(t, newMemory())
		for seconds, want := range map[int]time.Duration{0: 30 * 24 * time.Hour, 60: time.Minute, 60 * 24 * 3600: 30 * 24 * time.Hour} {
			n := loquat.NewToken{Name: "a"}
			if seconds > 0 {
				n.ExpiresInSeconds = &seconds
			}
			_, secret := makeToken(t, k, n)
			b := must(k.SignIn(t.Context(), secret, here))
			if got := time.Until(b.ExpiresAt); got != want || b.Browser == "" || !k.Until(b.Principal).Equal(b.ExpiresAt) {
				t.Errorf("a token of %d seconds: the browser session lasts %v", seconds, got)
			}
			time.Sleep(want)
			if k.Holds(b.Principal) {
				t.Errorf("a token of %d seconds: the browser session holds after %v", seconds, want)
			}
		}
	})
}

// Lists are sorted: codes by their end, tokens by their age.
func TestOrderOfLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := open(t, newMemory())
		for range 20 {
			must(k.Pair(t.Context(), "", "", ""))
			makeToken(t, k, loquat.NewToken{Name: "a"})
			if len(k.Tokens())%2 == 0 {
				time.Sleep(time.Second)
			}
		}
		codes, tokens := k.OpenCodes(), k.Tokens()
		for i := range codes[1:] {
			if a, b := codes[i], codes[i+1]; a.ExpiresAt.After(b.ExpiresAt) || a.ExpiresAt.Equal(b.ExpiresAt) && a.Public > b.Public {
				t.Errorf("code %d is at the wrong place", i)
			}
			if a, b := tokens[i], tokens[i+1]; a.CreatedAt.After(b.CreatedAt) || a.CreatedAt.Equal(b.CreatedAt) && a.ID > b.ID {
				t.Errorf("token %d is at the wrong place", i)
			}
		}
	})
}

// A visit that has ended leaves nothing behind, and ends its context.
func TestEndOfDuring(t *testing.T) {
	k := open(t, newMemory())
	ctx, done := k.During(t.Context(), must(k.Anyone()))
	done()
	if context.Cause(ctx) != context.Canceled {
		t.Errorf("the context ends with %v", context.Cause(ctx))
	}
}

// Devices, tokens and codes are bounded. Those of users take no room from others, nor those of one user from another.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name   string
			kind   string
			scope  string
			have   map[string]int // how many there are, by user; "*" is many users with one each
			user   string         // who wants one more
			refuse bool
		}{
			{"devices", loquat.CredentialDevice, auth.Full, map[string]int{"": 999, "ann": 100}, "", false},
			{"too many devices", loquat.CredentialDevice, auth.Full, map[string]int{"": 1000}, "", true},
			{"devices of users only", loquat.CredentialDevice, auth.Full, map[string]int{"*": 1500}, "", false},
			{"a user's devices", loquat.CredentialDevice, auth.User, map[string]int{"": 1000, "ann": 99, "bob": 100}, "ann", false},
			{"too many of a user", loquat.CredentialDevice, auth.User, map[string]int{"ann": 100}, "ann", true},
			{"those of all users", loquat.CredentialDevice, auth.User, map[string]int{"*": 19_999}, "ann", false},
			{"too many of all users", loquat.CredentialDevice, auth.User, map[string]int{"*": 20_000}, "ann", true},
			{"codes", "", auth.Full, map[string]int{"": 19, "*": 500}, "", false},
			{"too many codes", "", auth.Full, map[string]int{"": 20}, "", true},
			{"codes of users", "", auth.User, map[string]int{"": 20, "*": 499}, "ann", false},
			{"too many codes of users", "", auth.User, map[string]int{"*": 500}, "ann", true},
		} {
			m := newMemory()
			number := 0
			for user, n := range c.have {
				for i := range n {
					number++
					id := fmt.Sprint("id", number)
					owner, scope := user, auth.User
					switch user {
					case "*":
						owner = fmt.Sprint("user", i)
					case "":
						scope = auth.Full
					}
					if c.kind == "" {
						m.codes[id] = loquat.PairingCode{Public: id, Scope: scope, User: owner, ExpiresAt: time.Now().Add(time.Minute)}
						continue
					}
					key := loquat.Credential{ID: id, Kind: c.kind, Scope: scope, User: owner}
					key.Digest[0], key.Digest[1], key.Digest[2] = byte(number), byte(number>>8), 1
					m.keys[id] = key
				}
			}
			k := open(t, m)
			code, err := k.Pair(t.Context(), c.scope, c.user, "")
			if c.kind != "" {
				if err != nil {
					t.Fatal(err)
				}
				_, _, err = k.Claim(t.Context(), code.Code, "phone", here)
			}
			if (err != nil) != c.refuse {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	})
}

// A code is read as people type it. Its public part does not depend on that.
func TestPublicParts(t *testing.T) {
	k := open(t, newMemory())
	code := must(k.Pair(t.Context(), auth.User, "ann", "")).Code
	public, ok := auth.PublicPart(" " + strings.ToLower(code) + " ")
	if !ok || !strings.HasPrefix(code, public+"-") {
		t.Errorf("the public part of %s is %q", code, public)
	}
	for _, typed := range []string{"", public, public + "-", code + "0", "0" + code, code[:len(code)-1]} {
		if public, ok := auth.PublicPart(typed); ok {
			t.Errorf("%q has the public part %q", typed, public)
		}
	}
	device, _, err := k.Claim(t.Context(), code, "phone", here)
	if err != nil || device.User != "ann" || device.Scope != auth.User {
		t.Errorf("%+v, %v", device, err)
	}
}
