package mcphost

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"
)

// Guard sees to it that nothing of a plugin outlives Loquat, however Loquat ends: a
// process beside it is told of every process group, and kills what is left of them
// when it hears no more. A nil Guard does nothing.
type Guard struct {
	command []string
	log     *slog.Logger

	mu     sync.Mutex
	groups map[int]bool // that are to be killed
	line   *os.File     // to the process; nil while there is none
	proc   *os.Process
	ended  chan struct{} // closed when the process has
}

// NewGuard makes a guard whose process, started with the first plugin, is command,
// which runs Watch on its standard input.
func NewGuard(log *slog.Logger, command ...string) *Guard {
	return &Guard{command: command, log: log, groups: map[int]bool{}}
}

// Watch is the guard's process: it reads of the groups that begin and end, and when
// nothing more can come kills those that have not ended.
func Watch(r io.Reader) {
	groups := map[int]bool{}
	for lines := bufio.NewScanner(r); lines.Scan(); {
		var begins bool
		var group int
		if _, err := fmt.Sscanf(lines.Text(), "%t %d", &begins, &group); err == nil && group > 1 {
			groups[group] = begins
		}
	}
	for group, left := range groups {
		if left {
			killGroup(group)
		}
	}
}

// watch says that a group has begun.
func (g *Guard) watch(group int) { g.set(group, true) }

// forget says that a group has ended.
func (g *Guard) forget(group int) { g.set(group, false) }

func (g *Guard) set(group int, begins bool) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if begins {
		g.groups[group] = true
	} else {
		delete(g.groups, group)
	}
	if g.line != nil {
		if _, err := fmt.Fprintf(g.line, "%t %d\n", begins, group); err == nil {
			return
		}
		g.hangUp()
	}
	if err := g.start(); err != nil {
		g.log.Warn("no guard over the processes of plugins: what they start may outlive a killed server", "error", err)
	}
}

// start starts the process and tells it of all groups.
func (g *Guard) start() error {
	if len(g.groups) == 0 {
		return nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd := exec.Command(g.command[0], g.command[1:]...)
	cmd.Stdin, cmd.Env, cmd.SysProcAttr = r, []string{}, apart()
	err = cmd.Start()
	closeAll(r)
	if err != nil {
		closeAll(w)
		return err
	}
	g.line, g.proc, g.ended = w, cmd.Process, make(chan struct{})
	go func(ended chan struct{}) {
		_ = cmd.Wait()
		close(ended)
	}(g.ended)
	for _, group := range slices.Sorted(maps.Keys(g.groups)) {
		if _, err := fmt.Fprintf(w, "true %d\n", group); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the process. No plugin may be running any more.
func (g *Guard) Close() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.line != nil {
		g.hangUp()
	}
}

// hangUp ends the process, at once when it does not do so by itself.
func (g *Guard) hangUp() {
	closeAll(g.line)
	select {
	case <-g.ended:
	case <-time.After(patience):
		_ = g.proc.Kill()
		<-g.ended
	}
	g.line = nil
}
