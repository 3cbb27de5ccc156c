package httpapi

import (
	"net/http"
	"net/url"

	"loquat"
	"loquat/internal/auth"
	"loquat/internal/httpapi/route"
)

// credentials serves the routes of tokens, devices, pairing codes and browser sessions.
type credentials struct {
	keeper *auth.Keeper
	now    func() *configured
}

func (k *credentials) tokenRoutes() []route.Route {
	return []route.Route{
		{
			Method: http.MethodPost, Path: "/tokens", ID: "makeToken", Tag: "access", Summary: "Make a token",
			Full: true, Serve: k.makeToken, Body: loquat.NewToken{}, Responses: []route.Response{{Status: http.StatusCreated, Body: loquat.MadeToken{}}},
		},
		{
			Method: http.MethodGet, Path: "/tokens", ID: "listTokens", Tag: "access", Summary: "List the tokens",
			Full: true, Serve: k.listTokens, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.TokenList{}}},
		},
		{
			Method: http.MethodDelete, Path: "/tokens/{token_id}", ID: "revokeToken", Tag: "access", Summary: "Revoke a token",
			Full: true, Serve: k.revokeToken, Responses: []route.Response{{Status: http.StatusNoContent}},
		},
	}
}

func (k *credentials) makeToken(x *route.Exchange) error {
	in, err := route.Decode[loquat.NewToken](x)
	if err != nil {
		return err
	}
	made, secret, err := k.keeper.MakeToken(x.R.Context(), in)
	if err != nil {
		return err
	}
	out := loquat.MadeToken(made.AsToken())
	out.Token = secret
	x.W.Header().Set("Location", "/tokens/"+url.PathEscape(out.TokenID))
	return x.Reply(http.StatusCreated, out)
}

func (k *credentials) listTokens(x *route.Exchange) error {
	out := loquat.TokenList{Tokens: []loquat.Token{}}
	for _, c := range k.keeper.Tokens() {
		out.Tokens = append(out.Tokens, c.AsToken())
	}
	return x.Reply(http.StatusOK, out)
}

func (k *credentials) revokeToken(x *route.Exchange) error {
	if err := k.keeper.RevokeToken(x.R.Context(), x.Path("token_id")); err != nil {
		return err
	}
	return done(x)
}

// done answers 204 No Content.
func done(x *route.Exchange) error {
	x.W.Header().Set("Cache-Control", "no-store")
	x.W.WriteHeader(http.StatusNoContent)
	return nil
}
