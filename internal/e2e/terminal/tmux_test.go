//go:build unix

package terminal_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"loquat/internal/e2e/binary"
)

// tmux, which many people have between the program and their terminal, shows the same as the
// emulator.
func TestInTmux(t *testing.T) {
	t.Parallel()
	tmux, err := exec.LookPath("tmux")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("tmux is not installed:", err)
	}
	path, err := binary.Path()
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t)
	s.session(t, "one", "A first chat", firstReply)
	socket := filepath.Join(t.TempDir(), "tmux")
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(tmux, append([]string{"-S", socket, "-f", "/dev/null"}, args...)...)
		cmd.Env = append(binary.CleanEnv(), "TERM=xterm-256color", "LC_ALL=C.UTF-8")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("tmux %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	run("new-session", "-d", "-x", "80", "-y", "24", path, "chat", "--server", s.url, "--session", "one")
	ended := false
	defer func() {
		if !ended {
			run("kill-server")
		}
	}()
	golden := func(name string) {
		t.Helper()
		want, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			lines := strings.Split(strings.TrimSuffix(run("capture-pane", "-p"), "\n"), "\n")
			for i, line := range lines {
				lines[i] = strings.TrimRight(line, " ")
			}
			if got = normal(strings.Join(lines, "\n") + "\n"); got == string(want) {
				return
			}
		}
		t.Errorf("tmux shows\n%s\nwant\n%s", got, want)
	}
	golden("empty-80")
	run("send-keys", "-l", "What is a loquat?")
	golden("typed-80")
	run("send-keys", "Enter")
	golden("reply-80")

	// When the terminal is closed, the client ends.
	pid, err := strconv.Atoi(strings.TrimSpace(run("display-message", "-p", "#{pane_pid}")))
	if err != nil {
		t.Fatal(err)
	}
	run("kill-server")
	ended = true
	binary.Eventually(t, "the end of the client", func() bool { return syscall.Kill(pid, 0) != nil })
}
