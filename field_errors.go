package loquat

import (
	"fmt"
	"slices"
	"strings"
)

// MaxFieldErrors bounds the field errors that one answer lists. One more entry counts the rest.
const MaxFieldErrors = 100

// FieldErrors collects what is wrong with an input, to report all of it at once. Beyond
// MaxFieldErrors it only counts.
type FieldErrors struct {
	Malformed bool // 400, not 422
	list      []FieldError
	more      int
}

// List returns the collected field errors, and one that counts the rest.
func (f *FieldErrors) List() []FieldError {
	if f.more == 0 {
		return f.list
	}
	return append(f.list[:len(f.list):len(f.list)], FieldError{Location: "body", Message: fmt.Sprintf("has %d more faults", f.more)})
}

// Full reports whether the list is full. If it is, Full counts the fault instead.
func (f *FieldErrors) Full() bool {
	if len(f.list) < MaxFieldErrors {
		return false
	}
	f.more++
	return true
}

// Add records one fault.
func (f *FieldErrors) Add(location, format string, args ...any) {
	if !f.Full() {
		f.list = append(f.list, FieldError{Location: location, Message: fmt.Sprintf(format, args...)}.Clipped())
	}
}

// Err returns an error with all faults, sorted by location, or nil if there are none.
func (f *FieldErrors) Err() error {
	slices.SortStableFunc(f.list, func(a, b FieldError) int { return strings.Compare(a.Location, b.Location) })
	return f.err()
}

func (f *FieldErrors) err() error {
	if len(f.list) == 0 {
		return nil
	}
	detail := f.list[0].Location + " " + f.list[0].Message
	if n := len(f.list) + f.more; n > 1 {
		detail += fmt.Sprintf("; in all %d faults", n)
	}
	return &Error{Code: CodeInvalid, Malformed: f.Malformed, Detail: Clip(detail, MaxDetail), Fields: f.List()}
}

// InvalidFields returns the error of an input's faults in their order, nil when there are
// none. It clips what the faults repeat of the input.
func InvalidFields(faults []FieldError) error {
	var f FieldErrors
	for _, fault := range faults {
		f.Add(fault.Location, "%s", fault.Message)
	}
	return f.err()
}
