package loquat

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// An answer lists a hundred faults and counts the rest.
func TestFieldErrorsAreCounted(t *testing.T) {
	for n, want := range map[int]struct {
		detail string // the end
		fields int
	}{0: {}, 1: {"body.00 is wrong", 1}, 2: {"; in all 2 faults", 2}, 100: {"; in all 100 faults", 100}, 102: {"; in all 102 faults", 101}} {
		var f FieldErrors
		var faults []FieldError
		for i := range n {
			f.Add(fmt.Sprintf("body.%02d", n-1-i), "is %s", "wrong")
			faults = append(faults, FieldError{Location: fmt.Sprintf("body.%02d", i), Message: "is wrong"})
		}
		for how, err := range map[string]error{"collected": f.Err(), "given": InvalidFields(faults)} {
			e, _ := errors.AsType[*Error](err)
			if n == 0 {
				if err != nil {
					t.Errorf("no faults, %s: %v", how, err)
				}
				continue
			}
			if e == nil || e.Code != CodeInvalid || !strings.HasSuffix(e.Detail, want.detail) || len(e.Fields) != want.fields {
				t.Errorf("%d faults, %s: %v with %d fields", n, how, err, len(e.Fields))
				continue
			}
			if last := e.Fields[len(e.Fields)-1]; n > MaxFieldErrors && last.Message != fmt.Sprintf("has %d more faults", n-MaxFieldErrors) {
				t.Errorf("%d faults, %s: the last field is %+v", n, how, last)
			}
		}
		if n == MaxFieldErrors && !f.Full() || n == 1 && f.Full() {
			t.Errorf("%d faults: it is full or not", n)
		}
	}
}

func TestParsedRecordsHaveUsers(t *testing.T) {
	for body, want := range map[string]string{
		`{"type":"checkpoint","session_id":"s","user":"a\"n"}`:                     `a"n`,
		`{"type":"checkpoint","session_id":"s","request_id":"r","user":"ann"}`:     "ann",
		`{"type":"checkpoint","session_id":"s","detail":"x","user":"not at once"}`: "",
		`{"type":"checkpoint","session_id":"s"}`:                                   "",
	} {
		if rec, err := ParseRecord([]byte(body)); err != nil || rec.User != want || rec.SessionID != "s" {
			t.Errorf("%s: %q, %v", body, rec.User, err)
		}
	}
	for _, body := range []string{``, `{}`, `{"type":"x`, `{"type":"x"}`, `{"type":"x","session_id":"s`, `{"type":"x","session_id":"s","user":7}`} {
		if _, err := ParseRecord([]byte(body)); err == nil {
			t.Errorf("%s is a record", body)
		}
	}
}
