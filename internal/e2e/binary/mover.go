package binary

import (
	"strings"
	"testing"
)

// Mover is a program that is killed and comes back at the same address.
type Mover struct {
	T       *testing.T
	Args    []string
	Address string
	now     *Process
}

// Start starts the program and waits until it listens.
func (m *Mover) Start() {
	m.T.Helper()
	path, err := Path()
	if err != nil {
		m.T.Fatal(err)
	}
	p, err := Launch(path, nil, m.Args...)
	if err != nil {
		m.T.Fatal(err)
	}
	m.now = p
	if err := p.Listening(); err != nil {
		m.T.Fatal(err)
	}
}

// Kill kills the program and checks its log.
func (m *Mover) Kill() {
	_ = m.now.Cmd.Process.Kill()
	_ = m.now.Cmd.Wait() // it was killed
	for _, sign := range []string{"panic:", "level=ERROR", "town-secret"} {
		if strings.Contains(m.now.Log.String(), sign) {
			m.T.Errorf("the log has %q:\n%s", sign, m.now.Log)
		}
	}
}
