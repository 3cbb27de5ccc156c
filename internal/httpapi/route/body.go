package route

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"loquat/internal/strictjson"
	"mime"
	"net/http"
	"slices"
	"strings"

	"loquat"
)

// readBody reads the whole body once, so that the hash and the decoded value are of the same
// bytes.
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
	if given == "" || slices.Contains(media, given) {
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
	if err := strictjson.Check(body); err != nil {
		return in, Malformed(err.PathIn("body"), "%s (%s)", err.Message, err.Position())
	}
	var value any
	if err := json.Unmarshal(body, &value); err != nil {
		return in, Malformed("body", "cannot be read: %v", err)
	}
	var f loquat.FieldErrors
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
