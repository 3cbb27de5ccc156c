package store

import (
	"errors"
	"log/slog"
)

// Fault describes, for an operator, why the database fails. It contains neither paths nor user
// data.
type Fault struct {
	Kind   string // such as "full"; empty if the caller cancelled the call
	Text   string // what is wrong
	Remedy string // what to do
}

func (f Fault) Error() string { return f.Text + "; " + f.Remedy }

// Damaged is the Fault of a database file that no longer has the content that was written. It
// is permanent.
var Damaged = Fault{Kind: "damaged", Text: "the database is damaged", Remedy: "stop the server, run loquat check, restore a backup"}

// damageError reports a row that this package cannot have written.
type damageError struct{ err error }

func (e *damageError) Error() string { return e.err.Error() }
func (e *damageError) Unwrap() error { return e.err }

func asDamage(err error) error { return asDatabaseError(&damageError{err}) }

// explain returns the Fault that describes an error.
func (s *Store) explain(err error) Fault {
	if _, ok := errors.AsType[*damageError](err); ok {
		return Damaged
	}
	return s.driver.Explain(err)
}

// reportFault logs a database error and returns its Fault. The log has the first error of
// each kind and then their number every minute.
func (s *Store) reportFault(err error) Fault {
	fault := s.explain(err)
	if fault.Kind == Damaged.Kind {
		s.damage.CompareAndSwap(nil, &fault)
	}
	if fault.Kind != "" { // else the caller cancelled the call
		s.faults.Log(slog.LevelError, "the store fails: "+fault.Text, "remedy", fault.Remedy, "error", err)
	}
	return fault
}
