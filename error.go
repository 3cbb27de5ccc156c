package loquat

import (
	"errors"
	"fmt"
	"strings"
)

// Code is the stable name of a kind of error: the `code` of a problem.
type Code string

// The codes of the HTTP API.
const (
	CodeInvalid            Code = "invalid"
	CodeUnauthorized       Code = "unauthorized"
	CodeForbidden          Code = "forbidden"
	CodeNotFound           Code = "not_found"
	CodeMethodNotAllowed   Code = "method_not_allowed"
	CodeConflict           Code = "conflict"
	CodeBusy               Code = "busy"
	CodePreconditionFailed Code = "precondition_failed"
	CodeGone               Code = "gone"
	CodeTooLarge           Code = "too_large"
	CodeUnsupportedMedia   Code = "unsupported_media"
	CodeRateLimited        Code = "rate_limited"
	CodeBackendError       Code = "backend_error"
	CodeUnavailable        Code = "unavailable"
	CodeInternal           Code = "internal"
)

// Error is an error that clients may see. Its Detail is written for a person and says
// what to do next. Clients see any other error only as an internal one.
type Error struct {
	Code      Code
	Malformed bool // with CodeInvalid: the input could not be parsed (400); otherwise a value is wrong (422)
	Detail    string
	Fields    []FieldError
	RequestID string // with CodeBusy: the request that is running
	Err       error  // the cause, for logs

	Bound      string // with CodeRateLimited: the name of the bound of a role that was reached
	RetryAfter int    // seconds after which the client may repeat the call; 0: the default of the code
}

// FieldError describes one invalid field of an input. Location is a path such as
// body.attachments[0].url.
type FieldError struct {
	Location string `json:"location"`
	Message  string `json:"message"`
	Value    any    `json:"value,omitempty"`
}

// Error returns the code, the detail and, unless the detail contains it, the cause.
func (e *Error) Error() string {
	if e.Err != nil && !strings.Contains(e.Detail, e.Err.Error()) {
		return fmt.Sprintf("%s: %s: %v", e.Code, e.Detail, e.Err)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Detail)
}

func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an *Error with a formatted detail. It clips the detail, so that the error
// stays small even if the arguments are large.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Detail: Clip(fmt.Sprintf(format, args...), MaxDetail)}
}

// Invalid returns the error for one field that has a wrong value (422).
func Invalid(location, format string, args ...any) *Error {
	f := FieldError{Location: location, Message: fmt.Sprintf(format, args...)}.Clipped()
	return &Error{Code: CodeInvalid, Detail: Clip(f.Location+" "+f.Message, MaxDetail), Fields: []FieldError{f}}
}

// Clipped returns f with all texts clipped to their bounds.
func (f FieldError) Clipped() FieldError {
	f.Location, f.Message = Clip(f.Location, maxLocation), Clip(f.Message, MaxDetail)
	if text, ok := f.Value.(string); ok {
		f.Value = Clip(text, Excerpt)
	}
	return f
}

// CodeOf returns the code of the *Error in err's chain. It returns CodeInternal if there
// is no *Error, and "" if err is nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}
