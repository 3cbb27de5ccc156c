package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/trace"
)

// failKind classifies a failure by what may be done about it.
type failKind uint8

const (
	failStatus    failKind = iota + 1 // an HTTP status other than success
	failTimeout                       // a timeout before streaming began
	failConnect                       // no answer, or an answer cut short that was not streamed
	failStream                        // a connection error of an active stream
	failBackend                       // the backend reported an error, or its answer cannot be decoded
	failCancelled                     // the caller's context ended
	failStopped                       // the caller stopped reading
)

// kindNames are the kinds as spans name them; that of a status is its number.
var kindNames = map[failKind]string{
	failTimeout: "timeout", failConnect: "connect", failStream: "stream", failBackend: "backend", failCancelled: "cancelled", failStopped: "stopped",
}

// note says in the span of the attempt that it failed.
func (f *failure) note(span trace.Span) {
	if !span.Traced() {
		return
	}
	kind := kindNames[f.kind]
	if f.kind == failStatus {
		span.Status(f.status)
		kind = strconv.Itoa(f.status)
	}
	span.Fail(kind, "")
}

// failure describes one failed attempt.
type failure struct {
	kind       failKind
	status     int
	retryAfter time.Duration
	message    string      // the backend's message, not redacted
	header     http.Header // of an error status
	body       []byte      // of an error status: its beginning, not redacted
	requestID  string      // the backend's id of the request
	unread     *answer     // the answer with an error status whose body has not been read; nil otherwise
	unreached  bool        // no connection was made
	unsent     bool        // no request was sent
	err        error
}

// maxQuote limits the bytes of a backend's answer that an error message repeats.
const maxQuote = 2 << 10

// asError returns the error that the user sees.
func (f *failure) asError(secrets *config.Redactor, attempts int) error {
	if f.kind == failCancelled {
		return f.err
	}
	e := loquat.Errorf(loquat.CodeBackendError, "%s", f.detail(secrets, attempts))
	if f.err != nil {
		e.Err = &redactedError{text: secrets.Redact(f.err.Error()), err: f.err}
	}
	return e
}

func (f *failure) detail(secrets *config.Redactor, attempts int) string {
	var b strings.Builder
	switch f.kind {
	case failStatus:
		fmt.Fprintf(&b, "the backend answered %d %s", f.status, http.StatusText(f.status))
	case failTimeout:
		b.WriteString("the backend did not answer in time")
	case failConnect:
		b.WriteString("the connection to the backend failed")
	case failStream:
		b.WriteString("the connection broke in the middle of the stream")
	default:
		b.WriteString("the backend reported an error")
		if f.err != nil {
			b.Reset()
			b.WriteString("the backend's answer cannot be used")
		}
	}
	if f.err != nil {
		b.WriteString(": " + secrets.Redact(f.err.Error()))
	}
	if f.message != "" {
		// Redacted before it is cut: half a secret would not be recognised.
		b.WriteString(": " + quote(redactText(f.message, secrets)))
	}
	if f.requestID != "" {
		b.WriteString("; the backend's request id is " + secrets.Redact(f.requestID))
	}
	if attempts == 1 {
		b.WriteString("; 1 attempt was made")
	} else if attempts > 1 {
		fmt.Fprintf(&b, "; %d attempts were made", attempts)
	}
	if f.unreached {
		b.WriteString("; the backend may not run there")
	}
	if f.status == http.StatusUnauthorized {
		b.WriteString("; api_key (or OPENAI_API_KEY) may be missing or wrong")
	}
	if f.unreached || f.status == http.StatusNotFound {
		b.WriteString("; base_url may lack its version prefix, such as /v1")
	}
	return b.String()
}

// quote returns the beginning of s as valid text.
func quote(s string) string {
	s = strings.TrimSpace(strings.ToValidUTF8(s, "\ufffd"))
	if len(s) <= maxQuote {
		return s
	}
	cut := maxQuote
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// redactedError keeps the chain of causes. Its text holds no secrets.
type redactedError struct {
	text string
	err  error
}

func (e *redactedError) Error() string { return e.text }
func (e *redactedError) Unwrap() error { return e.err }

// errorBody returns the message in the body of an error status.
func errorBody(body []byte) string {
	body = bytes.TrimPrefix(bytes.TrimSpace(body), []byte("data:"))
	if !json.Valid(body) {
		return string(body)
	}
	var list []json.RawMessage
	if json.Unmarshal(body, &list) == nil && len(list) > 0 {
		body = list[0]
	}
	if inner := asMap(body)["error"]; !saysNothing(inner) {
		if m := backendMessage(inner); m != string(inner) {
			return m
		}
	}
	return backendMessage(body)
}

// backendMessage returns the message of an error object: its own message, the message of
// a nested error, or the detail. Without any of them it returns the whole object.
func backendMessage(raw json.RawMessage) string {
	if t := text(raw); t != nil {
		return string(t)
	}
	e := asMap(raw)
	said := firstText(e["message"], asMap(e["error"])["message"], e["error"], e["detail"])
	if said == "" {
		return string(raw)
	}
	var notes []string
	for _, key := range []string{"code", "type", "status_code"} {
		if v := e[key]; !saysNothing(v) && v[0] != '{' && v[0] != '[' {
			notes = append(notes, key+" "+strings.Trim(string(v), `"`))
		}
	}
	if inner := text(asMap(e["metadata"])["raw"]); inner != nil {
		notes = append(notes, string(inner))
	}
	if len(notes) > 0 {
		said += " (" + strings.Join(notes, ", ") + ")"
	}
	return said
}

func firstText(values ...json.RawMessage) string {
	for _, v := range values {
		if t := text(v); t != nil {
			return string(t)
		}
	}
	return ""
}

func cancelled(ctx context.Context) *failure {
	err := context.Cause(ctx)
	if !errors.Is(err, ctx.Err()) {
		err = errors.Join(ctx.Err(), err)
	}
	return &failure{kind: failCancelled, err: err}
}
