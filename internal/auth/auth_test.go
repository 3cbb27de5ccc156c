package auth_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"loquat"
	"loquat/internal/auth"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a store in memory that can be made to fail.
type memory struct {
	mu       sync.Mutex
	keys     map[string]loquat.Credential
	codes    map[string]loquat.PairingCode
	revision int64
	debts    map[string]time.Time // until
	looks    int                  // how often a revision was asked for
	fail     error
}

func newMemory() *memory {
	return &memory{keys: map[string]loquat.Credential{}, codes: map[string]loquat.PairingCode{}, debts: map[string]time.Time{}}
}

func (m *memory) LoadCredentials(context.Context) (out loquat.Credentials, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range m.keys {
		out.Credentials = append(out.Credentials, k)
	}
	for _, c := range m.codes {
		out.Codes = append(out.Codes, c)
	}
	out.Revision = m.revision
	return out, m.fail
}

func (m *memory) ChangeCredentials(_ context.Context, c loquat.CredentialChange) (int64, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil || c.Revision != m.revision {
		return m.revision, false, m.fail
	}
	m.revision++
	for _, id := range c.Remove {
		delete(m.keys, id)
	}
	for _, k := range c.Add {
		m.keys[k.ID] = k
	}
	for _, code := range c.Codes {
		m.codes[code.Public] = code
	}
	for _, public := range c.Drop {
		delete(m.codes, public)
	}
	return m.revision, true, nil
}

func (m *memory) UseCredential(_ context.Context, u loquat.CredentialUse) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k, ok := m.keys[u.ID]; ok && m.fail == nil {
		k.UsedOn = u.Day
		m.keys[u.ID] = k
		m.revision++
	}
	return m.fail
}

func open(t testing.TB, m *memory, tokens ...auth.ConfigToken) *auth.Keeper {
	t.Helper()
	k, err := auth.Open(t.Context(), auth.Options{Store: m, Configured: auth.Configured{Tokens: tokens}, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

var quiet = slog.New(slog.DiscardHandler)

var here = netip.MustParseAddr("192.0.2.1")

// must returns the value of a call that cannot fail in this test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func makeToken(t testing.TB, k *auth.Keeper, n loquat.NewToken) (id, secret string) {
	t.Helper()
	key, secret, err := k.MakeToken(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return key.ID, secret
}

func wantCode(t testing.TB, err error, want loquat.Code) {
	t.Helper()
	if got := loquat.CodeOf(err); got != want {
		t.Errorf("got %v, want %q", err, want)
	}
}

func TestTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		k := open(t, m, auth.ConfigToken{Name: "admin", Token: "from the file", Scope: auth.Full})
		id, secret := makeToken(t, k, loquat.NewToken{Name: "laptop", ExpiresInSeconds: new(3600)})
		_, other := makeToken(t, k, loquat.NewToken{Name: "guest", Scope: auth.Session, SessionID: "s"})

		for _, k := range []*auth.Keeper{k, open(t, m, auth.ConfigToken{Name: "admin", Token: "from the file", Scope: auth.Full})} {
			got := must(k.Authenticate(t.Context(), "from the file", here))
			if want := (auth.Principal{ID: "auth_tokens[admin]", Name: "admin", Kind: loquat.CredentialConfig, Scope: auth.Full}); got != want {
				t.Errorf("got %v, want %v", got, want)
			}
			got = must(k.Authenticate(t.Context(), secret, here))
			if want := (auth.Principal{ID: id, Name: "laptop", Kind: loquat.CredentialToken, Scope: auth.Full}); got != want {
				t.Errorf("got %v, want %v", got, want)
			}
			if got = must(k.Authenticate(t.Context(), other, here)); got.SessionID != "s" || got.Scope != auth.Session {
				t.Errorf("got %v", got)
			}
			_, err := k.Authenticate(t.Context(), strings.ToUpper(secret), here)
			wantCode(t, err, loquat.CodeUnauthorized)
			if !k.Closed() || len(k.Grants()) != 3 {
				t.Errorf("closed: %v; grants: %v", k.Closed(), k.Grants())
			}
		}
		// The day of the last use is on disk, once a day.
		if got := m.keys[id].UsedOn; got != time.Now().UTC().Format(time.DateOnly) {
			t.Errorf("used on %q", got)
		}
		// Stored data cannot be used as a token.
		if kept := fmt.Sprint(m.keys); strings.Contains(kept, secret) || strings.Contains(kept, "from the file") {
			t.Errorf("kept is %s", kept)
		}

		time.Sleep(time.Hour)
		_, err := k.Authenticate(t.Context(), secret, here)
		wantCode(t, err, loquat.CodeUnauthorized)
		if len(k.Tokens()) != 3 || len(k.Grants()) != 2 {
			t.Errorf("an expired token is listed, but opens nothing: %v; %v", k.Tokens(), k.Grants())
		}
		wantCode(t, k.RevokeToken(t.Context(), "auth_tokens[admin]"), loquat.CodeNotFound)
		wantCode(t, k.RevokeToken(t.Context(), id), "")
		wantCode(t, k.RevokeToken(t.Context(), id), loquat.CodeNotFound)
	})
}

