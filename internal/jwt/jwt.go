// Package jwt verifies JSON Web Tokens (RFC 7519) that other systems sign for their users.
//
// It accepts a token if an issuer of the configuration signed it with one of its published keys, for the
// audience of the configuration, and if it is valid now. It loads the keys of an issuer when a token needs
// them, keeps them, and loads them again when a token names another key: at most once in a while, because
// anybody can send a token that names an unknown key.
//
// Every hour it loads the keys anew, so that a key which the issuer has withdrawn is not accepted for ever.
//
// It does not look for the keys of an issuer by discovery, does not decrypt, and asks no issuer whether a token
// was revoked: a token counts until it expires.
package jwt

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"loquat"
)

// Issuer is a system whose tokens are accepted.
type Issuer struct {
	Issuer   string // what the claim iss has to be
	Audience string // what the claim aud has to have
	Keys     string // URL of the key set (RFC 7517)

	UserClaim  string // the claim with the user; "" is sub
	ScopeClaim string // the claim with the scope; "" means that every token has the scope user
	RoleClaim  string // the claim with the role; "" means that no token has one
}

const (
	// maxToken is the size of the largest token, in bytes.
	maxToken = 16 << 10
	// leeway is how far the clocks of an issuer and of this server may differ for tokens from the future.
	leeway = 5 * time.Minute
)

// algorithms are those with a public key. With the others, whoever can verify a token can also make one.
var algorithms = []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA}

// Claims are what a valid token says.
type Claims struct {
	Issuer    string
	User      string
	Scope     string // as the claim has it; "" if there is none
	Role      string // the same
	ExpiresAt time.Time
}

// Verifier verifies tokens. It is safe for concurrent use.
type Verifier struct {
	issuers map[string]issuer
}

type issuer struct {
	Issuer
	verifier *oidc.IDTokenVerifier
}

// New returns a Verifier of the tokens of issuers, or nil if there are none.
func New(issuers []Issuer) *Verifier {
	if len(issuers) == 0 {
		return nil
	}
	return newVerifier(http.DefaultTransport, issuers)
}

// newVerifier is New with the transport for keys.
func newVerifier(through http.RoundTripper, issuers []Issuer) *Verifier {
	v := &Verifier{issuers: map[string]issuer{}}
	for _, i := range issuers {
		v.issuers[i.Issuer] = issuer{i, oidc.NewVerifier(i.Issuer, newKeySet(through, i.Keys), &oidc.Config{ClientID: i.Audience, SupportedSigningAlgs: algorithms})}
	}
	return v
}

// Accepts reports whether tokens of an issuer are accepted.
func (v *Verifier) Accepts(name string) bool {
	if v == nil {
		return false
	}
	_, ok := v.issuers[name]
	return ok
}

// Is reports whether a token has the form of a JSON Web Token of an issuer that is known. A nil Verifier knows none.
func (v *Verifier) Is(token string) bool {
	_, ok := v.issuerOf(token)
	return ok
}

// issuerOf returns the issuer that a token names, before anything of the token is verified.
func (v *Verifier) issuerOf(token string) (issuer, bool) {
	if v == nil || len(token) > maxToken || strings.Count(token, ".") != 2 {
		return issuer{}, false
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		return issuer{}, false
	}
	var named struct {
		Issuer string `json:"iss"`
	}
	if json.Unmarshal(payload, &named) != nil {
		return issuer{}, false
	}
	i, ok := v.issuers[named.Issuer]
	return i, ok
}

// Verify returns the claims of a token. It fails with unauthorized if the token is not valid, and with
// unavailable if the keys of its issuer cannot be loaded.
func (v *Verifier) Verify(ctx context.Context, token string) (Claims, error) {
	i, ok := v.issuerOf(token)
	if !ok {
		return Claims{}, invalid("it is of no issuer in server.jwt")
	}
	var fetching error
	valid, err := i.verifier.Verify(context.WithValue(ctx, fetchError{}, &fetching), token)
	switch {
	case fetching != nil:
		return Claims{}, &loquat.Error{Code: loquat.CodeUnavailable, Detail: fmt.Sprintf("the keys of the issuer %q cannot be loaded now; try again in a moment", loquat.Clip(i.Issuer.Issuer, loquat.Excerpt)), Err: fetching}
	case err != nil:
		return Claims{}, invalid(loquat.Clip(strings.TrimPrefix(err.Error(), "oidc: "), loquat.Excerpt))
	case valid.IssuedAt.After(time.Now().Add(leeway)):
		return Claims{}, invalid("it was issued in the future; the clocks differ")
	}
	return i.claims(valid)
}

// claims reads the claims that the configuration names.
func (i issuer) claims(valid *oidc.IDToken) (Claims, error) {
	out := Claims{Issuer: i.Issuer.Issuer, ExpiresAt: valid.Expiry}
	var all map[string]any
	if err := valid.Claims(&all); err != nil {
		return out, invalid("its claims cannot be read")
	}
	name := i.UserClaim
	if name == "" {
		name = "sub"
	}
	if out.User, _ = all[name].(string); loquat.CheckUser("user", out.User) != nil {
		return out, invalid(fmt.Sprintf("its claim %s has to name the user, with 1 to 128 characters", name))
	}
	var err error
	if out.Scope, err = textOf(all, i.ScopeClaim); err == nil {
		out.Role, err = textOf(all, i.RoleClaim)
	}
	return out, err
}

// textOf returns the text of a claim, "" if there is none.
func textOf(claims map[string]any, name string) (string, error) {
	value, given := claims[name]
	if name == "" || !given {
		return "", nil
	}
	text, _ := value.(string)
	if text == "" {
		return "", invalid(fmt.Sprintf("its claim %s has to be a text", name))
	}
	return text, nil
}

func invalid(why string) error {
	return loquat.Errorf(loquat.CodeUnauthorized, "the JSON Web Token is not valid: %s", why)
}
