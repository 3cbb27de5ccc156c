package auth_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"loquat"
	"loquat/internal/auth"
)

// node is the memory as one of several nodes sees it.
type node struct {
	*memory
	changed func(context.Context) error
}

func (n *node) Shared() bool                                 { return true }
func (n *node) OnCredentials(fn func(context.Context) error) { n.changed = fn }

func (n *node) CredentialsRevision(context.Context) (int64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.looks++
	return n.revision, n.fail
}

func (n *node) AddDebts(_ context.Context, keys []string, add []time.Duration) ([]time.Duration, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fail != nil {
		return nil, n.fail
	}
	sums := make([]time.Duration, len(keys))
	for i, key := range keys {
		until := n.debts[key]
		if until.Before(time.Now()) {
			until = time.Now()
		}
		n.debts[key] = until.Add(add[i])
		sums[i] = time.Until(n.debts[key])
	}
	return sums, nil
}

// twoNodes opens two keepers on one store. They do not learn of each other's changes before
// notify is called.
func twoNodes(t testing.TB, m *memory) (keepers [2]*auth.Keeper, notify func()) {
	t.Helper()
	var nodes [2]*node
	for i := range nodes {
		nodes[i] = &node{memory: m}
		keepers[i] = must(auth.Open(t.Context(), auth.Options{Store: nodes[i], Logger: quiet, Configured: auth.Configured{Exposed: true}}))
	}
	return keepers, func() {
		for _, n := range nodes {
			if err := n.changed(context.Background()); err != nil {
				t.Error(err)
			}
		}
	}
}

// A credential that one node made is valid at another node at once. A revoked one is not after
// the store has reported the change, and what runs with it ends.
func TestCredentialsOfAnotherNode(t *testing.T) {
	k, notify := twoNodes(t, newMemory())
	_, lasting := makeToken(t, k[0], loquat.NewToken{Name: "lasting"})
	if _, err := k[1].Anyone(); err != nil {
		t.Errorf("before the other node knows of a token: %v", err)
	}
	if _, err := k[1].Authenticate(t.Context(), lasting, here); err != nil {
		t.Errorf("a token of the other node: %v", err)
	}
	_, err := k[1].Anyone()
	wantCode(t, err, loquat.CodeUnauthorized)

	id, secret := makeToken(t, k[0], loquat.NewToken{Name: "a"})
	session := must(k[1].SignIn(t.Context(), secret, here))
	browser, ok, err := k[0].Browser(t.Context(), session.Cookie)
	if !ok || err != nil {
		t.Fatalf("a browser that signed in at the other node: %v, %v", ok, err)
	}
	code := must(k[1].Pair(t.Context(), "", "", ""))
	device, phone, err := k[0].Claim(t.Context(), code.Code, "phone", here)
	if err != nil {
		t.Fatalf("a code of the other node: %v", err)
	}
	var streams []context.Context
	for _, p := range []auth.Principal{must(k[1].Authenticate(t.Context(), secret, here)), must(k[1].Authenticate(t.Context(), phone, here)), browser} {
		ctx, done := k[1].During(t.Context(), p)
		defer done()
		streams = append(streams, ctx)
	}
	if err := errors.Join(k[0].RevokeToken(t.Context(), id), k[0].RemoveDevice(t.Context(), device.ID, "")); err != nil {
		t.Fatal(err)
	}
	changed := k[1].Changed()
	notify()
	<-changed
	for i, ctx := range streams {
		if context.Cause(ctx) != auth.ErrEnded {
			t.Errorf("stream %d goes on", i)
		}
	}
	for _, k := range k {
		if _, ok, err := k.Browser(t.Context(), session.Cookie); ok || err != nil {
			t.Errorf("the browser of a revoked token: %v, %v", ok, err)
		}
		for _, secret := range []string{secret, phone} {
			_, err := k.Authenticate(t.Context(), secret, here)
			wantCode(t, err, loquat.CodeUnauthorized)
		}
		if got := k.Grants(); len(got) != 1 || got[0].Kind != loquat.CredentialToken {
			t.Errorf("left are %v", got)
		}
	}
	wantCode(t, k[1].RevokeToken(t.Context(), id), loquat.CodeNotFound)
}

// A code makes one device, however many claim it at both nodes at once.
func TestClaimAtTwoNodes(t *testing.T) {
	for range 20 {
		m := newMemory()
		k, notify := twoNodes(t, m)
		code := must(k[0].Pair(t.Context(), "", "", ""))
		var got atomic.Int32
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				_, secret, err := k[i%2].Claim(t.Context(), code.Code, "x", netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}))
				if err != nil {
					wantCode(t, err, loquat.CodeUnauthorized)
					return
				}
				got.Add(1)
				if _, err := k[(i+1)%2].Authenticate(t.Context(), secret, here); err != nil {
					t.Errorf("the device at the other node: %v", err)
				}
			})
		}
		wg.Wait()
		notify()
		if got.Load() != 1 || len(m.keys) != 1 || len(k[0].Devices("")) != 1 || len(k[1].Devices("")) != 1 {
			t.Fatalf("%d claims got through, %d devices", got.Load(), len(m.keys))
		}
	}
}

