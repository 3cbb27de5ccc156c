package binary

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Process is a running loquat. URL is set once Listening has returned.
type Process struct {
	Cmd *exec.Cmd
	URL string
	Log *LockedBuffer

	ready chan string // its first line of output; closed at the end of the output
}

// LockedBuffer keeps what a process writes.
type LockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *LockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *LockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Start starts the real program and waits until it says where it listens.
func Start(t testing.TB, env []string, args ...string) *Process {
	t.Helper()
	path, err := Path()
	if err != nil {
		t.Fatal(err)
	}
	return start(t, path, env, args...)
}

// start is Start of the program at path.
func start(t testing.TB, path string, env []string, args ...string) *Process {
	t.Helper()
	p, err := Launch(path, env, args...)
	if p != nil {
		t.Cleanup(func() { p.End(t) })
	}
	if err == nil {
		err = p.Listening()
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Launch starts the program at path and does not wait for anything.
func Launch(path string, env []string, args ...string) (*Process, error) {
	args, err := withStore(args)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(CleanEnv(), env...)
	return LaunchCommand(cmd)
}

// LaunchCommand is launch of a command that was made elsewhere.
func LaunchCommand(cmd *exec.Cmd) (*Process, error) {
	p := &Process{Cmd: cmd, Log: &LockedBuffer{}, ready: make(chan string, 1)}
	p.Cmd.Stderr = p.Log
	stdout, err := p.Cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.Cmd.Start(); err != nil {
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

// Listening waits for the line that says where the process listens.
func (p *Process) Listening() error {
	select {
	case line := <-p.ready:
		url, ok := strings.CutPrefix(line, "listening on ")
		if !ok {
			return fmt.Errorf("%v: the first line is %q:\n%s", p.Cmd.Args, line, p.Log)
		}
		p.URL = url
		return nil
	case <-time.After(30 * time.Second):
		_ = p.Cmd.Process.Signal(syscall.SIGQUIT) // it writes where it hangs
		killer := time.AfterFunc(20*time.Second, func() { _ = p.Cmd.Process.Kill() })
		defer killer.Stop()
		_ = p.Cmd.Wait()
		return fmt.Errorf("%v does not listen:\n%s", p.Cmd.Args, p.Log)
	}
}

// End asks the process to stop, and kills it when it does not.
func (p *Process) End(t testing.TB) {
	t.Helper()
	if p.Cmd.ProcessState != nil {
		return
	}
	_ = p.Cmd.Process.Signal(syscall.SIGTERM)
	killer := time.AfterFunc(20*time.Second, func() { _ = p.Cmd.Process.Kill() })
	err := p.Cmd.Wait()
	killer.Stop()
	if err != nil && !t.Failed() {
		t.Errorf("%v ended with %v:\n%s", p.Cmd.Args, err, p.Log)
	}
}

// CleanEnv is the environment without what would configure a server.
func CleanEnv() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "LOQUAT_") && !strings.HasPrefix(v, "OPENAI_") && !strings.HasPrefix(v, "OTEL_") {
			env = append(env, v)
		}
	}
	return env
}

// Run runs the program to its end. The error is what the program wrote to its
// standard error.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	path, err := Path()
	if err != nil {
		return err
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = CleanEnv(), stdin, stdout, io.MultiWriter(&said, stderr)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}

// Kill ends the process as a crash does.
func (p *Process) Kill(t testing.TB) {
	t.Helper()
	if err := p.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.Stopped(t)
}

// Exit runs the program to its end.
func Exit(t *testing.T, args ...string) (code int, stderr string) {
	t.Helper()
	path, err := Path()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = CleanEnv()
	var said strings.Builder
	cmd.Stderr = &said
	err = cmd.Run()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), said.String()
}

// Data returns the value of the process's --data option.
func (p *Process) Data() string {
	return p.Cmd.Args[slices.Index(p.Cmd.Args, "--data")+1]
}

// Stopped waits until a process that was sent a signal ends. It returns the exit code, or
// -1 if a signal killed the process.
func (p *Process) Stopped(t testing.TB) int {
	t.Helper()
	killer := time.AfterFunc(20*time.Second, func() { _ = p.Cmd.Process.Kill() })
	defer killer.Stop()
	_ = p.Cmd.Wait() // the exit code says it
	return p.Cmd.ProcessState.ExitCode()
}
