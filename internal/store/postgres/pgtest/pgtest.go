//go:build unix

// Package pgtest starts PostgreSQL servers for tests, each with its own cluster in a temporary
// directory. A test is skipped where PostgreSQL is not installed; in CI it fails.
package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// startTimeout is how long a server may take to accept connections, at each of several attempts.
const startTimeout = 10 * time.Second

// Server is a running server. It listens on a port of 127.0.0.1.
type Server struct {
	Port int

	place            // its dir has data and the log
	bin       string // folder of the programs
	settings  []string
	temporary bool // the cluster is removed when the server ends
	cmd       *exec.Cmd
	hold      io.Closer // the server stops when this pipe is closed
	log       string
}

// Binaries returns the folder of PostgreSQL's programs. It skips the test if there is none; if
// the variable CI is set, it fails the test.
func Binaries(t testing.TB) string {
	t.Helper()
	bin, ok := installed()
	if !ok {
		Missing(t, "initdb, of PostgreSQL's server")
	}
	return bin
}

// installed returns the folder of the newest PostgreSQL.
func installed() (bin string, ok bool) {
	if path, err := exec.LookPath("initdb"); err == nil {
		// A link may stand outside of the folder of the other programs.
		if target, err := filepath.EvalSymlinks(path); err == nil {
			path = target
		}
		return filepath.Dir(path), true
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return "", false
	}
	slices.SortFunc(found, func(a, b string) int { return version(b) - version(a) })
	return filepath.Dir(found[0]), true
}

func version(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	return n
}

// Missing skips a test because a program is not installed. If the variable CI is set, it fails
// the test.
func Missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("%s is not installed; .ci/install should have installed it", what)
	}
	t.Skipf("skipped: %s is not installed", what)
}

// Start creates a cluster and starts its server, with settings such as "fsync=off". The end of
// the test stops the server and removes the cluster.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	s, err := start(Binaries(t), settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the server's log:\n%s", s.Log())
		}
		s.remove()
	})
	return s
}

func start(bin string, settings []string) (*Server, error) {
	return startWith(&Server{bin: bin, settings: settings})
}

func startWith(s *Server) (*Server, error) {
	if err := s.create(); err != nil {
		return nil, err
	}
	s.log = filepath.Join(s.dir, "log")
	if err := s.initdb(); err != nil {
		os.RemoveAll(s.dir)
		return nil, err
	}
	if err := s.Restart(); err != nil {
		s.remove()
		return nil, err
	}
	return s, nil
}

