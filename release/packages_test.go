package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// system is a root file system with Debian and nothing else, in which packages are installed. No
// systemd runs there: a stand-in for systemctl writes down how it is called.
type system struct {
	t    *testing.T
	root string
}

// newSystem returns a copy of a file system that debootstrap makes once.
func newSystem(t *testing.T) system {
	t.Helper()
	if os.Getuid() != 0 {
		missing(t, "only root can install packages")
	}
	require(t, "debootstrap", "cp")
	s := system{t, filepath.Join(t.TempDir(), "root")}
	output(t, "cp", "-a", debian(t), s.root)
	s.write("/usr/bin/systemctl", "#!/bin/sh\necho \"$@\" >>/systemctl.log\ncase \"$*\" in *is-enabled*) echo enabled ;; esac\n", 0o755)
	if err := os.MkdirAll(filepath.Join(s.root, "run/systemd/system"), 0o755); err != nil {
		t.Fatal(err)
	}
	return s
}

// debian returns a file system with Debian's base, which all tests of this machine share.
func debian(t *testing.T) string {
	t.Helper()
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`(?m)^VERSION_CODENAME=(\w+)$`).FindSubmatch(release)
	mirror := regexp.MustCompile(`(?m)^(?:deb |URIs: )(http\S+/debian)/?(?:\s|$)`).FindSubmatch(sources(t))
	if name == nil || mirror == nil {
		missing(t, "this is not Debian, or its mirror is not known")
	}
	base := filepath.Join(os.TempDir(), fmt.Sprintf("loquat-release-%d-%s", os.Getuid(), name[1]))
	if _, err := os.Stat(base); err == nil {
		return base
	}
	draft, err := os.MkdirTemp("", "loquat-release-")
	if err != nil {
		t.Fatal(err)
	}
	output(t, "debootstrap", "--variant=minbase", string(name[1]), draft, string(mirror[1]))
	if err := errors.Join(os.Chmod(draft, 0o755), os.Rename(draft, base)); err != nil {
		t.Fatal(err)
	}
	return base
}

// sources returns the sources of apt.
func sources(t *testing.T) (all []byte) {
	t.Helper()
	for _, pattern := range []string{"/etc/apt/sources.list", "/etc/apt/sources.list.d/*"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(append(all, text...), '\n')
		}
	}
	return all
}

func (s system) path(name string) string { return filepath.Join(s.root, name) }

func (s system) write(name, text string, mode os.FileMode) {
	s.t.Helper()
	if err := errors.Join(os.WriteFile(s.path(name), []byte(text), mode), os.Chmod(s.path(name), mode)); err != nil {
		s.t.Fatal(err)
	}
}

// command returns a command in the system. as is a user, or "" for root.
func (s system) command(as string, args ...string) *exec.Cmd {
	call := []string{s.root}
	if as != "" {
		call = []string{"--userspec=" + as, s.root}
	}
	cmd := exec.Command("chroot", append(call, args...)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C"}
	return cmd
}

func (s system) run(args ...string) string {
	s.t.Helper()
	return outputOf(s.t, s.command("", args...))
}

// asServer runs a command as the user of the service.
func (s system) asServer(args ...string) string {
	s.t.Helper()
	return outputOf(s.t, s.command("loquat", args...))
}

// copyIn copies a file into the system.
func (s system) copyIn(from, to string) {
	s.t.Helper()
	output(s.t, "cp", from, s.path(to))
}

// exists reports whether a file is there.
func (s system) exists(name string) bool {
	_, err := os.Lstat(s.path(name))
	return err == nil
}

// called returns how systemctl was called since the last time.
func (s system) called() string {
	s.t.Helper()
	text, err := os.ReadFile(s.path("/systemctl.log"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Fatal(err)
	}
	s.write("/systemctl.log", "", 0o666)
	return string(text)
}

// expectCalled checks which calls of systemctl concern the service.
func (s system) expectCalled(want string) {
	s.t.Helper()
	var got []string
	for line := range strings.Lines(s.called()) {
		if verb := regexp.MustCompile(`\b(start|stop|restart|try-restart|preset|disable --now)\b.*loquat\.service`).FindStringSubmatch(line); verb != nil {
			got = append(got, verb[1])
		}
	}
	if strings.Join(got, " ") != want {
		s.t.Errorf("systemd is asked to %q, want %q", got, want)
	}
}

// start starts what the unit starts, as its user, on an address of its own.
func (s system) start() (url string, stop func()) {
	s.t.Helper()
	unit, err := os.ReadFile(s.path("/usr/lib/systemd/system/loquat.service"))
	if err != nil {
		s.t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindSubmatch(unit)
	user := regexp.MustCompile(`(?m)^User=(.*)$`).FindSubmatch(unit)
	if line == nil || user == nil {
		s.t.Fatalf("the unit is\n%s", unit)
	}
	address := freeAddress(s.t)
	cmd := s.command(string(user[1]), strings.Fields(string(line[1]))...)
	cmd.Env = append(cmd.Env, "LOQUAT_LISTEN="+address)
	return "http://" + address, serve(s.t, cmd)
}

// expectSession checks that the server has, or makes, a session.
func expectSession(t *testing.T, url, method string) {
	t.Helper()
	path, body := "/sessions/kept", io.Reader(nil)
	if method == http.MethodPost {
		path, body = "/sessions", strings.NewReader(`{"session_id": "kept"}`)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode >= 300 {
		t.Errorf("%s %s: %s %s %v", method, path, resp.Status, answer, err)
	}
}

// freeAddress returns an address that nobody listens on at the moment.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// serve starts a server, and waits until it listens.
func serve(t *testing.T, cmd *exec.Cmd) (stop func()) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		killer := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
		defer killer.Stop()
		if err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()); err != nil {
			t.Errorf("the server ends with %v:\n%s", err, log.String())
		}
	}
	t.Cleanup(stop)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "listening on ") {
		stop()
		t.Fatalf("the server says %q, %v:\n%s", line, err, log.String())
	}
	return stop
}

