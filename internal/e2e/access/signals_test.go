package access_test

import (
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"loquat"
	"loquat/internal/e2e/binary"
)

// SIGTERM and SIGINT end commands that wait for input or for a server. Their exit code says that they failed.
func TestSignalsEndCommands(t *testing.T) {
	o := startOutside(t)
	path, err := binary.Path()
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"chat"}, {"import", "-", "--server", o.URL}, {"events", "--since", "0", "--server", o.URL + "/v1/chat/completions?"}} {
		for _, sign := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
			cmd := exec.CommandContext(t.Context(), path, args...)
			cmd.Env = binary.CleanEnv()
			if _, err := cmd.StdinPipe(); err != nil { // which stays open
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(500 * time.Millisecond) // until it waits
			ended := make(chan error, 1)
			if err := cmd.Process.Signal(sign); err != nil {
				t.Fatal(err)
			}
			go func() { ended <- cmd.Wait() }()
			select {
			case <-ended:
				if code := cmd.ProcessState.ExitCode(); code != binary.ExitFailure {
					t.Errorf("%v has the exit code %d after %v", args, code, sign)
				}
			case <-time.After(10 * time.Second):
				t.Errorf("%v does not end on %v", args, sign)
				_ = cmd.Process.Kill()
				<-ended
			}
		}
	}
	if code, said := binary.Exit(t, "backup", "--follow", "--list", "x"); code != binary.ExitUsage {
		t.Errorf("flags that exclude each other: exit code %d: %s", code, said)
	}
}

// A second signal ends a server at once that still waits for its requests.
func TestSecondSignal(t *testing.T) {
	o := startOutside(t)
	file := filepath.Join(t.TempDir(), "loquat.json")
	binary.WriteFile(t, file, fmt.Sprintf(`{"providers": {"main": {"provider": "reference_generic_compatible", "model": "m", "base_url": "%s/v1"}}, "server": {"shutdown_grace_seconds": 600}}`, o.URL))
	p := binary.Start(t, nil, "serve", "--config", file, "--listen", "127.0.0.1:0", "--data", t.TempDir())
	c := binary.NewClient(t, p.URL)
	s, err := c.CreateSession(t.Context(), loquat.NewSession{})
	if err != nil {
		t.Fatal(err)
	}
	content := "hi"
	if _, err := c.Send(t.Context(), s.SessionID, loquat.Send{Content: &content}); err != nil {
		t.Fatal(err)
	}
	binary.Eventually(t, "the call of the backend", func() bool { return len(o.called()) > 0 })
	signal := func() {
		if err := p.Cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
	}
	signal()
	signal() // as a parent process forwards it
	binary.Eventually(t, "the server not to be ready", func() bool { return binary.Readiness(t, p.URL) == http.StatusServiceUnavailable })
	time.Sleep(1500 * time.Millisecond)
	if p.Cmd.ProcessState != nil || binary.Readiness(t, p.URL) != http.StatusServiceUnavailable {
		t.Fatal("the server does not wait for its request")
	}
	signal()
	p.Stopped(t)
}
