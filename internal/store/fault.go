package store

import (
	"errors"
	"sync"
	"time"
)

// Fault is what is wrong with a database, for those who run the server. It names no path
// and holds nothing that users said.
type Fault struct {
	Kind   string // such as "full"; "" is a call that its caller ended
	Text   string // what is wrong
	Remedy string // what to do
}

func (f Fault) Error() string { return f.Text + "; " + f.Remedy }

// Damaged is the fault of a database whose file is not what was written to it. It does
// not pass.
var Damaged = Fault{Kind: "damaged", Text: "the database is damaged", Remedy: "stop the server, run loquat check, restore a backup"}

// damageError is a row that cannot be what was written.
type damageError struct{ err error }

func (e *damageError) Error() string { return e.err.Error() }
func (e *damageError) Unwrap() error { return e.err }

func asDamage(err error) error { return asDatabaseError(&damageError{err}) }

// explain says what a failure of the database means.
func (s *Store) explain(err error) Fault {
	if _, ok := errors.AsType[*damageError](err); ok {
		return Damaged
	}
	return s.driver.Explain(err)
}

// repeatFaultsEvery is how often the log repeats that something still fails.
const repeatFaultsEvery = time.Minute

// faultLog bounds what the log says of failures: one line for the first of a kind, and
// from then on how many there were since.
type faultLog struct {
	mu     sync.Mutex
	byKind map[string]*loggedFault
}

type loggedFault struct {
	text   string
	count  int // since the last line
	logged time.Time
	last   error
}

// complain logs a failure of the database and returns what it means.
func (s *Store) reportFault(err error) Fault {
	fault := s.explain(err)
	if fault.Kind == Damaged.Kind {
		s.damage.CompareAndSwap(nil, &fault)
	}
	if fault.Kind == "" { // the caller has ended the call
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

// forget makes the next failure of a kind news again.
func (s *Store) forgetFault(kind string) {
	s.faultLog.mu.Lock()
	defer s.faultLog.mu.Unlock()
	delete(s.faultLog.byKind, kind)
}

// repeat logs how often what failed has failed since the log said so.
func (s *Store) repeatFaults() {
	s.faultLog.mu.Lock()
	defer s.faultLog.mu.Unlock()
	for kind, c := range s.faultLog.byKind {
		switch {
		case time.Since(c.logged) < repeatFaultsEvery:
		case c.count == 0: // the next failure of this kind is news again
			delete(s.faultLog.byKind, kind)
		default:
			s.log.Error("the store still fails: "+c.text, "times", c.count, "error", c.last)
			*c = loggedFault{text: c.text, logged: time.Now()}
		}
	}
}
