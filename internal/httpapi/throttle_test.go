package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"loquat"
	"loquat/internal/httpapi/route"
)

// unknownKeys returns an object of n keys that no body has.
func unknownKeys(n int) string {
	var b strings.Builder
	b.WriteByte('{')
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"k%d":0`, i)
	}
	b.WriteByte('}')
	return b.String()
}

// Routes that need no token take at most 16 KiB, whatever the limit of other bodies is.
func TestBodiesOfOpenRoutesAreSmall(t *testing.T) {
	r := newRig(t)
	r.api.limits.MaxBodyBytes = 8 << 20
	fits := `{"token":"` + strings.Repeat("x", 16<<10-12) + `"}`
	for _, rt := range r.api.table.Routes {
		if !rt.Open || rt.Body == nil {
			continue
		}
		t.Run(rt.Path, func(t *testing.T) {
			if got := r.do(rt.Method, rt.Path, fits); got.StatusCode == http.StatusRequestEntityTooLarge {
				t.Errorf("%d bytes are refused: %s", len(fits), got.body)
			}
			for what, body := range map[string]io.Reader{
				"announced": strings.NewReader(fits + " "),
				"chunked":   struct{ io.Reader }{strings.NewReader(fits + " ")},
				"many keys": strings.NewReader(unknownKeys(100_000)),
			} {
				p := r.doReader(rt.Method, rt.Path, body).wantProblem(t, http.StatusRequestEntityTooLarge, loquat.CodeTooLarge)
				if !strings.Contains(p.Detail, "16384 bytes") || strings.Contains(p.Detail, "limits.") {
					t.Errorf("%s: the detail is %q", what, p.Detail)
				}
			}
		})
	}
}

// A fault beyond the hundredth is only counted: to describe each of 500,000 unknown keys
// took hundreds of megabytes.
func TestFaultsAreBoundedWhileTheyAreCollected(t *testing.T) {
	r := newRig(t)
	object := map[string]any{}
	for i := range 500_000 {
		object[fmt.Sprint("k", i)] = 0.0
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var f loquat.FieldErrors
	r.api.table.Schemas.Validate(&f, loquat.SignIn{}, "body", object)
	err := f.Err()
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 4<<20 {
		t.Errorf("the check of %d unknown keys took %d bytes", len(object), took)
	}
	p := route.ProblemOf(err)
	if len(p.Errors) != loquat.MaxFieldErrors+1 || p.Errors[loquat.MaxFieldErrors].Message != "has 499901 more faults" || !strings.Contains(p.Detail, "500001 faults") {
		t.Errorf("the problem lists %d faults, last %v; detail %q", len(p.Errors), p.Errors[len(p.Errors)-1], p.Detail)
	}
}

// One address calls routes with bodies only so often without a token. Then it is held up
// and refused; other addresses are not, nor are calls with a token.
func TestOpenRoutesAreLimitedByAddress(t *testing.T) {
	r := newRig(t)
	_, secret, err := r.keeper.MakeToken(t.Context(), loquat.NewToken{Name: "user"})
	if err != nil {
		t.Fatal(err)
	}
	call := func(from, path, bearer string) int {
		ctx := context.WithValue(t.Context(), http.LocalAddrContextKey, r.server.Listener.Addr())
		req := httptest.NewRequestWithContext(ctx, "POST", r.server.URL+path, strings.NewReader("{}"))
		req.RemoteAddr = from + ":1234"
		if bearer != "" {
			req.Header.Set("Authorization", "Bearer "+bearer)
		}
		w := httptest.NewRecorder()
		r.api.ServeHTTP(w, req)
		return w.Code
	}
	refused := false
	for i := range 3 * openBodyBurst { // more than are allowed while this runs
		path := []string{"/auth/session", "/pairing/claim"}[i%2]
		if refused = call("192.0.2.1", path, "") == http.StatusTooManyRequests; refused {
			if i < openBodyBurst {
				t.Errorf("call %d is refused, %d are allowed", i, openBodyBurst)
			}
			break
		}
	}
	if !refused {
		t.Error("no call is refused")
	}
	if got := call("192.0.2.2", "/auth/session", ""); got != http.StatusUnprocessableEntity {
		t.Errorf("another address gets %d", got)
	}
	if got := call("192.0.2.1", "/sessions", secret); got != http.StatusCreated {
		t.Errorf("a call with a token gets %d", got)
	}
}

func TestThrottle(t *testing.T) {
	stranger := caller{address: netip.MustParseAddr("192.0.2.1")}
	behind := caller{address: netip.MustParseAddr("10.0.0.1")} // a trusted proxy that does not say who calls
	tests := []struct {
		name    string
		from    caller
		calls   int
		refused int
		took    time.Duration
	}{
		{"within the burst", stranger, openBodyBurst, 0, 0},
		// Each refusal takes a second, in which the address gets openBodyRate calls back.
		{"beyond the burst", stranger, openBodyBurst + 1 + openBodyRate + 1, 2, 2 * throttlePause},
		{"many clients behind a proxy", behind, 3 * openBodyBurst, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				th := newThrottle(newProxies([]string{"10.0.0.0/8"}))
				began, refused := time.Now(), 0
				for range tt.calls {
					if err := th.admitBody(t.Context(), tt.from); err != nil {
						refused++
						if loquat.CodeOf(err) != loquat.CodeRateLimited {
							t.Errorf("refused with %v", err)
						}
					}
				}
				if took := time.Since(began); refused != tt.refused || took != tt.took {
					t.Errorf("%d calls are refused in %s, want %d in %s", refused, took, tt.refused, tt.took)
				}
			})
		})
	}
}

// A client that disconnects ends its wait, and what is worked on at the same time is
// bounded.
func TestThrottleWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := newThrottle(nil)
		var ends []func()
		for range maxOpenWork {
			done, err := th.work(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ends = append(ends, done)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := th.work(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("one more is worked on: %v", err)
		}
		ends[0]()
		if _, err := th.work(t.Context()); err != nil {
			t.Errorf("after one ended: %v", err)
		}
		began := time.Now()
		for range openBurst + 1 {
			th.pace(ctx, caller{}) // ctx has ended: no pause
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("a client that disconnected is held up for %s", took)
		}
	})
}