// A token of scope user names its user. Bridges get none of these tokens, and expired ones are removed when another
// is made.
func TestTokensOfUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		k := open(t, m, auth.ConfigToken{Name: "carl", Token: "from the file", Scope: auth.User, User: "carl"})
		if got := must(k.Authenticate(t.Context(), "from the file", here)); got.User != "carl" || got.Scope != auth.User {
			t.Errorf("got %v", got)
		}
		_, full := makeToken(t, k, loquat.NewToken{Name: "backend"})
		var secret string
		for i := range 3 {
			_, secret = makeToken(t, k, loquat.NewToken{Name: "visit", Scope: auth.User, User: "ann", ExpiresInSeconds: new(60 + i)})
		}
		browser := must(k.SignIn(t.Context(), secret, here))
		if browser.User != "ann" || browser.Scope != auth.User {
			t.Errorf("signed in as %v", browser.Principal)
		}
		if got, ok, err := open(t, m).Browser(t.Context(), browser.Cookie); !ok || err != nil || got.User != "ann" {
			t.Errorf("the cookie is of %v, %v, %v", got, ok, err)
		}
		if g := k.Grants(); len(g) != 1 || g[0].Scope != auth.Full {
			t.Errorf("grants %v", g)
		}
		time.Sleep(time.Hour)
		if n := len(k.Tokens()); n != 5 {
			t.Errorf("%d tokens before another is made", n)
		}
		id, _ := makeToken(t, k, loquat.NewToken{Name: "visit", Scope: auth.User, User: "bob"})
		if all := k.Tokens(); len(all) != 3 || all[2].ID != id || len(m.keys) != 2 {
			t.Errorf("%d tokens afterwards, %d are stored", len(all), len(m.keys))
		}
		must(k.Authenticate(t.Context(), full, here))
		for name, n := range map[string]loquat.NewToken{
			"no user": {Scope: auth.User}, "a user of another scope": {Scope: auth.Read, User: "ann"}, "control characters": {Scope: auth.User, User: "a\nb"},
			"too long": {Scope: auth.User, User: strings.Repeat("x", 129)}, "a session as well": {Scope: auth.User, User: "ann", SessionID: "s"},
		} {
			n.Name = name
			_, _, err := k.MakeToken(t.Context(), n)
			wantCode(t, err, loquat.CodeInvalid)
		}
	})
}

