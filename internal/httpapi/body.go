package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"loquat"
)

// readBody reads the body of a change, once, so that its hash and its meaning are
// of the same bytes.
func readBody(r *http.Request, media []string) ([]byte, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if len(body) == 0 {
		return nil, nil
	}
	return body, checkMedia(r, media)
}

// bodyLimit is how much may be sent, and the key of the configuration that says so: ""
// where none does.
type bodyLimit struct {
	bytes int64
	key   string
}

func (a *api) bodyLimit(t *route, r *http.Request) bodyLimit {
	switch {
	case t.open:
		return bodyLimit{bytes: min(maxOpenBody, a.limits.MaxBodyBytes)}
	case !t.upload:
		return bodyLimit{a.limits.MaxBodyBytes, "limits.max_body_bytes"}
	case isMultipart(r):
		return bodyLimit{a.limits.MaxAssetBytes + maxFormBytes, "limits.max_asset_bytes"}
	}
	return bodyLimit{a.limits.MaxAssetBytes, "limits.max_asset_bytes"}
}

func (l bodyLimit) exceeded() error {
	if l.key == "" {
		return loquat.Errorf(loquat.CodeTooLarge, "the body is larger than %d bytes, which is the most that this route takes", l.bytes)
	}
	return loquat.Errorf(loquat.CodeTooLarge, "the body is larger than %d bytes; send less, or raise %s", l.bytes, l.key)
}

// checkMedia refuses what does not say that it is JSON. A body without a type is
// taken for JSON: browsers cannot send one across origins without the guard seeing it.
func checkMedia(r *http.Request, media []string) error {
	given := r.Header.Get("Content-Type")
	if given == "" {
		return nil
	}
	kind, params, err := mime.ParseMediaType(given)
	charset := strings.ToLower(params["charset"])
	if err == nil && (charset == "" || charset == "utf-8") {
		for _, m := range media {
			if kind == m {
				return nil
			}
		}
	}
	return loquat.Errorf(loquat.CodeUnsupportedMedia, "a body of type %q is not understood; send UTF-8 with Content-Type: %s", loquat.Clip(given, loquat.Excerpt), media[0])
}

// checkJSON holds a body against the grammar, with no name twice in an object, valid
// UTF-8 and bounded depth.
func checkJSON(body []byte) error {
	d := jsontext.NewDecoder(bytes.NewReader(body))
	for {
		_, err := d.ReadToken()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return syntaxError(d, err)
		}
		if d.StackDepth() > loquat.MaxDepth {
			return malformed(placeOf(d, true), "is nested deeper than %d", loquat.MaxDepth)
		}
		if d.StackDepth() == 0 && len(bytes.TrimSpace(body[d.InputOffset():])) > 0 {
			return malformed("body", "goes on after its JSON value, at byte %d", d.InputOffset())
		}
	}
}

func syntaxError(d *jsontext.Decoder, err error) error {
	se, ok := errors.AsType[*jsontext.SyntacticError](err)
	if !ok {
		return malformed(placeOf(d, true), "ends before its JSON is complete")
	}
	if errors.Is(se.Err, jsontext.ErrDuplicateName) {
		return malformed(joinName(placeOf(d, false), se.JSONPointer.LastToken()), "is given twice")
	}
	return malformed(placeOf(d, true), "is no valid JSON at byte %d: %v", se.ByteOffset, se.Err)
}

// placeOf names the value that the decoder is at, like body.messages[0].role, or,
// without member, the innermost list or object around it.
func placeOf(d *jsontext.Decoder, member bool) string {
	place := "body"
	names := strings.Split(strings.TrimPrefix(string(d.StackPointer()), "/"), "/")
	depth := d.StackDepth()
	if !member {
		depth--
	}
	for i := 1; i <= depth; i++ {
		kind, n := d.StackIndex(i)
		switch {
		case kind == '[' && n > 0:
			place += "[" + strconv.FormatInt(n-1, 10) + "]"
		case kind == '{' && n > 0 && i-1 < len(names):
			place = joinName(place, unescapePointer.Replace(names[i-1]))
		}
		if len(place) > 400 {
			return place[:400] + "…"
		}
	}
	return place
}

var unescapePointer = strings.NewReplacer("~1", "/", "~0", "~")

func joinName(place, name string) string { return place + "." + loquat.Clip(name, loquat.Excerpt) }

// decodeBody reads a body into a T after it was held against T's schema. Without a
// body it reads an empty object, if there may be none.
func decodeBody[T any](x *exchange) (T, error) {
	var in T
	body := x.body
	if body == nil {
		if x.api.schemas.requiresBody(in) {
			return in, malformed("body", "is missing; send a JSON object")
		}
		body = []byte("{}")
	}
	if err := checkJSON(body); err != nil {
		return in, err
	}
	var value any
	if err := json.Unmarshal(body, &value); err != nil {
		return in, malformed("body", "cannot be read: %v", err)
	}
	var f faults
	x.api.schemas.check(&f, x.api.schemas.of(in), "body", value)
	if err := f.err(); err != nil {
		return in, err
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return in, decodeError(err)
	}
	return in, nil
}

// decodeError tells of what a schema cannot find, such as a number out of range.
func decodeError(err error) error {
	if te, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return loquat.Invalid("body."+te.Field, "cannot hold %s", loquat.Clip(te.Value, loquat.Excerpt))
	}
	return fmt.Errorf("read a body that its schema allows: %w", err)
}
