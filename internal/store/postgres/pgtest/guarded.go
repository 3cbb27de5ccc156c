//go:build unix

package pgtest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// guarded is a process that ends with the tests, even if they are killed: a shell waits for the
// end of its own standard input, and then stops the process.
type guarded struct {
	cmd  *exec.Cmd
	hold io.Closer
	file string // contains the id of the process
}

// guardScript runs a command until its standard input ends. DATA is the cluster of a PostgreSQL
// server that the command started, which is then stopped too. Each of them may be paused.
const guardScript = `rm -f "$PID"; "$0" "$@" >>"$LOG" 2>&1 </dev/null & pid=$!; echo $pid >"$PID.new"; mv "$PID.new" "$PID"; cat >/dev/null
	server() { if [ -n "$DATA" ]; then
		main=$(head -n 1 "$DATA/postmaster.pid" 2>/dev/null)
		if [ -n "$main" ] && ps -o args= -p "$main" | grep -qF -- "$DATA"; then echo "$main"; fi
	fi; }
	if [ -n "$DATA" ]; then kill -KILL $pid 2>/dev/null; else kill -CONT $pid 2>/dev/null; kill -TERM $pid 2>/dev/null; fi
	for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do
		main=$(server)
		if [ -n "$main" ]; then kill -CONT $main $(ps -o pid= --ppid $main) 2>/dev/null; kill -QUIT $main 2>/dev/null; fi
		if [ -z "$main" ] && ! kill -0 $pid 2>/dev/null; then break; fi
		sleep 0.1
	done
	main=$(server)
	if [ -n "$main" ]; then kill -KILL $main $(ps -o pid= --ppid $main) 2>/dev/null; fi
	kill -KILL $pid 2>/dev/null; wait $pid; exit 0`

// guard returns a command that start starts. Its output goes to the file NAME.log.
func (c *Cluster) guard(name, data, program string, args ...string) *guarded {
	g := &guarded{file: filepath.Join(c.dir, name+".pid")}
	g.cmd = c.command("bash", append([]string{"-c", guardScript, program}, args...)...)
	g.cmd.Env = append(os.Environ(), "LOG="+filepath.Join(c.dir, name+".log"), "PID="+g.file, "DATA="+data, "LC_ALL=C.UTF-8", "HOME="+c.dir)
	return g
}

func (g *guarded) start() (err error) {
	if err := os.Remove(g.file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if g.hold, err = g.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := g.cmd.Start(); err != nil {
		return err
	}
	return within(10*time.Second, g.file+" exists", func() error { _, err := os.Stat(g.file); return err })
}

func (g *guarded) signal(signal syscall.Signal) error {
	b, err := os.ReadFile(g.file)
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return err
	}
	return syscall.Kill(pid, signal)
}

// stop ends the process and waits for its end. A second call does nothing.
func (g *guarded) stop() {
	if g.cmd.Process == nil || g.cmd.ProcessState != nil {
		return
	}
	g.hold.Close()
	_ = g.cmd.Wait() // it may have been killed
}

// signalServer sends a signal to all processes of the PostgreSQL server with a data directory.
func signalServer(data string, signal syscall.Signal) error {
	b, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return err
	}
	line, _, _ := strings.Cut(string(b), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		return err
	}
	args, err := exec.Command("ps", "-o", "args=", "-p", strconv.Itoa(pid)).Output()
	if err != nil || !strings.Contains(string(args), data) {
		return fmt.Errorf("the server of %s does not run: process %d is %q", data, pid, args)
	}
	// While it is stopped, the main process starts no others.
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	time.Sleep(50 * time.Millisecond) // a process that is being started must be listed
	children, err := exec.Command("ps", "-o", "pid=", "--ppid", strconv.Itoa(pid)).Output()
	if err != nil {
		return fmt.Errorf("list the server's processes: %w", err)
	}
	for _, field := range append(strings.Fields(string(children)), strconv.Itoa(pid)) {
		n, err := strconv.Atoi(field)
		if err != nil {
			return err
		}
		if err := syscall.Kill(n, signal); err != nil && !errors.Is(err, syscall.ESRCH) { // it may have ended
			return err
		}
	}
	return nil
}

// freePorts returns ports of loopback that nobody listens on.
func freePorts(n int) (ports []int, err error) {
	for range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer ln.Close()
		ports = append(ports, ln.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
