package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"loquat"
)

// problem is the body of every failing answer, as RFC 9457 has it. Code is stable,
// the texts are not.
type problem struct {
	Type      string              `json:"type" doc:"Always about:blank: the code tells failures apart."`
	Title     string              `json:"title" doc:"The meaning of the status."`
	Status    int                 `json:"status" doc:"The HTTP status."`
	Detail    string              `json:"detail" doc:"What went wrong this time, and what to do."`
	Code      loquat.Code         `json:"code" doc:"The stable name of the failure."`
	Errors    []loquat.FieldError `json:"errors,omitempty" doc:"The faults of the input, all at once."`
	RequestID string              `json:"request_id,omitempty" doc:"With code busy: the request that is in the way."`
}

const problemMedia = "application/problem+json"

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

// retryAfter is what a client is told to wait, in seconds, where waiting helps.
var retryAfter = map[loquat.Code]int{
	loquat.CodeRateLimited: 5,
	loquat.CodeUnavailable: 2,
}

// waitFor is what the failure says itself, or what is usual for its code.
func waitFor(code loquat.Code, err error) int {
	if e, ok := errors.AsType[*loquat.Error](err); ok && e.RetryAfter > 0 {
		return e.RetryAfter
	}
	return retryAfter[code]
}

// maxFaults bounds the faults that one answer lists. One more entry counts the rest.
const maxFaults = 100

// problemOf makes the answer of an error. What is no *loquat.Error is internal, and
// nothing of it is told.
func problemOf(err error) problem {
	e, ok := errors.AsType[*loquat.Error](err)
	status, known := http.StatusInternalServerError, false
	if ok {
		status, known = statuses[e.Code]
	}
	if !known || e.Code == loquat.CodeInternal {
		return newProblem(http.StatusInternalServerError, loquat.CodeInternal, "the server failed; its log says why")
	}
	if e.Code == loquat.CodeInvalid && e.Malformed {
		status = http.StatusBadRequest
	}
	p := newProblem(status, e.Code, e.Detail)
	p.RequestID = e.RequestID
	listed := e.Fields
	if len(listed) > maxFaults+1 { // not yet bounded while they were collected
		listed = append(slices.Clone(listed[:maxFaults]), moreFaults(len(listed)-maxFaults))
	}
	for _, f := range listed {
		p.Errors = append(p.Errors, f.Clipped())
	}
	return p
}

func moreFaults(n int) loquat.FieldError {
	return loquat.FieldError{Location: "body", Message: fmt.Sprintf("has %d more faults", n)}
}

func newProblem(status int, code loquat.Code, detail string) problem {
	return problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: loquat.Clip(detail, loquat.MaxDetail), Code: code}
}

// writeProblem answers with a failure.
func writeProblem(w http.ResponseWriter, err error) {
	p := problemOf(err)
	if seconds := waitFor(p.Code, err); seconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	p.write(w)
}

func (p problem) write(w http.ResponseWriter) {
	h := w.Header()
	for _, stale := range []string{"ETag", "Location", "Content-Length", "Last-Modified"} {
		h.Del(stale)
	}
	h.Set("Content-Type", problemMedia)
	h.Set("Cache-Control", "no-store")
	if p.Code == loquat.CodeUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	w.WriteHeader(p.Status)
	writeJSON(w, p)
}

// Refusal returns a whole HTTP/1.1 response that refuses a connection before its request
// is read.
func Refusal(err error) []byte {
	p := problemOf(err)
	var body bytes.Buffer
	writeJSON(&body, p)
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nRetry-After: %d\r\nConnection: close\r\n\r\n%s",
		p.Status, p.Title, problemMedia, body.Len(), waitFor(p.Code, err), body.Bytes())
}

// writeJSON writes v. An answer that cannot be written has nobody who reads it.
func writeJSON(w io.Writer, v any) {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v)
}

// malformed is an input that cannot be parsed: 400.
func malformed(location, format string, args ...any) *loquat.Error {
	e := loquat.Invalid(location, format, args...)
	e.Malformed = true
	return e
}

// faults collects what is wrong with an input, to report all of it at once. Beyond
// maxFaults it only counts.
type faults struct {
	malformed bool
	list      []loquat.FieldError
	more      int
}

// full counts a fault that there is no room for.
func (f *faults) full() bool {
	if len(f.list) < maxFaults {
		return false
	}
	f.more++
	return true
}

func (f *faults) add(location, format string, args ...any) {
	if f.full() {
		return
	}
	f.list = append(f.list, loquat.FieldError{Location: location, Message: fmt.Sprintf(format, args...)})
}

// err returns nil when nothing is wrong.
func (f *faults) err() error {
	if len(f.list) == 0 {
		return nil
	}
	slices.SortStableFunc(f.list, func(a, b loquat.FieldError) int { return strings.Compare(a.Location, b.Location) })
	detail := f.list[0].Location + " " + f.list[0].Message
	if n := len(f.list) + f.more; n > 1 {
		detail += fmt.Sprintf("; in all %d faults", n)
	}
	if f.more > 0 {
		f.list = append(f.list, moreFaults(f.more))
	}
	return &loquat.Error{Code: loquat.CodeInvalid, Malformed: f.malformed, Detail: detail, Fields: f.list}
}
