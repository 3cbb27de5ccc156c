package loquat

import (
	"errors"
	"fmt"
	"strings"
)

// Code is the stable name of a failure, the `code` of a problem document.
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

// Error is a failure that may cross an edge: its Detail is written for a person
// and says what to do next. Everything that is no *Error is internal.
type Error struct {
	Code      Code
	Malformed bool // of CodeInvalid: it could not be parsed (400), not parsed and wrong (422)
	Detail    string
	Fields    []FieldError
	RequestID string // of CodeBusy: the request that is in the way
	Err       error  // the cause, for logs

	RetryAfter int // seconds to wait before a repeat; 0 leaves it to the code
}

// FieldError is one fault of an input; Location is like body.attachments[0].url.
type FieldError struct {
	Location string `json:"location"`
	Message  string `json:"message"`
	Value    any    `json:"value,omitempty"`
}

// Error tells the cause too, unless the detail does already.
func (e *Error) Error() string {
	if e.Err != nil && !strings.Contains(e.Detail, e.Err.Error()) {
		return fmt.Sprintf("%s: %s: %v", e.Code, e.Detail, e.Err)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Detail)
}

func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an *Error. It clips the detail, so that an error stays small whatever
// its arguments repeat.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Detail: Clip(fmt.Sprintf(format, args...), MaxDetail)}
}

// Invalid makes the error of one input that could be parsed: 422 with its location.
func Invalid(location, format string, args ...any) *Error {
	f := FieldError{Location: location, Message: fmt.Sprintf(format, args...)}.Clipped()
	return &Error{Code: CodeInvalid, Detail: Clip(f.Location+" "+f.Message, MaxDetail), Fields: []FieldError{f}}
}

// Clipped returns f with bounded texts.
func (f FieldError) Clipped() FieldError {
	f.Location, f.Message = Clip(f.Location, maxLocation), Clip(f.Message, MaxDetail)
	if text, ok := f.Value.(string); ok {
		f.Value = Clip(text, Excerpt)
	}
	return f
}

// CodeOf returns the code of the *Error in err's chain, CodeInternal when there is
// none, and "" when err is nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}
