package binary

import (
	"slices"
	"strings"
	"testing"
)

// Mover is a program that is killed and comes back at the same address.
type Mover struct {
	T        testing.TB
	Args     []string
	Address  string
	Program  string   // "" means Path
	Env      []string // in addition to CleanEnv
	Expected []string // texts that lines of level ERROR may have in this test
	now      *Process
}

// Start starts the program and waits until it listens.
func (m *Mover) Start() {
	m.T.Helper()
	if err := m.Launch(); err != nil {
		m.T.Fatal(err)
	}
	if err := m.now.Listening(); err != nil {
		m.T.Fatal(err)
	}
}

// Launch starts the program and does not wait until it listens.
func (m *Mover) Launch() (err error) {
	path := m.Program
	if path == "" {
		if path, err = Path(); err != nil {
			return err
		}
	}
	m.now, err = Launch(path, m.Env, m.Args...)
	return err
}

// Now returns the process of the moment.
func (m *Mover) Now() *Process { return m.now }

// Kill kills the program and checks its log.
func (m *Mover) Kill() {
	_ = m.now.Cmd.Process.Kill()
	_ = m.now.Cmd.Wait() // it was killed
	m.CheckLog()
}

// CheckLog fails the test if the log of the process has the sign of a fault.
func (m *Mover) CheckLog() {
	if sign := FaultIn(m.now.Log.String(), m.Expected...); sign != "" {
		m.T.Errorf("the log of %s has %q:\n%s", m.Args[0], sign, m.now.Log)
	}
}

// FaultIn returns the sign of a fault in a log, or "". Lines of level ERROR are faults, unless they have one of
// the expected texts.
func FaultIn(log string, expected ...string) string {
	for line := range strings.Lines(log) {
		for _, sign := range []string{"panic:", "fatal error:", "DATA RACE", "level=ERROR", "town-secret"} {
			fine := sign == "level=ERROR" && slices.ContainsFunc(expected, func(text string) bool { return strings.Contains(line, text) })
			if strings.Contains(line, sign) && !fine {
				return sign
			}
		}
	}
	return ""
}
