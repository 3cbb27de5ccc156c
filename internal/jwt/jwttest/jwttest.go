// Package jwttest is another system that signs JSON Web Tokens for its users, for tests.
package jwttest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Issuer signs tokens for the audience "loquat". Its URL is its name, and where its keys are.
type Issuer struct {
	URL    string
	signer jose.Signer
}

// New returns an issuer that serves its keys until the test ends.
func New(t testing.TB) *Issuer {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: private.Public(), KeyID: "1", Algorithm: "ES256"}}})
	}))
	t.Cleanup(keys.Close)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: private, KeyID: "1"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &Issuer{URL: keys.URL, signer: signer}
}

// Token returns a token of a user that lives for a time, with more claims.
func (i *Issuer) Token(t testing.TB, user string, life time.Duration, more map[string]any) string {
	t.Helper()
	claims := map[string]any{"iss": i.URL, "aud": "loquat", "sub": user, "exp": time.Now().Add(life).Unix()}
	maps.Copy(claims, more)
	text, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := i.signer.Sign(text)
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}
