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

// Guard is the process guard: a helper process that kills the plugins' process groups
// when Loquat dies, however it dies. The helper gets the number of every group, and kills
// the remaining groups when its standard input ends. A nil Guard does nothing.
type Guard struct {
	command []string
	log     *slog.Logger

	mu     sync.Mutex
	groups map[int]bool // the groups of running plugins
	line   *os.File     // the helper's standard input; nil while it does not run
	proc   *os.Process
	ended  chan struct{} // closed when the helper has ended
}

// NewGuard returns a guard. It starts command with the first plugin; command must call
// Watch with its standard input.
func NewGuard(log *slog.Logger, command ...string) *Guard {
	return &Guard{command: command, log: log, groups: map[int]bool{}}
}

// Watch runs in the helper process. It reads which groups start and end from r. At the
// end of r it kills the groups that have not ended.
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

// watch adds a group.
func (g *Guard) watch(group int) { g.set(group, true) }

// forget removes a group that has ended.
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
		g.endProcess()
	}
	if err := g.start(); err != nil {
		g.log.Warn("the process guard does not run: processes of plugins may outlive a killed server", "error", err)
	}
}

// start starts the helper and sends it all groups.
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

// Close ends the helper. No plugin may be running.
func (g *Guard) Close() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.line != nil {
		g.endProcess()
	}
}

// endProcess closes the helper's input and kills the helper if it does not end by itself.
func (g *Guard) endProcess() {
	closeAll(g.line)
	select {
	case <-g.ended:
	case <-time.After(patience):
		_ = g.proc.Kill()
		<-g.ended
	}
	g.line = nil
}
