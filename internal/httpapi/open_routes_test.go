package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/httpapi"
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
	r := newRigWith(t, func(opts *httpapi.Options) {
		large := *opts.Config.Now()
		large.Limits.MaxBodyBytes = 8 << 20
		opts.Config = config.NewLive(&large)
	})
	fits := `{"token":"` + strings.Repeat("x", 16<<10-12) + `"}`
	for _, rt := range r.table.Routes {
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
	r.table.Schemas.Validate(&f, loquat.SignIn{}, "body", object)
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
		r.handler.ServeHTTP(w, req)
		return w.Code
	}
	refused := false
	for i := range 3 * httpapi.Bounds.OpenBodyBurst { // more than are allowed while this runs
		path := []string{"/auth/session", "/pairing/claim"}[i%2]
		if refused = call("192.0.2.1", path, "") == http.StatusTooManyRequests; refused {
			if i < httpapi.Bounds.OpenBodyBurst {
				t.Errorf("call %d is refused, %d are allowed", i, httpapi.Bounds.OpenBodyBurst)
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