// A device that claims a code of a user acts for the user. Codes and devices of users take no room from others.
func TestDevicesOfUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		k := open(t, m)
		code := must(k.Pair(t.Context(), auth.User, "ann", ""))
		device, secret, err := open(t, m).Claim(t.Context(), code.Code, "phone", here)
		if err != nil || device.User != "ann" || device.Scope != auth.User {
			t.Fatalf("claimed %+v, %v", device, err)
		}
		k = open(t, m)
		if who := must(k.Authenticate(t.Context(), secret, here)); who.User != "ann" || who.Kind != loquat.CredentialDevice {
			t.Errorf("the device is %v", who)
		}
		if len(k.Devices("ann")) != 1 || len(k.Devices("bob")) != 0 || len(k.Devices("")) != 1 || len(k.Grants()) != 0 {
			t.Errorf("devices %v, %v, %v; grants %v", k.Devices("ann"), k.Devices("bob"), k.Devices(""), k.Grants())
		}
		wantCode(t, k.RemoveDevice(t.Context(), device.ID, "bob"), loquat.CodeNotFound)
		wantCode(t, k.RemoveDevice(t.Context(), device.ID, "ann"), "")
		for i := range 6 {
			_, err := k.Pair(t.Context(), auth.User, "ann", "")
			if (err == nil) != (i < 5) {
				t.Errorf("code %d of a user: %v", i, err)
			}
		}
		must(k.Pair(t.Context(), auth.User, "bob", ""))
		for range 20 {
			must(k.Pair(t.Context(), auth.Full, "", ""))
		}
		_, err = k.Pair(t.Context(), auth.Full, "", "")
		wantCode(t, err, loquat.CodeRateLimited)
		must(k.Pair(t.Context(), auth.User, "carl", ""))
		for _, c := range [][2]string{{auth.User, ""}, {auth.Read, "ann"}, {auth.Full, "ann"}, {auth.User, "a\nb"}} {
			_, err := k.Pair(t.Context(), c[0], c[1], "")
			wantCode(t, err, loquat.CodeInvalid)
		}
	})
}

// A credential of scope user without a user, as an older program may leave it, opens nothing.
func TestUserMissing(t *testing.T) {
	m := newMemory()
	id, secret := makeToken(t, open(t, m), loquat.NewToken{Name: "visit", Scope: auth.User, User: "ann"})
	key := m.keys[id]
	key.User = ""
	m.keys[id] = key
	_, err := open(t, m).Authenticate(t.Context(), secret, here)
	wantCode(t, err, loquat.CodeUnauthorized)
}

// An expired token keeps the service closed. A revoked one does not, so the last token of a
// reachable service cannot be revoked.
func TestClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		k := open(t, m)
		if _, err := k.Anyone(); k.Closed() || err != nil {
			t.Errorf("it is closed without tokens: %v", err)
		}
		own := k.Own()
		if got := must(k.Authenticate(t.Context(), own, here)); k.Closed() || got.Scope != auth.Full {
			t.Errorf("the process's own token: %v", got)
		}
		id, _ := makeToken(t, k, loquat.NewToken{Name: "short", ExpiresInSeconds: new(1)})
		time.Sleep(time.Minute)
		_, err := k.Anyone()
		wantCode(t, err, loquat.CodeUnauthorized)

		exposed := must(auth.Open(t.Context(), auth.Options{Store: m, Configured: auth.Configured{Exposed: true}, Logger: slog.New(slog.DiscardHandler)}))
		wantCode(t, exposed.RevokeToken(t.Context(), id), loquat.CodeConflict)
		second, _ := makeToken(t, exposed, loquat.NewToken{Name: "second"})
		wantCode(t, exposed.RevokeToken(t.Context(), id), "")
		wantCode(t, exposed.RevokeToken(t.Context(), second), loquat.CodeConflict)
		wantCode(t, open(t, m).RevokeToken(t.Context(), second), "")
	})
}

func TestRefusedTokens(t *testing.T) {
	k := open(t, newMemory())
	for _, n := range []loquat.NewToken{
		{Name: ""}, {Name: strings.Repeat("x", 101)}, {Name: "two\nlines"}, {Name: "x", Scope: "half"},
		{Name: "x", Scope: auth.Session}, {Name: "x", SessionID: "s"}, {Name: "x", ExpiresInSeconds: new(-1)},
	} {
		_, _, err := k.MakeToken(t.Context(), n)
		wantCode(t, err, loquat.CodeInvalid)
	}
	_, err := k.Pair(t.Context(), auth.Session, "", "")
	wantCode(t, err, loquat.CodeInvalid)
	_, _, err = k.Claim(t.Context(), "ABCD-0123456789", "", here)
	wantCode(t, err, loquat.CodeInvalid)
}

