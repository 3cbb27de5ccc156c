package route

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

// readBody reads the whole body, once, so that its hash and its meaning are
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

// checkMedia refuses a body that is not declared as JSON. A body without a type counts as
// JSON: a browser always sends Origin with a request to another origin, which is checked.
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

// checkJSON returns an error unless a body is valid JSON in valid UTF-8, with bounded depth
// and without duplicate names in an object.
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
			return Malformed(placeOf(d, true), "is nested deeper than %d", loquat.MaxDepth)
		}
		if d.StackDepth() == 0 && len(bytes.TrimSpace(body[d.InputOffset():])) > 0 {
			return Malformed("body", "goes on after its JSON value, at byte %d", d.InputOffset())
		}
	}
}

func syntaxError(d *jsontext.Decoder, err error) error {
	se, ok := errors.AsType[*jsontext.SyntacticError](err)
	if !ok {
		return Malformed(placeOf(d, true), "ends before its JSON is complete")
	}
	if errors.Is(se.Err, jsontext.ErrDuplicateName) {
		return Malformed(JoinName(placeOf(d, false), se.JSONPointer.LastToken()), "is given twice")
	}
	return Malformed(placeOf(d, true), "is not valid JSON at byte %d: %v", se.ByteOffset, se.Err)
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
			place = JoinName(place, unescapePointer.Replace(names[i-1]))
		}
		if len(place) > 400 {
			return place[:400] + "…"
		}
	}
	return place
}

var unescapePointer = strings.NewReplacer("~1", "/", "~0", "~")

// JoinName adds a name that came from a client to a place, shortened.
func JoinName(place, name string) string { return place + "." + loquat.Clip(name, loquat.Excerpt) }

// Decode reads the body into a T after it was checked against T's schema. Without a body it
// reads an empty object, unless T has required fields.
func Decode[T any](x *Exchange) (T, error) {
	var in T
	body := x.Body
	if body == nil {
		if x.Schemas.requiresBody(in) {
			return in, Malformed("body", "is missing; send a JSON object")
		}
		body = []byte("{}")
	}
	if err := checkJSON(body); err != nil {
		return in, err
	}
	var value any
	if err := json.Unmarshal(body, &value); err != nil {
		return in, Malformed("body", "cannot be read: %v", err)
	}
	var f FieldErrors
	x.Schemas.Validate(&f, in, "body", value)
	if err := f.Err(); err != nil {
		return in, err
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return in, decodeError(err)
	}
	return in, nil
}

// decodeError reports faults that a schema cannot find, such as a number out of range.
func decodeError(err error) error {
	if te, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return loquat.Invalid("body."+te.Field, "cannot hold %s", loquat.Clip(te.Value, loquat.Excerpt))
	}
	return fmt.Errorf("read a body that its schema allows: %w", err)
}
