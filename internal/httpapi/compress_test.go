package httpapi_test

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"loquat"
)

// raw makes a call whose answer is not unpacked.
func (r *rig) raw(method, path, accept string, headers ...string) reply {
	r.t.Helper()
	q, err := http.NewRequestWithContext(r.t.Context(), method, r.server.URL+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	q.Header.Set("Accept-Encoding", accept)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		q.Header.Set(name, value)
	}
	got, err := http.DefaultClient.Do(q)
	if err != nil {
		r.t.Fatal(err)
	}
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return reply{got, body}
}

// unpacked returns the body of an answer without its encoding.
func unpacked(t *testing.T, got reply) string {
	t.Helper()
	var r io.Reader = bytes.NewReader(got.body)
	var err error
	switch got.Header.Get("Content-Encoding") {
	case "gzip":
		r, err = gzip.NewReader(r)
	case "zstd":
		r, err = zstd.NewReader(r)
	case "":
	default:
		t.Fatalf("encoding %q", got.Header.Get("Content-Encoding"))
	}
	if err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(all)
}

// Large JSON is compressed as the client accepts it, and nothing else is: no short answer, no error,
// no HEAD, no image and no answer that may hold a secret. The ETag is the same and counts in If-Match.
func TestCompression(t *testing.T) {
	r := newRig(t)
	r.do("POST", "/sessions", `{"session_id":"s"}`).want(t, 201)
	r.do("POST", "/sessions", `{"session_id":"short"}`).want(t, 201)
	for range 30 {
		r.do("POST", "/sessions/s/messages", `{"role":"user","content":"`+strings.Repeat("again and ", 5000)+`"}`).want(t, 201)
	}
	get := func(path, accept string) reply {
		t.Helper()
		return r.raw("GET", path, accept)
	}
	for _, path := range []string{"/sessions/s", "/sessions/s/messages?last=1", "/events?since_id=0&session=omit&limit=5000", "/sessions/s/config"} {
		plain := get(path, "identity").want(t, 200)
		if plain.Header.Get("Content-Encoding") != "" || !strings.Contains(strings.Join(plain.Header.Values("Vary"), ","), "Accept-Encoding") {
			t.Errorf("%s as it is: %v", path, plain.Header)
		}
		for accept, want := range map[string]string{"gzip": "gzip", "zstd": "zstd", "gzip, br, zstd": "gzip", "br": "", "gzip;q=0": "", "*;q=0": ""} {
			got := get(path, accept).want(t, 200)
			if len(plain.body) < 1024 {
				want = ""
			}
			if encoding := got.Header.Get("Content-Encoding"); encoding != want || unpacked(t, got) != string(plain.body) || got.Header.Get("ETag") != plain.Header.Get("ETag") {
				t.Errorf("%s accepting %s: %q, %v", path, accept, encoding, got.Header)
			}
			if want != "" && len(got.body) > len(plain.body)/2 {
				t.Errorf("%s: %s has %d of %d bytes", path, want, len(got.body), len(plain.body))
			}
		}
	}
	for _, path := range []string{"/sessions/short", "/healthz", "/sessions/unknown-" + strings.Repeat("x", 2000)} {
		if got := get(path, "gzip"); got.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s is compressed", path)
		}
	}
	if got := r.raw("HEAD", "/sessions/s", "gzip").want(t, 200); got.Header.Get("Content-Encoding") != "" || len(got.body) != 0 {
		t.Errorf("HEAD: %v", got.Header)
	}
	etag := get("/sessions/s", "gzip").Header.Get("ETag")
	r.do("PATCH", "/sessions/s", `{"metadata":{"title":"x"}}`, "If-Match: "+etag).want(t, 200)
	r.do("PATCH", "/sessions/s", `{"metadata":{"title":"y"}}`, "If-Match: "+etag).wantProblem(t, 412, loquat.CodePreconditionFailed)
	lines := r.follow("/events/stream?session_id=s&since_id=0&session=omit", func(line string) bool { return strings.Contains(line, "again") }, "Accept-Encoding: gzip")
	if len(lines) < 2 {
		t.Errorf("a stream: %q", lines)
	}
	for i := range 30 { // the list of tokens is long, and has no encoding
		if _, _, err := r.keeper.MakeToken(t.Context(), loquat.NewToken{Name: strings.Repeat("t", 60) + strconv.Itoa(i), Scope: "full"}); err != nil {
			t.Fatal(err)
		}
	}
	_, secret, err := r.keeper.MakeToken(t.Context(), loquat.NewToken{Name: "reader", Scope: "full"})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.raw("GET", "/tokens", "gzip", "Authorization: Bearer "+secret).want(t, 200); got.Header.Get("Content-Encoding") != "" || len(got.body) < 2048 {
		t.Errorf("the tokens: %v", got.Header)
	}
	if got := get("/auth/me", "gzip"); got.StatusCode != http.StatusUnauthorized || got.Header.Get("Content-Encoding") != "" {
		t.Errorf("who am I: %d %v", got.StatusCode, got.Header)
	}
}