// Limits hold for all nodes together: wrong secrets of a code, open codes, and the last token.
func TestLimitsOverNodes(t *testing.T) {
	k, _ := twoNodes(t, newMemory())
	code := must(k[0].Pair(t.Context(), "", "", ""))
	for i := range 5 {
		_, _, err := k[i%2].Claim(t.Context(), code.Code[:5]+"0000000000", "x", here)
		wantCode(t, err, loquat.CodeUnauthorized)
	}
	for _, k := range k {
		_, _, err := k.Claim(t.Context(), code.Code, "x", here)
		wantCode(t, err, loquat.CodeUnauthorized)
	}
	for i := range 19 {
		must(k[i%2].Pair(t.Context(), "", "", ""))
	}
	_, err := k[1].Pair(t.Context(), "", "", "")
	wantCode(t, err, loquat.CodeRateLimited)

	for range 20 {
		k, _ := twoNodes(t, newMemory())
		a, _ := makeToken(t, k[0], loquat.NewToken{Name: "a"})
		b, _ := makeToken(t, k[1], loquat.NewToken{Name: "b"})
		var conflicts atomic.Int32
		var wg sync.WaitGroup
		for i, id := range []string{a, b} {
			wg.Go(func() {
				if err := k[i].RevokeToken(t.Context(), id); err != nil {
					wantCode(t, err, loquat.CodeConflict)
					conflicts.Add(1)
				}
			})
		}
		wg.Wait()
		wantCode(t, k[0].RevokeToken(t.Context(), "unknown"), loquat.CodeNotFound)
		if conflicts.Load() != 1 || len(k[0].Tokens()) != 1 {
			t.Fatalf("%d of two revocations were refused; left are %v", conflicts.Load(), k[0].Tokens())
		}
	}
}

// A flood of tokens that nobody knows costs the store few reads. Each token is answered only
// after a read that began later.
func TestUnknownTokensShareReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		k, _ := twoNodes(t, m)
		makeToken(t, k[0], loquat.NewToken{Name: "a"})
		before := m.looks
		began := time.Now()
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() {
				for range 5 {
					_, err := k[1].Authenticate(t.Context(), fmt.Sprint("guess ", i), netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))
					wantCode(t, err, loquat.CodeUnauthorized)
				}
			})
		}
		wg.Wait()
		if n := m.looks - before; n > 6 || time.Since(began) > 100*time.Millisecond {
			t.Errorf("5,000 unknown tokens caused %d reads within %s", n, time.Since(began))
		}
		synctest.Wait()
		time.Sleep(time.Second)
	})
}

// While the store cannot be asked, known tokens are valid, and others may be.
func TestStoreThatCannotBeAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		k, _ := twoNodes(t, m)
		_, known := makeToken(t, k[1], loquat.NewToken{Name: "a"})
		_, other := makeToken(t, k[0], loquat.NewToken{Name: "b"})
		cookie := must(k[0].SignIn(t.Context(), other, here)).Cookie
		must(k[1].Authenticate(t.Context(), known, here)) // stores the day
		_, third := makeToken(t, k[0], loquat.NewToken{Name: "c"})
		m.fail = errors.New("out of reach")
		must(k[1].Authenticate(t.Context(), known, here))
		_, err := k[1].Authenticate(t.Context(), third, here)
		wantCode(t, err, loquat.CodeUnavailable)
		_, _, err = k[1].Browser(t.Context(), "nonsense")
		wantCode(t, err, loquat.CodeUnavailable)
		wantCode(t, k[1].SignOut(t.Context(), cookie), loquat.CodeUnavailable)
		for range 100 { // these guesses count
			_, err = k[1].Authenticate(t.Context(), "guess", here)
		}
		wantCode(t, err, loquat.CodeRateLimited)
		time.Sleep(time.Second)
		m.fail = nil
		must(k[1].Authenticate(t.Context(), third, here))
		if _, ok, err := k[1].Browser(t.Context(), cookie); !ok || err != nil {
			t.Errorf("the cookie: %v, %v", ok, err)
		}
		time.Sleep(time.Second)
	})
}

// An address has one allowance of guesses at all nodes together. What it could use beyond it,
// before the nodes knew of each other's counts, makes it wait longer.
func TestGuessingAtTwoNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		k, _ := twoNodes(t, m)
		makeToken(t, k[0], loquat.NewToken{Name: "a"})
		guess := func(k *auth.Keeper, from string) int {
			_, err := k.Authenticate(t.Context(), "wrong", netip.MustParseAddr(from))
			e, _ := errors.AsType[*loquat.Error](err)
			return e.RetryAfter
		}
		const first, second = "192.0.2.7", "2001:db8::1"
		passed := 0
		for i := range 150 { // in turns, with time to share the counts
			if guess(k[i%2], first) == 0 {
				passed++
			}
			time.Sleep(200 * time.Millisecond)
		}
		if passed < 99 || passed > 102 {
			t.Errorf("%d of 150 guesses in turns passed, want 100", passed)
		}
		var together atomic.Int32
		var all sync.WaitGroup
		for i := range 400 { // at once
			all.Go(func() {
				if guess(k[i%2], second) == 0 {
					together.Add(1)
				}
			})
		}
		all.Wait()
		passed = int(together.Load())
		const hours = 4
		for range hours * 120 {
			time.Sleep(30 * time.Second)
			for _, k := range k {
				if guess(k, second) == 0 {
					passed++
				}
			}
		}
		if want := 100 + hours*60; together.Load() > 200 || passed < want-5 || passed > want+5 {
			t.Errorf("of 400 guesses at once %d passed, and %d within %d hours, want %d", together.Load(), passed, hours, want)
		}
		if wait := guess(k[1], "192.0.2.8"); wait != 0 {
			t.Errorf("another address waits %d s", wait)
		}
		time.Sleep(4 * time.Hour)
		for range 100 {
			if wait := guess(k[1], first); wait != 0 {
				t.Errorf("after hours without a guess the address waits %d s", wait)
			}
		}
		time.Sleep(time.Minute)
	})
}
