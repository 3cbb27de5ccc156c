package jwt_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/goleak"

	"loquat"
	"loquat/internal/jwt"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type claims = map[string]any

// key is a key of an issuer, with its name in the key set.
type key struct {
	id  string
	alg jose.SignatureAlgorithm
	crypto.Signer
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

var (
	rsaKey   = key{"rsa", jose.RS256, must(rsa.GenerateKey(rand.Reader, 2048))}
	ecKey    = key{"ec", jose.ES256, must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))}
	edKey    = key{"ed", jose.EdDSA, func() ed25519.PrivateKey { _, k, err := ed25519.GenerateKey(rand.Reader); return must(k, err) }()}
	laterKey = key{"later", jose.ES256, must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))}
)

// sign returns a token.
func (k key) sign(c claims) string {
	signer := must(jose.NewSigner(jose.SigningKey{Algorithm: k.alg, Key: jose.JSONWebKey{Key: k.Signer, KeyID: k.id}}, nil))
	return must(must(signer.Sign(must(json.Marshal(c)))).CompactSerialize())
}

// issuer serves a key set. It counts the calls.
type issuer struct {
	server *httptest.Server

	mu     sync.Mutex
	keys   []key
	calls  int
	answer http.HandlerFunc // in place of the keys, unless nil
}

// serve is the transport of a test: it calls the issuer without a network.
func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	i.calls++
	answer := i.answer
	var set jose.JSONWebKeySet
	for _, k := range i.keys {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: k.Public(), KeyID: k.id, Algorithm: string(k.alg), Use: "sig"})
	}
	i.mu.Unlock()
	if answer != nil {
		answer(w, r)
		return
	}
	_ = json.NewEncoder(w).Encode(set)
}

func (i *issuer) set(change func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change()
}

const issuerName, audience = "https://id.example", "loquat"

