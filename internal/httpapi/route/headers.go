package route

import (
	"crypto/sha256"
	"net/http"
	"strings"

	"loquat"
	"loquat/internal/chat"
)

// maxKey is the length of an Idempotency-Key.
const maxKey = 255

// callOf reads the headers of a change and hashes its input. The hash includes the query,
// because the query may say what to change.
func callOf(r *http.Request, body []byte) (chat.Call, error) {
	call := chat.Call{Method: r.Method, Path: r.URL.Path, IfMatch: parseIfMatch(r.Header.Values("If-Match"))}
	hash := sha256.New()
	hash.Write(body)
	if r.URL.RawQuery != "" {
		hash.Write([]byte("?" + r.URL.RawQuery))
	}
	hash.Sum(call.BodyHash[:0])
	keys := r.Header.Values("Idempotency-Key")
	if len(keys) == 0 {
		return call, nil
	}
	key := keys[0]
	printable := !strings.ContainsFunc(key, func(c rune) bool { return c < ' ' || c > '~' })
	if len(keys) > 1 || key == "" || len(key) > maxKey || !printable {
		return call, loquat.Invalid("header.Idempotency-Key", "has to be given once, with 1 to %d printable ASCII characters", maxKey)
	}
	call.IdempotencyKey = key
	return call, nil
}

// parseIfMatch parses the precondition of a change. The comparison is strong: a weak tag, or
// a tag that this server did not make, matches nothing.
func parseIfMatch(values []string) *chat.Match {
	if len(values) == 0 {
		return nil
	}
	m := &chat.Match{}
	for tag := range strings.SplitSeq(strings.Join(values, ","), ",") {
		tag = strings.TrimSpace(tag)
		if tag == "*" {
			m.Any = true
			continue
		}
		quoted, opened := strings.CutPrefix(tag, `"`)
		digits, closed := strings.CutSuffix(quoted, `"`)
		if !opened || !closed {
			continue
		}
		if id, err := loquat.ParseEventID(digits); err == nil {
			m.IDs = append(m.IDs, id)
		}
	}
	return m
}