// StartSmall is Start with a database named small, whose tables are on a file system of a few
// MiB. It skips the test if it cannot mount one.
func StartSmall(t testing.TB, mib int) *Server {
	t.Helper()
	if os.Getuid() != 0 || runtime.GOOS != "linux" {
		t.Skip("only root on Linux can mount a small file system")
	}
	s, err := startWith(&Server{bin: Binaries(t), settings: []string{"fsync=off"}, place: place{small: mib}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.remove)
	for _, statement := range []string{"CREATE TABLESPACE small LOCATION '" + s.smallDir() + "'", "CREATE DATABASE small TABLESPACE small"} {
		if err := s.Exec("postgres", statement); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// StartPooler starts pgbouncer in transaction mode in front of the server, and returns its
// port. The end of the test stops it.
func (s *Server) StartPooler(t testing.TB, program string) (port int) {
	t.Helper()
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	users, config := filepath.Join(s.dir, "users"), filepath.Join(s.dir, "pooler.ini")
	err = errors.Join(os.WriteFile(users, []byte(`"postgres" ""`), 0o644), os.WriteFile(config, fmt.Appendf(nil, `[databases]
* = host=127.0.0.1 port=%d
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = trust
auth_file = %s
pool_mode = transaction
default_pool_size = 5
server_round_robin = 1
`, s.Port, port, users), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := s.command(program, config)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the pooler's log:\n%s", &out)
		}
	})
	for range 500 {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			conn.Close()
			return port
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("the pooler did not start")
	return 0
}

func freePort() (int, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return ln.Addr().(*net.TCPAddr).Port, ln.Close()
}

func (s *Server) initdb() (err error) {
	cmd := s.command(filepath.Join(s.bin, "initdb"), "-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	s.Port, err = freePort()
	return err
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// Restart starts a server that was stopped or killed, and waits until it accepts connections.
// A server does not start while a killed process still holds its memory, so Restart tries
// again.
func (s *Server) Restart() (err error) {
	for range 6 {
		if err = s.launch(); err == nil {
			return nil
		}
		s.Stop()
	}
	return err
}

func (s *Server) launch() error {
	args := []string{"-D", s.data(), "-p", strconv.Itoa(s.Port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=" + s.dir}
	for _, setting := range s.settings {
		args = append(args, "-c", setting)
	}
	// The shell stops the server when its standard input ends, so no server outlives the
	// tests.
	const script = `"$0" "$@" >>"$LOG" 2>&1 </dev/null & pid=$!; cat >/dev/null; kill -INT $pid 2>/dev/null; wait $pid
		if [ -n "$TEMPORARY" ]; then rm -rf "$TEMPORARY"; fi`
	s.cmd = s.command("sh", append([]string{"-c", script, filepath.Join(s.bin, "postgres")}, args...)...)
	s.cmd.Env = append(os.Environ(), "LOG="+s.log)
	if s.temporary {
		s.cmd.Env = append(s.cmd.Env, "TEMPORARY="+s.dir)
	}
	var err error
	if s.hold, err = s.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	deadline := time.Now().Add(startTimeout)
	for {
		err := s.Exec("postgres", "SELECT 1")
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the server did not start: %w\n%s", err, s.Log())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Stop ends the server. Open connections are cut.
func (s *Server) Stop() {
	if s.cmd == nil {
		return
	}
	s.hold.Close()
	_ = s.cmd.Wait() // the server may have been killed
	s.cmd = nil
}

// Signal sends a signal to the server's main process.
func (s *Server) Signal(signal syscall.Signal) error {
	pid, err := s.pid()
	if err != nil {
		return err
	}
	return syscall.Kill(pid, signal)
}

func (s *Server) pid() (int, error) {
	b, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return strconv.Atoi(strings.TrimSpace(line))
}

// Kill ends all processes of the server at once, as a power failure would.
func (s *Server) Kill() error {
	if err := signalServer(s.data(), syscall.SIGKILL); err != nil {
		return err
	}
	s.Stop()
	return nil
}

// Pause stops all processes of the server until Resume. Connections stay open and silent.
func (s *Server) Pause() error { return signalServer(s.data(), syscall.SIGSTOP) }

// Resume ends Pause.
func (s *Server) Resume() error { return signalServer(s.data(), syscall.SIGCONT) }

func (s *Server) remove() {
	s.Stop()
	os.RemoveAll(s.dir)
}

// Log returns the server's log.
func (s *Server) Log() string {
	b, _ := os.ReadFile(s.log)
	return string(b)
}

// Dir returns the folder of the cluster.
func (s *Server) Dir() string { return s.dir }

// URL returns the URL of a database.
func (s *Server) URL(database string) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable", s.Port, database)
}

// Exec runs statements in a database. It waits up to a minute for other connections to end, if a
// statement must be alone with a database: the server may learn late that they were closed.
func (s *Server) Exec(database, statements string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL(database))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for {
		_, err = conn.PgConn().Exec(ctx, statements).ReadAll()
		if inUse := (*pgconn.PgError)(nil); !errors.As(err, &inUse) || inUse.Code != "55006" || ctx.Err() != nil {
			return err
		}
	}
}

// Run starts a server that runs until the process of the tests ends, with settings such as
// "fsync=off".
func Run(settings ...string) (*Server, error) {
	bin, ok := installed()
	if !ok {
		return nil, errors.New("initdb, of PostgreSQL's server, is not installed")
	}
	return startWith(&Server{bin: bin, settings: settings, temporary: true})
}

var databases atomic.Int64

// Database creates an empty database. It returns the name and the URL of the database.
func (s *Server) Database(t testing.TB) (name, url string) {
	t.Helper()
	name, err := s.NewDatabase()
	if err != nil {
		t.Fatal(err)
	}
	return name, s.URL(name)
}

// NewDatabase creates an empty database and returns its name.
func (s *Server) NewDatabase() (name string, err error) {
	name = fmt.Sprintf("test_%d", databases.Add(1))
	return name, s.Exec("postgres", "CREATE DATABASE "+name)
}

var shared struct {
	sync.Mutex
	server *Server
	err    error
}

// Shared returns the server that the tests of a package share. It does not sync to disk.
// TestMain must call StopShared.
func Shared(t testing.TB) *Server {
	t.Helper()
	bin := Binaries(t)
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil && shared.err == nil {
		shared.server, shared.err = start(bin, []string{"fsync=off", "max_connections=200"})
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// StopShared stops the shared server if it was started.
func StopShared() {
	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil {
		shared.server.remove()
		shared.server = nil
	}
}

// Own gives a file the owner of another file.
func Own(t testing.TB, path string, like os.FileInfo) {
	t.Helper()
	owner, ok := like.Sys().(*syscall.Stat_t)
	if !ok {
		t.Fatal("files have no owners here")
	}
	if err := os.Chown(path, int(owner.Uid), int(owner.Gid)); err != nil {
		t.Fatal(err)
	}
}

// Command returns a command that runs as the server's user, in the folder of the cluster.
func (s *Server) Command(name string, args ...string) *exec.Cmd { return s.command(name, args...) }
