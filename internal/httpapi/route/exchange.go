package route

import (
	"bytes"
	"net/http"

	"loquat"
	"loquat/internal/chat"
)

// Exchange is one call of a route.
type Exchange struct {
	W     http.ResponseWriter
	R     *http.Request
	Route *Route
	Query Query
	Body  []byte    // as it was sent; nil when there was none
	Call  chat.Call // of a route with Change

	// Renew returns Call.By by the configuration as it is now, or refuses the caller. It is set for routes with
	// Follows, whose calls may last longer than a configuration.
	Renew func() (chat.By, error)

	Schemas Schemas // that Decode validates with

	// Encoded is called with the size of a reply before it is written. Nil: the reply is
	// written while it is encoded.
	Encoded func(bytes int)
}

// Read parses what the route takes: the query, the body and the headers of a change.
func (t *Table) Read(w http.ResponseWriter, r *http.Request, route *Route) (x *Exchange, err error) {
	x = &Exchange{W: w, R: r, Route: route, Schemas: t.Schemas}
	if x.Query, err = parseQuery(route.Query, r.URL.RawQuery); err != nil {
		return nil, err
	}
	if route.Body != nil {
		if x.Body, err = readBody(r, route.medias()); err != nil {
			return nil, err
		}
	}
	if route.Change {
		if x.Call, err = callOf(r, x.Body); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// Path returns a parameter of the path.
func (x *Exchange) Path(name string) string { return x.R.PathValue(name) }

// IfMatch returns the precondition in the header If-Match, nil without one.
func (x *Exchange) IfMatch() *chat.Match { return parseIfMatch(x.R.Header.Values("If-Match")) }

// Reply answers with JSON.
func (x *Exchange) Reply(status int, v any) error {
	h := x.W.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "no-store")
	}
	if large, ok := v.(loquat.LargeJSON); ok && large.JSONSize() >= largeReply {
		return x.replyLarge(status, large)
	}
	if x.Encoded == nil {
		x.W.WriteHeader(status)
		writeJSON(x.W, v)
		return nil
	}
	var body bytes.Buffer
	writeJSON(&body, v)
	x.Encoded(body.Len())
	x.W.WriteHeader(status)
	_, _ = x.W.Write(body.Bytes())
	return nil
}

// largeReply is the size from which a reply is written in pieces.
const largeReply = 1 << 20

// replyLarge answers with JSON that is too large for a copy of it.
func (x *Exchange) replyLarge(status int, v loquat.LargeJSON) error {
	if x.Encoded != nil {
		x.Encoded(v.JSONSize())
	}
	x.W.WriteHeader(status)
	_ = v.WriteJSON(x.W) // an error means that the client disconnected
	return nil
}

// Tag sets the ETag of a session, which is its newest checkpoint.
func (x *Exchange) Tag(checkpoint loquat.EventID) {
	if checkpoint != 0 {
		x.W.Header().Set("ETag", `"`+checkpoint.String()+`"`)
	}
}
