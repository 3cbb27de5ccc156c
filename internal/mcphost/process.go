package mcphost

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// command describes how a process is started.
type command struct {
	path string
	args []string
	dir  string
	env  []string

	guard *Guard
}

// inherited lists the variables that a process gets from Loquat's environment. It gets no
// others, in particular no provider keys.
var inherited = []string{"PATH", "HOME", "LANG", "TMPDIR", "TZ"}

// command returns how the plugin of a manifest in dir is started.
func (m Manifest) command(dir, cache string, environ []string) command {
	c := command{path: m.Command, args: m.Args, dir: dir}
	if strings.ContainsRune(m.Command, '/') && !filepath.IsAbs(m.Command) {
		c.path = filepath.Join(dir, m.Command)
	}
	env := map[string]string{}
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		if slices.Contains(inherited, name) || strings.HasPrefix(name, "LC_") {
			env[name] = value
		}
	}
	maps.Copy(env, m.Env)
	env[cacheVariable] = cache
	for _, name := range slices.Sorted(maps.Keys(env)) {
		c.env = append(c.env, name+"="+env[name])
	}
	return c
}

// String returns the command line, quoted for a shell.
func (c command) String() string {
	words := []string{quote(c.path)}
	for _, arg := range c.args {
		words = append(words, quote(arg))
	}
	return strings.Join(words, " ")
}

func quote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("@%+=:,./-_", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// process is a running program with a process group of its own.
type process struct {
	pid    int
	stdin  *os.File
	stdout *os.File
	stderr *os.File

	exited chan struct{} // closed when the program has ended and its group was killed
	err    error         // how it ended; set before exited is closed
}

// start starts a program.
func (c command) start() (*process, error) {
	cmd := exec.Command(c.path, c.args...)
	cmd.Dir, cmd.Env = c.dir, c.env
	cmd.SysProcAttr = ownGroup()
	p := &process{exited: make(chan struct{})}
	theirs, err := p.pipes(cmd)
	if err != nil {
		return nil, err
	}
	started := make(chan error)
	go func() {
		// On Linux the system kills the child when the thread that started it ends, so
		// this thread must outlive the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		closeAll(theirs...)
		if err != nil {
			started <- err
			return
		}
		p.pid = cmd.Process.Pid
		c.guard.watch(p.pid)
		started <- nil
		p.err = cmd.Wait()
		killGroup(p.pid) // children that are still running
		c.guard.forget(p.pid)
		close(p.exited)
	}()
	if err := <-started; err != nil {
		closeAll(p.stdin, p.stdout, p.stderr)
		return nil, fmt.Errorf("start %s: %w", quote(c.path), c.remedied(err)) // its arguments may have secrets
	}
	return p, nil
}

// remedied adds to a start error what the user can do.
func (c command) remedied(err error) error {
	_, missing := os.Stat(c.path)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("there is no program %s in Loquat's PATH, which is %s", c.path, os.Getenv("PATH"))
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; make it executable, or set command to its interpreter", err)
	case errors.Is(err, fs.ErrNotExist) && missing == nil:
		return fmt.Errorf("%w; the file exists, but the interpreter that its first line names is missing", err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no program %s; a command with a slash is a path from the plugin's directory, where its packages may still have to be installed", c.path)
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("%w; begin it with #! and its interpreter, or set command to its interpreter", err)
	}
	return err
}

// pipes connects a command to three pipes and returns the command's ends. The pipes are
// files, so cmd.Wait does not wait for children that still hold them.
func (p *process) pipes(cmd *exec.Cmd) (theirs []*os.File, err error) {
	var ours []*os.File
	for range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(append(ours, theirs...)...)
			return nil, fmt.Errorf("make a pipe: %w", err)
		}
		if len(ours) == 0 {
			ours, theirs = append(ours, w), append(theirs, r)
		} else {
			ours, theirs = append(ours, r), append(theirs, w)
		}
	}
	p.stdin, p.stdout, p.stderr = ours[0], ours[1], ours[2]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs[0], theirs[1], theirs[2]
	return theirs, nil
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// patience bounds the wait after each step of stopping a process.
const patience = time.Second

// stop ends the process and its group: it closes the input, then sends SIGTERM, then
// kills.
func (p *process) stop() {
	_ = p.stdin.Close()
	if p.endsWithin(patience) {
		return
	}
	terminateGroup(p.pid)
	if p.endsWithin(patience) {
		return
	}
	p.kill()
}

// kill kills the process and its group.
func (p *process) kill() {
	select {
	case <-p.exited:
		return // another process may have its pid by now
	default:
	}
	killGroup(p.pid)
	<-p.exited
}

func (p *process) endsWithin(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.exited:
		return true
	case <-timer.C:
		return false
	}
}

// end describes how the process ended.
func (p *process) end() string {
	if p.err == nil {
		return "it ended with status 0"
	}
	if exit, ok := errors.AsType[*exec.ExitError](p.err); ok {
		return "it ended: " + exit.String()
	}
	return "it ended: " + p.err.Error()
}
