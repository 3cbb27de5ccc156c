package store

import (
	"errors"
	"sync"
	"time"
)

// Fault describes, for an operator, why the database fails. It contains neither paths nor user
// data.
type Fault struct {
	Kind   string // such as "full"; empty if the caller cancelled the call
	Text   string // what is wrong
	Remedy string // what to do
}

func (f Fault) Error() string { return f.Text + "; " + f.Remedy }

// Damaged is the Fault of a database file whose content is not what was written. It is
// permanent.
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

// repeatFaultsEvery is how often a continuing failure is logged again.
const repeatFaultsEvery = time.Minute

// faultLog limits how often failures are logged: the first of each kind, then at intervals the
// number since.
type faultLog struct {
	mu     sync.Mutex
	byKind map[string]*loggedFault
}

type loggedFault struct {
	text   string
	count  int // failures since the last log line
	logged time.Time
	last   error
}

// reportFault logs a database error and returns its Fault.
func (s *Store) reportFault(err error) Fault {
	fault := s.explain(err)
	if fault.Kind == Damaged.Kind {
		s.damage.CompareAndSwap(nil, &fault)
	}
	if fault.Kind == "" { // the caller cancelled the call
		return fault
	}
	s.faultLog.mu.Lock()
	defer s.faultLog.mu.Unlock()
	if c := s.faultLog.byKind[fault.Kind]; c != nil {
		c.count++
		c.last = err
		return fault
	}
	if s.faultLog.byKind == nil {
		s.faultLog.byKind = map[string]*loggedFault{}
	}
	s.faultLog.byKind[fault.Kind] = &loggedFault{text: fault.Text, logged: time.Now()}
	s.log.Error("the store fails: "+fault.Text, "remedy", fault.Remedy, "error", err)
	return fault
}

// forgetFault makes sure that the next failure of a kind is logged at once.
func (s *Store) forgetFault(kind string) {
	s.faultLog.mu.Lock()
	defer s.faultLog.mu.Unlock()
	delete(s.faultLog.byKind, kind)
}

// repeatFaults logs, for each kind, the number of failures since its last log line.
func (s *Store) repeatFaults() {
	s.faultLog.mu.Lock()
	defer s.faultLog.mu.Unlock()
	for kind, c := range s.faultLog.byKind {
		switch {
		case time.Since(c.logged) < repeatFaultsEvery:
		case c.count == 0: // over: the next failure is logged at once
			delete(s.faultLog.byKind, kind)
		default:
			s.log.Error("the store still fails: "+c.text, "times", c.count, "error", c.last)
			*c = loggedFault{text: c.text, logged: time.Now()}
		}
	}
}
