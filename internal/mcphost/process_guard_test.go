//go:build unix

package mcphost

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// begin starts a process group of two: a shell and its child.
func begin(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", "-c", "sleep 1000 & wait")
	cmd.SysProcAttr = apart()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		killGroup(cmd.Process.Pid)
		_ = cmd.Wait()
	})
	return cmd
}

// groupLives reports whether any process of a group runs.
func groupLives(group int) bool { return syscall.Kill(-group, 0) == nil }

// At the end of its input, Watch kills the groups that have not ended, and no others.
func TestWatch(t *testing.T) {
	left, over := begin(t), begin(t)
	Watch(strings.NewReader(fmt.Sprintf("true %d\ntrue %d\nnonsense\ntrue 1\ntrue 0\ntrue -1\nfalse %d\n", left.Process.Pid, over.Process.Pid, over.Process.Pid)))
	_ = left.Wait()
	eventually(t, "the end of the group", func() bool { return !groupLives(left.Process.Pid) })
	if !groupLives(over.Process.Pid) {
		t.Error("a group was killed although it was removed from the guard")
	}
}

// A guard whose helper was killed starts a new one with all groups.
func TestGuardComesBack(t *testing.T) {
	t.Parallel()
	g := NewGuard(slog.New(slog.DiscardHandler), os.Args[0], watchArgument)
	first, second := begin(t), begin(t)
	g.watch(first.Process.Pid)
	if err := g.proc.Kill(); err != nil {
		t.Fatal(err)
	}
	<-g.ended
	g.watch(second.Process.Pid)
	g.forget(second.Process.Pid)
	g.Close()
	_ = first.Wait()
	eventually(t, "the end of the first group", func() bool { return !groupLives(first.Process.Pid) })
	if !groupLives(second.Process.Pid) {
		t.Error("the second group was killed although it was said to have ended")
	}
}

// A helper that hangs delays nobody.
func TestGuardThatHangs(t *testing.T) {
	t.Parallel()
	g := NewGuard(slog.New(slog.DiscardHandler), os.Args[0], watchArgument)
	plugin := begin(t)
	g.watch(plugin.Process.Pid)
	if err := g.proc.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	g.forget(plugin.Process.Pid)
	closed := make(chan struct{})
	go func() { g.Close(); close(closed) }()
	eventually(t, "the end of the guard", func() bool {
		select {
		case <-closed:
			return true
		default:
			return false
		}
	})
	if !groupLives(plugin.Process.Pid) {
		t.Error("the group was killed although it was said to have ended")
	}
}
