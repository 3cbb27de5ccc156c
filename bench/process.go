package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// program is a program, such as the real one built for this run, and a directory for its
// data.
type program struct {
	path, dir string
	env       []string // in addition to the environment of this process
}

func buildProgram() (program, error) {
	dir, err := os.MkdirTemp("", "loquat-bench-")
	if err != nil {
		return program{}, err
	}
	p := program{path: filepath.Join(dir, "loquat"), dir: dir}
	if out, err := exec.Command("go", "-C", "..", "build", "-o", p.path, "./cmd/loquat").CombinedOutput(); err != nil {
		os.RemoveAll(dir)
		return program{}, fmt.Errorf("build loquat: %w\n%s", err, out)
	}
	return p, nil
}

func (p program) remove() { os.RemoveAll(p.dir) }

// process is a running loquat.
type process struct {
	cmd *exec.Cmd
	url string
	log *bytes.Buffer // read it only after the process has ended
}

// start starts the program and waits until it prints its address.
func (p program) start(args ...string) (*process, error) {
	run := &process{cmd: exec.Command(p.path, args...), log: &bytes.Buffer{}}
	run.cmd.Env = append(os.Environ(), p.env...)
	run.cmd.Stderr = run.log
	stdout, err := run.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := run.cmd.Start(); err != nil {
		return nil, err
	}
	out := bufio.NewReader(stdout)
	line, err := out.ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !ok {
		run.stop()
		return nil, fmt.Errorf("%v printed %q instead of its address:\n%s", run.cmd.Args, line, run.log)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	run.url = url
	return run, nil
}

// stop ends the process. If the process does not end after SIGTERM, stop kills it.
func (run *process) stop() {
	_ = run.cmd.Process.Signal(syscall.SIGTERM)
	killer := time.AfterFunc(20*time.Second, func() { _ = run.cmd.Process.Kill() })
	defer killer.Stop()
	_ = run.cmd.Wait()
}

// serve starts a server with a configuration. data is the name of its data directory.
func (p program) serve(config, data string) (*process, error) {
	file := filepath.Join(p.dir, data+".json")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	return p.start("serve", "--config", file, "--listen", "127.0.0.1:0", "--data", p.data(data))
}

func (p program) data(name string) string { return filepath.Join(p.dir, name) }

// usage is what a process has used so far.
type usage struct {
	cpu     time.Duration
	written int64 // bytes written to disk
}

// used returns what the process has used. The CPU time is the scheduler's: the ticks of
// /proc/PID/stat count processes that wake for a moment wrongly. Threads of Go rarely end.
func (run *process) used() (u usage) {
	pid := run.cmd.Process.Pid
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, path := range threads {
		text, _ := os.ReadFile(path)
		nanos, _, _ := strings.Cut(string(text), " ")
		n, _ := strconv.ParseInt(nanos, 10, 64)
		u.cpu += time.Duration(n)
	}
	u.written, _ = ioCount(pid, "write_bytes")
	return u
}

// ioCount returns a count of Linux about what a process has read and written.
func ioCount(pid int, name string) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(line, name+": "); ok {
			return strconv.ParseInt(strings.TrimSpace(n), 10, 64)
		}
	}
	return 0, fmt.Errorf("this system does not count %s", name)
}