// A credential that was not stored is not acknowledged and is not valid.
func TestFailingStore(t *testing.T) {
	m := newMemory()
	k := open(t, m)
	id, secret := makeToken(t, k, loquat.NewToken{Name: "laptop"})
	code := must(k.Pair(t.Context(), auth.Full, "", ""))
	m.fail = errors.New("the disk is full")
	for what, try := range map[string]func() error{
		"make":   func() error { _, _, err := k.MakeToken(t.Context(), loquat.NewToken{Name: "x"}); return err },
		"revoke": func() error { return k.RevokeToken(t.Context(), id) },
		"pair":   func() error { _, err := k.Pair(t.Context(), "", "", ""); return err },
		"claim":  func() error { _, _, err := k.Claim(t.Context(), code.Code, "x", here); return err },
		"signin": func() error { _, err := k.SignIn(t.Context(), secret, here); return err },
	} {
		if err := try(); !errors.Is(err, m.fail) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := k.Authenticate(t.Context(), secret, here); err != nil {
		t.Errorf("a good token is refused, because its use cannot be noted: %v", err)
	}
	if len(k.Tokens()) != 1 || len(k.Devices("")) != 0 || len(k.OpenCodes()) != 1 {
		t.Errorf("there are %v, %v, %v", k.Tokens(), k.Devices(""), k.OpenCodes())
	}
	m.fail = nil
	_, _, err := k.Claim(t.Context(), code.Code, "x", here)
	wantCode(t, err, "")
}

func TestPairing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		k := open(t, m)
		code := must(k.Pair(t.Context(), "", "", ""))
		public, secret, _ := strings.Cut(code.Code, "-")
		if len(public) != 4 || len(secret)*5 < 40 || time.Until(code.ExpiresAt) != 5*time.Minute {
			t.Errorf("the code is %+v", code)
		}
		// People type as they like; also on another day, after a restart.
		typed := " " + strings.ToLower(public) + "-" + secret[:3] + " " + strings.NewReplacer("0", "o", "1", "l").Replace(secret[3:6]) + "-" + secret[6:] + "\n"
		k = open(t, m)
		device, token, err := k.Claim(t.Context(), typed, "a phone", here)
		if err != nil || device.Scope != auth.Read {
			t.Fatalf("%q: %v, %v", typed, device, err)
		}
		if got := must(k.Authenticate(t.Context(), token, here)); got.ID != device.ID || got.Kind != loquat.CredentialDevice {
			t.Errorf("the device is %v", got)
		}
		_, _, err = k.Claim(t.Context(), code.Code, "another phone", here)
		wantCode(t, err, loquat.CodeUnauthorized)
		if k.Closed() {
			t.Error("a device closes the service")
		}

		// Five wrong secrets lock a code, and not others.
		code, other := must(k.Pair(t.Context(), auth.Full, "", "")), must(k.Pair(t.Context(), auth.Full, "", ""))
		for range 5 {
			_, _, err = k.Claim(t.Context(), code.Code[:5]+"0000000000", "x", here)
			wantCode(t, err, loquat.CodeUnauthorized)
		}
		for _, k := range []*auth.Keeper{k, open(t, m)} {
			_, _, err = k.Claim(t.Context(), code.Code, "x", here)
			wantCode(t, err, loquat.CodeUnauthorized)
			if open := k.OpenCodes(); len(open) != 1 || open[0].Public != other.Code[:4] {
				t.Errorf("open are %v", open)
			}
		}

		// Time ends one.
		time.Sleep(5 * time.Minute)
		_, _, err = k.Claim(t.Context(), other.Code, "x", here)
		wantCode(t, err, loquat.CodeUnauthorized)

		// There are only so many, until time makes room.
		for range 20 {
			must(k.Pair(t.Context(), "", "", ""))
		}
		_, err = k.Pair(t.Context(), "", "", "")
		wantCode(t, err, loquat.CodeRateLimited)
		time.Sleep(5 * time.Minute)
		must(k.Pair(t.Context(), "", "", ""))
		if len(m.codes) != 1 {
			t.Errorf("%d codes are kept, of which all but one have expired", len(m.codes))
		}
	})
}