// newIssuer starts an issuer, and returns the verifier of its tokens.
func newIssuer(t *testing.T, more jwt.Issuer) (*issuer, *jwt.Verifier) {
	t.Helper()
	i := &issuer{keys: []key{rsaKey, ecKey, edKey}}
	i.server = httptest.NewServer(i)
	t.Cleanup(i.server.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	more.Issuer, more.Audience, more.Keys = issuerName, audience, i.server.URL
	return i, jwt.New([]jwt.Issuer{more})
}

// valid returns the claims of a valid token, with changes. A nil value removes a claim.
func valid(change claims) claims {
	c := claims{"iss": issuerName, "aud": audience, "sub": "ann", "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(c, change)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}

func TestVerify(t *testing.T) {
	_, v := newIssuer(t, jwt.Issuer{})
	for _, k := range []key{rsaKey, ecKey, edKey} {
		got, err := v.Verify(t.Context(), k.sign(valid(claims{"aud": []string{"another", audience}})))
		if err != nil || got.User != "ann" || got.Issuer != issuerName || got.Scope != "" || time.Until(got.ExpiresAt).Round(time.Minute) != time.Hour {
			t.Errorf("%s: %+v, %v", k.alg, got, err)
		}
	}
	stranger := key{"rsa", jose.RS256, must(rsa.GenerateKey(rand.Reader, 2048))}
	hour := time.Hour
	in := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	for name, token := range map[string]string{
		"signed by another key":          stranger.sign(valid(nil)),
		"for another audience":           rsaKey.sign(valid(claims{"aud": "another"})),
		"without an audience":            rsaKey.sign(valid(claims{"aud": nil})),
		"of another issuer":              rsaKey.sign(valid(claims{"iss": "https://other.example"})),
		"expired":                        rsaKey.sign(valid(claims{"exp": in(-time.Second)})),
		"without an expiry":              rsaKey.sign(valid(claims{"exp": nil})),
		"not valid yet":                  rsaKey.sign(valid(claims{"nbf": in(hour)})),
		"issued in the future":           rsaKey.sign(valid(claims{"iat": in(hour)})),
		"without a user":                 rsaKey.sign(valid(claims{"sub": nil})),
		"with a user that is a number":   rsaKey.sign(valid(claims{"sub": 7})),
		"with an empty user":             rsaKey.sign(valid(claims{"sub": ""})),
		"with a user of several lines":   rsaKey.sign(valid(claims{"sub": "a\nb"})),
		"with 1 MB of claims":            rsaKey.sign(valid(claims{"more": strings.Repeat("x", 1<<20)})),
		"without a signature":            forged(`{"alg":"none"}`, valid(nil), nil),
		"without a signature, misspelt":  forged(`{"alg":"nOnE","kid":"rsa"}`, valid(nil), nil),
		"signed with the public key":     forged(`{"alg":"HS256","kid":"rsa"}`, valid(nil), publicPEM(t)),
		"with another text":              tampered(rsaKey.sign(valid(nil)), valid(claims{"sub": "bob"})),
		"with a key of its own":          embedded(stranger, valid(nil)),
		"with a claim source elsewhere":  rsaKey.sign(valid(claims{"_claim_names": claims{"sub": "x"}, "_claim_sources": claims{}})),
		"that is cut off":                rsaKey.sign(valid(nil))[:40],
		"with an extension that matters": forged(`{"alg":"RS256","crit":["b64"],"b64":false,"kid":"rsa"}`, valid(nil), nil),
	} {
		if got, err := v.Verify(t.Context(), token); loquat.CodeOf(err) != loquat.CodeUnauthorized {
			t.Errorf("a token %s: %+v, %v", name, got, err)
		} else if len(err.Error()) > 600 {
			t.Errorf("a token %s: the error has %d bytes", name, len(err.Error()))
		}
	}
	for _, token := range []string{"", "loq_abc", "a.b.c", "..", rsaKey.sign(valid(claims{"iss": "https://other.example"}))} {
		if v.Is(token) {
			t.Errorf("%q counts as a token of an issuer", token)
		}
	}
	if (*jwt.Verifier)(nil).Is(rsaKey.sign(valid(nil))) || jwt.New(nil) != nil {
		t.Error("without an issuer, tokens are accepted")
	}
}

// Clocks that differ a little do no harm.
func TestClocks(t *testing.T) {
	_, v := newIssuer(t, jwt.Issuer{})
	soon := time.Now().Add(time.Minute).Unix()
	if _, err := v.Verify(t.Context(), ecKey.sign(valid(claims{"iat": soon, "nbf": soon}))); err != nil {
		t.Error(err)
	}
}

func TestClaims(t *testing.T) {
	_, v := newIssuer(t, jwt.Issuer{UserClaim: "email", ScopeClaim: "loquat_scope"})
	for _, c := range []struct {
		change claims
		want   string
		ok     bool
	}{
		{claims{"email": "ann@example.com"}, "ann@example.com ", true},
		{claims{"email": "ann@example.com", "loquat_scope": "full"}, "ann@example.com full", true},
		{claims{"loquat_scope": "full"}, "", false},
		{claims{"email": "ann@example.com", "loquat_scope": []string{"full"}}, "", false},
		{claims{"email": "ann@example.com", "loquat_scope": ""}, "", false},
	} {
		got, err := v.Verify(t.Context(), ecKey.sign(valid(c.change)))
		if (err == nil) != c.ok || c.ok && got.User+" "+got.Scope != c.want {
			t.Errorf("%v: %+v, %v", c.change, got, err)
		}
	}
}

// Tokens that name unknown keys do not cause a call each, and new keys are found.
func TestUnknownKeys(t *testing.T) {
	i, v := newIssuer(t, jwt.Issuer{})
	for n := range 200 {
		k := laterKey
		k.id = fmt.Sprint("unknown-", n)
		if _, err := v.Verify(t.Context(), k.sign(valid(nil))); loquat.CodeOf(err) != loquat.CodeUnauthorized {
			t.Fatal(err)
		}
	}
	if _, err := v.Verify(t.Context(), rsaKey.sign(valid(nil))); err != nil {
		t.Error(err)
	}
	if i.calls != 1 {
		t.Errorf("%d calls of the issuer", i.calls)
	}
}

// While an issuer fails, its tokens are answered with unavailable, not with unauthorized. The issuer is asked again
// soon, but not once for each token.
func TestFailingIssuer(t *testing.T) {
	jwt.SetFetchTimeout(t, 200*time.Millisecond)
	for name, answer := range map[string]http.HandlerFunc{
		"500": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		},
		"silence": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"a silent body": func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
		"no JSON": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"no keys": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") },
		"2 GB":    func(w http.ResponseWriter, _ *http.Request) { endless(w) },
		"a cut answer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "{")
		},
	} {
		i, v := newIssuer(t, jwt.Issuer{})
		i.answer = answer
		for range 20 {
			if _, err := v.Verify(t.Context(), rsaKey.sign(valid(nil))); loquat.CodeOf(err) != loquat.CodeUnavailable || !strings.Contains(err.Error(), issuerName) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if i.calls != 1 {
			t.Errorf("%s: %d calls", name, i.calls)
		}
	}
}

// foreign are keys that cannot be used here: of an unknown curve, without a type, for symmetric signatures, for
// encryption, and not a key at all.
var foreign = []string{
	`{"kty": "EC", "crv": "secp256k1", "kid": "ec", "x": "AAAA", "y": "AAAA"}`, `{"kid": "rsa"}`, `{"kty": "oct", "k": "c2VjcmV0"}`,
	`{"kty": "RSA", "kid": "rsa", "alg": "RSA-OAEP", "n": "AQAB", "e": "AQAB"}`, `7`,
}

// answerWith answers with a key set of foreign keys and others.
func answerWith(keys ...key) http.HandlerFunc {
	all := slices.Clone(foreign)
	for _, k := range keys {
		all = append(all, string(must(jose.JSONWebKey{Key: k.Public(), KeyID: k.id}.MarshalJSON())))
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"keys": [`+strings.Join(all, ",")+`]}`)
	}
}

// Keys that cannot be used are ignored (RFC 7517, section 5). A set without any other is a failure.
func TestForeignKeys(t *testing.T) {
	i, v := newIssuer(t, jwt.Issuer{})
	i.answer = answerWith(rsaKey, ecKey)
	for _, k := range []key{rsaKey, ecKey} {
		if _, err := v.Verify(t.Context(), k.sign(valid(nil))); err != nil {
			t.Errorf("%s: %v", k.id, err)
		}
	}
	i, v = newIssuer(t, jwt.Issuer{})
	i.answer = answerWith()
	if _, err := v.Verify(t.Context(), rsaKey.sign(valid(nil))); loquat.CodeOf(err) != loquat.CodeUnavailable {
		t.Errorf("a set without a key that can be used: %v", err)
	}
}

// endless writes until the reader has enough.
func endless(w http.ResponseWriter) {
	block := []byte(strings.Repeat(" ", 64<<10))
	for range 2 << 30 / len(block) {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}

// local is a transport that calls an issuer in the process, so that the time can be that of the test.
type local struct{ issuer http.Handler }

func (l local) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	l.issuer.ServeHTTP(w, r)
	return w.Result(), nil
}

// A new key is accepted within a minute, a withdrawn one is refused after an hour, and while the issuer does not
// answer the known keys count.
func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := &issuer{keys: []key{rsaKey, ecKey}}
		v := jwt.NewThrough(local{i}, []jwt.Issuer{{Issuer: issuerName, Audience: audience, Keys: "http://id.example"}})
		accepts := func(k key) bool {
			t.Helper()
			_, err := v.Verify(t.Context(), k.sign(valid(nil)))
			if err != nil && loquat.CodeOf(err) != loquat.CodeUnauthorized {
				t.Errorf("%s: %v", k.id, err)
			}
			return err == nil
		}
		if !accepts(rsaKey) || !accepts(ecKey) || accepts(laterKey) {
			t.Error("the first keys are not those of the issuer")
		}
		i.set(func() { i.keys = []key{ecKey, laterKey} })
		time.Sleep(time.Minute)
		if !accepts(laterKey) || !accepts(ecKey) {
			t.Error("the new key is refused")
		}
		time.Sleep(time.Hour)
		i.set(func() { i.answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) } })
		if !accepts(ecKey) || !accepts(laterKey) {
			t.Error("while the issuer does not answer, its keys are refused")
		}
		time.Sleep(time.Minute)
		i.set(func() { i.answer = answerWith() })
		if !accepts(ecKey) || !accepts(laterKey) {
			t.Error("while the issuer has no keys that can be used, its keys are refused")
		}
		time.Sleep(time.Minute)
		i.set(func() { i.answer = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() } })
		began := time.Now()
		for range 20 {
			if !accepts(ecKey) || !accepts(laterKey) {
				t.Error("while the issuer hangs, its keys are refused")
			}
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("while the issuer hangs, forty tokens take %s", took)
		}
		i.set(func() { i.answer, i.keys = nil, []key{laterKey} })
		time.Sleep(time.Minute)
		if !accepts(laterKey) || accepts(ecKey) || accepts(rsaKey) {
			t.Error("a withdrawn key is accepted")
		}
		if i.calls > 8 {
			t.Errorf("%d calls of the issuer", i.calls)
		}
	})
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// forged returns a token with a header, signed with HMAC if there is a secret.
func forged(header string, c claims, secret []byte) string {
	text := encode([]byte(header)) + "." + encode(must(json.Marshal(c)))
	if secret == nil {
		return text + "."
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(text))
	return text + "." + encode(mac.Sum(nil))
}

func publicPEM(t *testing.T) []byte {
	t.Helper()
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: must(x509.MarshalPKIXPublicKey(rsaKey.Public()))})
}

// tampered returns a token with other claims and the old signature.
func tampered(token string, c claims) string {
	parts := strings.Split(token, ".")
	return parts[0] + "." + encode(must(json.Marshal(c))) + "." + parts[2]
}

// embedded returns a token whose header has the key that it is signed with.
func embedded(k key, c claims) string {
	signer := must(jose.NewSigner(jose.SigningKey{Algorithm: k.alg, Key: k.Signer}, &jose.SignerOptions{EmbedJWK: true}))
	return must(must(signer.Sign(must(json.Marshal(c)))).CompactSerialize())
}
