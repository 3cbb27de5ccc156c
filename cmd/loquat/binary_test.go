package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// binary builds the real program, once for all tests of a run.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "loquat-binary-")
	if err != nil {
		return "", err
	}
	return buildProgram(filepath.Join(dir, "loquat"))
})

// buildProgram builds the program at path.
func buildProgram(path string, flags ...string) (string, error) {
	args := append(append([]string{"build", "-o", path}, flags...), ".")
	out, err := exec.Command("go", args...).CombinedOutput()
	if err != nil {
		return "", &buildError{string(out), err}
	}
	return path, nil
}

type buildError struct {
	output string
	err    error
}

func (e *buildError) Error() string { return e.err.Error() + "\n" + e.output }

// process is a running loquat.
type process struct {
	cmd *exec.Cmd
	url string
	log *lockedBuffer

	ready chan string // its first line; closed when it says no more
}

// lockedBuffer gathers what a process says.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// startProcess starts the real program and waits until it says where it listens.
func startProcess(t testing.TB, env []string, args ...string) *process {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	p, err := launch(path, env, args...)
	if p != nil {
		t.Cleanup(func() { p.end(t) })
	}
	if err == nil {
		err = p.listening()
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// launch starts the program at path and does not wait for anything.
func launch(path string, env []string, args ...string) (*process, error) {
	cmd := exec.Command(path, args...)
	cmd.Env = append(cleanEnv(), env...)
	return launchCommand(cmd)
}

// launchCommand is launch of a command that was made elsewhere.
func launchCommand(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, log: &lockedBuffer{}, ready: make(chan string, 1)}
	p.cmd.Stderr = p.log
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(stdout)
	go func() {
		defer close(p.ready)
		if lines.Scan() {
			p.ready <- lines.Text()
		}
		_, _ = io.Copy(io.Discard, stdout)
	}()
	return p, nil
}

// listening waits for the line that says where the process listens.
func (p *process) listening() error {
	select {
	case line := <-p.ready:
		url, ok := strings.CutPrefix(line, "listening on ")
		if !ok {
			return fmt.Errorf("%v: the first line is %q:\n%s", p.cmd.Args, line, p.log)
		}
		p.url = url
		return nil
	case <-time.After(30 * time.Second):
		return fmt.Errorf("%v does not listen:\n%s", p.cmd.Args, p.log)
	}
}

// end asks the process to stop, and kills it when it does not.
func (p *process) end(t testing.TB) {
	t.Helper()
	if p.cmd.ProcessState != nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	killer := time.AfterFunc(20*time.Second, func() { _ = p.cmd.Process.Kill() })
	err := p.cmd.Wait()
	killer.Stop()
	if err != nil && !t.Failed() {
		t.Errorf("%v ended with %v:\n%s", p.cmd.Args, err, p.log)
	}
}

// cleanEnv is the environment without what would configure a server.
func cleanEnv() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "LOQUAT_") && !strings.HasPrefix(v, "OPENAI_") {
			env = append(env, v)
		}
	}
	return env
}

// runProgram runs the program to its end. The error is what the program wrote to its
// standard error.
func runProgram(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	path, err := binary()
	if err != nil {
		return err
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = cleanEnv(), stdin, stdout, io.MultiWriter(&said, stderr)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}