// A code makes one device, however many claim it at once.
func TestClaimOnce(t *testing.T) {
	k := open(t, newMemory())
	code := must(k.Pair(t.Context(), "", "", ""))
	var wg sync.WaitGroup
	var mu sync.Mutex
	got := 0
	for i := range 50 {
		wg.Go(func() {
			_, _, err := k.Claim(t.Context(), code.Code, "x", netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				got++
			}
		})
	}
	wg.Wait()
	if got != 1 || len(k.Devices("")) != 1 {
		t.Errorf("%d claims got through, %d devices", got, len(k.Devices("")))
	}
}

// Contexts of a revoked or expired credential are cancelled at once, and no others.
func TestDuring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := open(t, newMemory())
		nobody := must(k.Anyone())
		anyone, done := k.During(t.Context(), nobody)
		defer done()
		id, secret := makeToken(t, k, loquat.NewToken{Name: "a"})
		_, lasting := makeToken(t, k, loquat.NewToken{Name: "b"})
		_, brief := makeToken(t, k, loquat.NewToken{Name: "c", ExpiresInSeconds: new(60)})
		if context.Cause(anyone) != auth.ErrEnded || k.Holds(nobody) {
			t.Error("nobody is still here after the first token was made")
		}

		cookie := must(k.SignIn(t.Context(), secret, here)).Cookie
		kept := must(k.SignIn(t.Context(), lasting, here)).Cookie
		over := must(k.SignIn(t.Context(), lasting, here)).Cookie
		browser := func(cookie string) auth.Principal {
			p, ok, _ := k.Browser(t.Context(), cookie)
			if !ok {
				t.Fatal("a cookie is not known")
			}
			return p
		}
		principals := map[string]auth.Principal{
			"token": must(k.Authenticate(t.Context(), secret, here)), "its browser": browser(cookie),
			"lasting": must(k.Authenticate(t.Context(), lasting, here)), "its browser, kept": browser(kept), "its browser, over": browser(over),
			"brief": must(k.Authenticate(t.Context(), brief, here)),
		}
		visits := map[string]context.Context{}
		for who, p := range principals {
			ctx, done := k.During(t.Context(), p)
			defer done()
			visits[who] = ctx
		}
		changed := k.Changed()
		check := func(after string, gone ...string) {
			t.Helper()
			for who, ctx := range visits {
				ended := slices.Contains(gone, who)
				if (ctx.Err() != nil) != ended || k.Holds(principals[who]) == ended || ended && context.Cause(ctx) != auth.ErrEnded {
					t.Errorf("after %s: %s is %v, %v", after, who, ctx.Err(), context.Cause(ctx))
				}
			}
		}
		check("nothing")
		if err := k.RevokeToken(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		<-changed
		check("the token was revoked", "token", "its browser")
		if _, ok, _ := k.Browser(t.Context(), cookie); ok {
			t.Error("the cookie of a token that was revoked is good")
		}
		if err := k.SignOut(t.Context(), over); err != nil {
			t.Fatal(err)
		}
		check("a browser signed out", "token", "its browser", "its browser, over")
		time.Sleep(time.Minute)
		synctest.Wait()
		check("time", "token", "its browser", "its browser, over", "brief")
		late, done := k.During(t.Context(), principals["token"])
		defer done()
		if context.Cause(late) != auth.ErrEnded {
			t.Error("a visit begins after its token was revoked")
		}
	})
}

