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

// command is how a process is started.
type command struct {
	path string
	args []string
	dir  string
	env  []string

	guard *Guard
}

// inherited are the variables that a process gets from Loquat's own environment. All
// others, keys of providers above all, it never sees.
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

// String is the command line as a shell would take it.
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
		// Where the system kills a child with its parent, the parent is the thread
		// that made the child. So this one has to live as long.
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
		killGroup(p.pid) // what it has left behind
		c.guard.forget(p.pid)
		close(p.exited)
	}()
	if err := <-started; err != nil {
		closeAll(p.stdin, p.stdout, p.stderr)
		return nil, fmt.Errorf("start %s: %w", c, c.remedied(err))
	}
	return p, nil
}

// remedied says of a program that could not be started what is to be done.
func (c command) remedied(err error) error {
	_, missing := os.Stat(c.path)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("there is no program %s in Loquat's PATH, which is %s", c.path, os.Getenv("PATH"))
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; make it executable, or set command to its interpreter", err)
	case errors.Is(err, fs.ErrNotExist) && missing == nil:
		return fmt.Errorf("%w; its file is there, so what its first line names is missing", err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no program %s; a command with a slash is a path from the plugin's directory, where its packages may still have to be installed", c.path)
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("%w; begin it with #! and its interpreter, or set command to its interpreter", err)
	}
	return err
}

// pipes connects a command and returns its ends. They are files, so that waiting for
// the program never waits for what else holds them.
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

// patience is how long a process gets after each step of being stopped.
const patience = time.Second

// stop ends the process and all of its group: by the end of its input, then by asking
// it to, then by killing it.
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

// kill ends the process and all of its group at once.
func (p *process) kill() {
	select {
	case <-p.exited:
		return // its number may be another's by now
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

// end says how an exited process ended.
func (p *process) end() string {
	if p.err == nil {
		return "it ended with status 0"
	}
	if exit, ok := errors.AsType[*exec.ExitError](p.err); ok {
		return "it ended: " + exit.String()
	}
	return "it ended: " + p.err.Error()
}