// expectFiles checks the modes and owners of what a package installs.
func (s system) expectFiles() {
	s.t.Helper()
	for name, want := range map[string]string{
		"/usr/bin/loquat": "755 root root", "/etc/loquat/loquat.json": "640 root loquat", "/etc/loquat/environment": "640 root loquat",
		"/var/lib/loquat": "700 loquat loquat", "/usr/lib/systemd/system/loquat.service": "644 root root",
	} {
		if got := strings.TrimSpace(s.run("stat", "-c", "%a %U %G", name)); got != want {
			s.t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	s.run("sh", "-c", "test -s /usr/share/bash-completion/completions/loquat && test -s /usr/share/man/man1/loquat.1.gz")
	if out := s.asServer("loquat", "config", "check", "/etc/loquat/loquat.json"); !strings.Contains(out, ": ok") {
		s.t.Errorf("the configuration: %s", out)
	}
}

// setTimeout changes the configuration as an administrator does.
func (s system) setTimeout() {
	s.t.Helper()
	s.run("sed", "-i", `s/"providers"/"timeout": 77, "providers"/`, "/etc/loquat/loquat.json")
}

func (s system) expectTimeout() {
	s.t.Helper()
	if out := s.asServer("loquat", "config", "show", "--config", "/etc/loquat/loquat.json"); !strings.Contains(out, `"timeout": 77`) {
		s.t.Errorf("the administrator's configuration is lost: %s", out)
	}
}

// The life of a Debian package: installation, use, upgrade, removal, another installation, purge.
func TestDebianPackage(t *testing.T) {
	r := theRelease(t)
	s := newSystem(t)
	s.copyIn(r.artifact(t, filepath.Join(r.stage, "before"), ".deb"), "/before.deb")
	s.copyIn(r.artifact(t, r.out, ".deb"), "/now.deb")
	s.run("dpkg", "--install", "/before.deb")
	s.expectCalled("preset start")
	s.expectFiles()
	url, stop := s.start()
	expectSession(t, url, http.MethodPost)
	s.setTimeout()

	s.run("dpkg", "--install", "/now.deb") // the server runs
	s.expectCalled("restart")
	s.expectFiles()
	stop()
	url, stop = s.start()
	expectSession(t, url, http.MethodGet)
	s.expectTimeout()
	stop()

	s.run("dpkg", "--remove", "loquat")
	s.expectCalled("stop")
	if s.exists("/usr/bin/loquat") || !s.exists("/etc/loquat/loquat.json") || !s.exists("/var/lib/loquat/loquat.db") {
		t.Error("a removal removes the program, and keeps configuration and data")
	}
	s.run("dpkg", "--install", "/now.deb")
	s.expectCalled("restart")
	url, stop = s.start()
	expectSession(t, url, http.MethodGet)
	s.expectTimeout()
	stop()

	// As systemctl enable does.
	s.run("ln", "-s", "/usr/lib/systemd/system/loquat-backup.service", "/etc/systemd/system/multi-user.target.wants/loquat-backup.service")
	if out := s.run("dpkg", "--purge", "loquat"); !strings.Contains(out, "/var/lib/loquat has sessions and stays") {
		t.Errorf("a purge does not say that data stays: %s", out)
	}
	if s.exists("/etc/loquat") || !s.exists("/var/lib/loquat/loquat.db") {
		t.Error("a purge removes the configuration and keeps data")
	}
	if left := s.run("find", "/etc", "/usr", "-name", "*loquat*"); left != "" {
		t.Errorf("a purge leaves\n%s", left)
	}
	s.run("rm", "-r", "/var/lib/loquat")
	s.run("dpkg", "--install", "/now.deb")
	s.run("dpkg", "--purge", "loquat")
	if s.exists("/var/lib/loquat") {
		t.Error("a purge leaves an empty directory")
	}
}

// An upgrade takes over the data of an old version, and its check says so before.
func TestPackageTakesOverOldData(t *testing.T) {
	r := theRelease(t)
	s := newSystem(t)
	s.copyIn(r.artifact(t, r.out, ".deb"), "/now.deb")
	s.run("rm", "-r", "/usr/bin/systemctl", "/run/systemd")    // as in a container
	s.run("useradd", "--system", "--gid", "nogroup", "loquat") // by an earlier installation by hand
	s.run("dpkg", "--install", "/now.deb")
	s.expectFiles()
	if !s.exists("/etc/systemd/system/multi-user.target.wants/loquat.service") {
		t.Error("the service is not enabled")
	}
	f, err := os.Open("../internal/e2e/upgrade/testdata/data-of-3f0b70a.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	unpack(t, in, s.path("/var/lib/loquat"))
	s.run("chown", "-R", "loquat:loquat", "/var/lib/loquat")
	for _, args := range [][]string{{"upgrade", "--check", "/var/lib/loquat"}, {"check", "--data", "/var/lib/loquat"}, {"backup", "/tmp/copy", "--data", "/var/lib/loquat"}} {
		out, err := s.command("nobody", append([]string{"loquat"}, args...)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "run this as the user to whom the files belong") {
			t.Errorf("%s of another user: %v\n%s", args[0], err, out)
		}
	}
	if out := s.run("loquat", "upgrade", "--check", "/etc/loquat/loquat.json"); !strings.Contains(out, "has schema 7; the next start changes it to ") || !strings.Contains(out, "way back: closed") {
		t.Errorf("the check says\n%s", out)
	}
	_, stop := s.start() // root's check has left nothing that keeps the service out
	stop()
	if out := s.asServer("loquat", "upgrade", "--check", "/etc/loquat/loquat.json"); !strings.Contains(out, "changes nothing in it") {
		t.Errorf("the check says\n%s", out)
	}
	s.expectDenied()
}

// expectDenied checks that files of another user are named, with what to do.
func (s system) expectDenied() {
	s.t.Helper()
	s.run("chown", "root:", "/var/lib/loquat/loquat.db")
	for _, args := range [][]string{{"serve", "--demo", "--listen", "127.0.0.1:0"}, {"backup", "/tmp/denied"}, {"check"}, {"upgrade", "--check"}} {
		args = append(append([]string{"timeout", "20", "loquat"}, args...), "--data", "/var/lib/loquat")
		if out, err := s.command("loquat", args...).CombinedOutput(); err == nil || !strings.Contains(string(out), "permission denied; run this as the user") {
			s.t.Errorf("%s of a file of root: %v\n%s", args[3], err, out)
		}
	}
	s.run("chown", "loquat:", "/var/lib/loquat/loquat.db")
	url, stop := s.start()
	defer stop()
	s.run("chown", "root:", "/var/lib/loquat")
	s.expectReady(url, "the user of the server may not use loquat.db")
	s.run("chown", "loquat:", "/var/lib/loquat")
	s.expectReady(url, `"ready":true`)
}

// expectReady waits until the server says something about its readiness.
func (s system) expectReady(url, want string) {
	s.t.Helper()
	var body []byte
	for range 200 {
		if resp, err := http.Get(url + "/readyz"); err == nil {
			body, _ = io.ReadAll(resp.Body)
			resp.Body.Close()
			if strings.Contains(string(body), want) {
				return
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.t.Errorf("/readyz is %s, want %s", body, want)
}

// The life of an RPM package, in the same file system.
func TestRPMPackage(t *testing.T) {
	r := theRelease(t)
	require(t, "rpm")
	s := newSystem(t)
	before, now := r.artifact(t, filepath.Join(r.stage, "before"), ".rpm"), r.artifact(t, r.out, ".rpm")
	if out := output(t, "rpm", "-K", now); !strings.Contains(out, "digests OK") {
		t.Errorf("rpm -K: %s", out)
	}
	if out := output(t, "rpm", "-qp", "--configfiles", now); out != "/etc/loquat/environment\n/etc/loquat/loquat.json\n" {
		t.Errorf("the configuration files are %s", out)
	}
	if out := output(t, "rpm", "-qp", "--licensefiles", now); strings.Count(out, "/usr/share/licenses/loquat/") != 2 {
		t.Errorf("the licences are %s", out)
	}
	rpm := func(args ...string) {
		t.Helper()
		output(t, "rpm", append([]string{"--root", s.root, "--nodeps"}, args...)...)
	}
	output(t, "rpm", "--root", s.root, "--initdb")
	rpm("--install", before)
	s.expectCalled("preset")
	s.expectFiles()
	url, stop := s.start()
	expectSession(t, url, http.MethodPost)
	s.setTimeout()
	rpm("--upgrade", now)
	s.expectCalled("try-restart")
	s.expectFiles()
	stop()
	url, stop = s.start()
	expectSession(t, url, http.MethodGet)
	s.expectTimeout()
	stop()
	rpm("--erase", "loquat")
	s.expectCalled("disable --now")
	if s.exists("/usr/bin/loquat") || !s.exists("/etc/loquat/loquat.json.rpmsave") || !s.exists("/var/lib/loquat/loquat.db") {
		t.Error("a removal removes the program, and keeps what the administrator changed and the data")
	}
}