// A browser session lasts at most a month, never longer than its token, and survives a
// restart.
func TestBrowsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		file := auth.ConfigToken{Name: "admin", Token: "from the file", Scope: auth.Read}
		k := open(t, m, file)
		_, brief := makeToken(t, k, loquat.NewToken{Name: "a", ExpiresInSeconds: new(3600)})
		long, short := must(k.SignIn(t.Context(), "from the file", here)), must(k.SignIn(t.Context(), brief, here))
		_, err := k.SignIn(t.Context(), "wrong", here)
		wantCode(t, err, loquat.CodeUnauthorized)
		good := func(k *auth.Keeper, cookie string) bool { _, ok, _ := k.Browser(t.Context(), cookie); return ok }
		if k := open(t, m, file); !good(k, long.Cookie) || !good(k, short.Cookie) || good(k, "x") || good(k, brief) {
			t.Error("after a restart browsers have to sign in again")
		}
		if good(open(t, m), long.Cookie) {
			t.Error("a cookie outlives its token")
		}
		file.Scope = auth.Full // which the cookie follows
		if p, _, _ := open(t, m, file).Browser(t.Context(), long.Cookie); p.Scope != auth.Full {
			t.Errorf("the browser is %v", p)
		}
		time.Sleep(time.Hour)
		if good(k, short.Cookie) || !good(k, long.Cookie) {
			t.Error("a cookie does not end with its token")
		}
		time.Sleep(30 * 24 * time.Hour)
		if good(k, long.Cookie) {
			t.Error("a cookie is good after a month")
		}
		for range 150 {
			must(k.SignIn(t.Context(), "from the file", here))
		}
		if len(m.keys) != 101 { // and the token
			t.Errorf("%d keys are kept", len(m.keys))
		}
	})
}

// Guessing is slowed down to one attempt per minute. Valid tokens and other addresses are
// never throttled.
func TestGuessing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := open(t, newMemory())
		_, secret := makeToken(t, k, loquat.NewToken{Name: "a"})
		guess := func(from string) int {
			_, err := k.Authenticate(t.Context(), "wrong", netip.MustParseAddr(from))
			e, _ := errors.AsType[*loquat.Error](err)
			if (e.Code == loquat.CodeRateLimited) != (e.RetryAfter > 0) {
				t.Errorf("got %+v", e)
			}
			return e.RetryAfter
		}
		for i := range 100 {
			if wait := guess("2001:db8::1"); wait != 0 {
				t.Fatalf("guess %d has to wait %d s", i, wait)
			}
		}
		for range 3 {
			if wait := guess("2001:db8::ffff"); wait != 60 { // the same network
				t.Errorf("the guess has to wait %d s, want 60 s", wait)
			}
			time.Sleep(time.Minute)
			if wait := guess("2001:db8::1"); wait != 0 {
				t.Errorf("after a minute the guess has to wait %d s", wait)
			}
		}
		guess("2001:db8::1")
		if guess("2001:db8:1::1") != 0 || guess("192.0.2.1") != 0 {
			t.Error("other addresses are held up")
		}
		if _, err := k.Authenticate(t.Context(), secret, netip.MustParseAddr("2001:db8::1")); err != nil {
			t.Errorf("a good token has to wait: %v", err)
		}
		time.Sleep(11 * time.Minute)
		if wait := guess("2001:db8::1"); wait != 0 {
			t.Errorf("after a pause, %d s to wait", wait)
		}

		// Codes are throttled too, even right ones, because codes are much shorter.
		code := must(k.Pair(t.Context(), "", "", ""))
		for range 20 {
			_, _, err := k.Claim(t.Context(), "nonsense", "x", here)
			wantCode(t, err, loquat.CodeUnauthorized)
		}
		_, _, err := k.Claim(t.Context(), code.Code, "x", here)
		wantCode(t, err, loquat.CodeRateLimited)
		time.Sleep(time.Minute)
		_, _, err = k.Claim(t.Context(), code.Code, "x", here)
		wantCode(t, err, "")
	})
}
