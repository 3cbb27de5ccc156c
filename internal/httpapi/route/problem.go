package route

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"loquat"
)

// ProblemMedia is the media type of a problem.
const ProblemMedia = "application/problem+json"

var statuses = map[loquat.Code]int{
	loquat.CodeInvalid:            http.StatusUnprocessableEntity,
	loquat.CodeUnauthorized:       http.StatusUnauthorized,
	loquat.CodeForbidden:          http.StatusForbidden,
	loquat.CodeNotFound:           http.StatusNotFound,
	loquat.CodeMethodNotAllowed:   http.StatusMethodNotAllowed,
	loquat.CodeConflict:           http.StatusConflict,
	loquat.CodeBusy:               http.StatusConflict,
	loquat.CodePreconditionFailed: http.StatusPreconditionFailed,
	loquat.CodeGone:               http.StatusGone,
	loquat.CodeTooLarge:           http.StatusRequestEntityTooLarge,
	loquat.CodeUnsupportedMedia:   http.StatusUnsupportedMediaType,
	loquat.CodeRateLimited:        http.StatusTooManyRequests,
	loquat.CodeBackendError:       http.StatusBadGateway,
	loquat.CodeUnavailable:        http.StatusServiceUnavailable,
	loquat.CodeInternal:           http.StatusInternalServerError,
}

// retryAfter is the default of Retry-After, in seconds, for codes where waiting helps.
var retryAfter = map[loquat.Code]int{
	loquat.CodeRateLimited: 5,
	loquat.CodeUnavailable: 2,
}

// waitFor returns the error's own RetryAfter, or the default of its code.
func waitFor(code loquat.Code, err error) int {
	if e, ok := errors.AsType[*loquat.Error](err); ok && e.RetryAfter > 0 {
		return e.RetryAfter
	}
	return retryAfter[code]
}

// ProblemOf returns the problem that answers an error. An error that is not a *loquat.Error
// is internal; its text is not shown to clients.
func ProblemOf(err error) loquat.Problem {
	e, ok := errors.AsType[*loquat.Error](err)
	status, known := http.StatusInternalServerError, false
	if ok {
		status, known = statuses[e.Code]
	}
	if !known || e.Code == loquat.CodeInternal {
		return NewProblem(http.StatusInternalServerError, loquat.CodeInternal, "the server failed; its log says why")
	}
	if e.Code == loquat.CodeInvalid && e.Malformed {
		status = http.StatusBadRequest
	}
	p := NewProblem(status, e.Code, e.Detail)
	p.RequestID, p.Bound = e.RequestID, e.Bound
	for _, f := range e.Fields {
		p.Errors = append(p.Errors, f.Clipped())
	}
	return p
}

// NewProblem returns a problem without field errors.
func NewProblem(status int, code loquat.Code, detail string) loquat.Problem {
	return loquat.Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: loquat.Clip(detail, loquat.MaxDetail), Code: code}
}

// WriteProblem answers with a failure.
func WriteProblem(w http.ResponseWriter, err error) {
	SendProblem(w, Fail(w, err))
}

// Fail sets the header Retry-After for a failure and returns its problem.
func Fail(w http.ResponseWriter, err error) loquat.Problem {
	p := ProblemOf(err)
	if seconds := waitFor(p.Code, err); seconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	return p
}

// SendProblem answers with a problem.
func SendProblem(w http.ResponseWriter, p loquat.Problem) {
	SendFailure(w, p, ProblemMedia, p)
}

// SendFailure answers with the status of a problem, and with a body that says it in another form.
func SendFailure(w http.ResponseWriter, p loquat.Problem, media string, body any) {
	h := w.Header()
	for _, stale := range []string{"ETag", "Location", "Content-Length", "Last-Modified"} {
		h.Del(stale)
	}
	h.Set("Content-Type", media)
	h.Set("Cache-Control", "no-store")
	if p.Code == loquat.CodeUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	w.WriteHeader(p.Status)
	writeJSON(w, body)
}

// Refusal returns a whole HTTP/1.1 response that refuses a connection before its request
// is read.
func Refusal(err error) []byte {
	p := ProblemOf(err)
	var body bytes.Buffer
	writeJSON(&body, p)
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nRetry-After: %d\r\nConnection: close\r\n\r\n%s",
		p.Status, p.Title, ProblemMedia, body.Len(), waitFor(p.Code, err), body.Bytes())
}

// writeJSON writes v. It ignores errors, because they mean that the client disconnected.
func writeJSON(w io.Writer, v any) {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v)
}

// Malformed returns the error for an input that cannot be parsed: 400.
func Malformed(location, format string, args ...any) *loquat.Error {
	e := loquat.Invalid(location, format, args...)
	e.Malformed = true
	return e
}
