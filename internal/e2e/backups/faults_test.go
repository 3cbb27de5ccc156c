//go:build unix

package backups_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"loquat/internal/asset/s3/s3test"
	"loquat/internal/e2e/binary"
)

// site is a server with a follower, and the place of its copies.
type site struct {
	t        *testing.T
	data     string
	place    string
	env      []string
	server   *binary.Process
	follower *binary.Process
	n        int
}

// newSite starts a server. The place is a bucket of store, or a directory if store is nil.
func newSite(t *testing.T, place string, store *s3test.Server) *site {
	t.Helper()
	s := &site{t: t, data: filepath.Join(t.TempDir(), "data"), place: place}
	if store != nil {
		s.place = store.URL("copies")
		s.env = []string{"AWS_ACCESS_KEY_ID=" + s3test.AccessKeyID, "AWS_SECRET_ACCESS_KEY=" + s3test.SecretAccessKey}
	}
	s.server = binary.Start(t, nil, "serve", "--demo", "--listen", "127.0.0.1:0", "--data", s.data)
	binary.Call(t, http.MethodPost, s.server.URL+"/sessions", `{"session_id": "notes"}`)
	return s
}

// follow starts a follower and waits until it copies.
func (s *site) follow() {
	s.t.Helper()
	path, err := binary.Path()
	if err != nil {
		s.t.Fatal(err)
	}
	s.follower, err = binary.Launch(path, s.env, "backup", "--follow", s.place, "--data", s.data, "--every", "100ms")
	if err != nil {
		s.t.Fatal(err)
	}
	p := s.follower
	s.t.Cleanup(func() {
		if p.Cmd.ProcessState == nil {
			_ = p.Cmd.Process.Kill()
			_ = p.Cmd.Wait() // it was killed
		}
	})
	s.awaitLog("msg=copying")
}

func (s *site) awaitLog(text string) {
	s.t.Helper()
	for began := time.Now(); !strings.Contains(s.follower.Log.String(), text); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			s.t.Fatalf("the follower does not say %q:\n%s", text, s.follower.Log)
		}
	}
}

// write appends a message.
func (s *site) write() {
	s.t.Helper()
	s.n++
	binary.Call(s.t, http.MethodPost, s.server.URL+"/sessions/notes/messages", fmt.Sprintf(`{"role": "user", "content": "note %d"}`, s.n))
}

// run runs a command with the credentials of the place.
func (s *site) run(args ...string) (code int, out string) {
	s.t.Helper()
	path, err := binary.Path()
	if err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.CommandContext(s.t.Context(), path, args...)
	cmd.Env = append(binary.CleanEnv(), s.env...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	_ = cmd.Run() // the code says how it ended
	return cmd.ProcessState.ExitCode(), said.String()
}

// awaitNotes waits until a restore has all messages.
func (s *site) awaitNotes() {
	s.t.Helper()
	want := fmt.Sprintf(`"note %d"`, s.n)
	for began := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		to := filepath.Join(s.t.TempDir(), "restored")
		code, out := s.run("restore", s.place, to)
		if code == binary.ExitOK {
			p := binary.Start(s.t, nil, "serve", "--demo", "--listen", "127.0.0.1:0", "--data", to)
			_, body := binary.GetOnce(s.t, p.URL+"/sessions/notes")
			p.End(s.t)
			if strings.Contains(body, want) {
				return
			}
			out = body
		}
		if time.Since(began) > time.Minute {
			s.t.Fatalf("%s is not restored: %s; the follower says:\n%s", want, out, s.follower.Log)
		}
	}
}

func (s *site) expect(code int, text string, args ...string) {
	s.t.Helper()
	if got, out := s.run(args...); got != code || !strings.Contains(out, text) {
		s.t.Errorf("loquat %s: exit code %d, want %d and %q:\n%s", strings.Join(args, " "), got, code, text, out)
	}
}

// While the bucket is away the server and the follower go on. When it is back, so are the copies.
func TestBucketThatIsAway(t *testing.T) {
	t.Parallel()
	bucket := s3test.Start(t)
	s := newSite(t, "", bucket)
	s.follow()
	s.write()
	s.awaitNotes()
	bucket.Stop()
	s.write()
	s.awaitLog("cannot copy")
	s.awaitLog("cannot be reached")
	for range 20 {
		s.write()
	}
	bucket.Restart()
	s.awaitLog("copies work again")
	s.awaitNotes()
	s.expect(binary.ExitOK, "is sound", "backup", "--verify", s.place)
}

// A follower says at once what is wrong with its destination.
func TestDestinationThatIsWrong(t *testing.T) {
	t.Parallel()
	bucket := s3test.Start(t)
	s := newSite(t, "", bucket)
	follow := func(code int, text, place string) {
		t.Helper()
		s.expect(code, text, "backup", "--follow", place, "--data", s.data)
	}
	follow(binary.ExitFailure, "the bucket does not exist; create it", strings.Replace(s.place, "s3://"+s3test.Bucket, "s3://another", 1))
	s.env[1] = "AWS_SECRET_ACCESS_KEY=wrong"
	follow(binary.ExitFailure, "correct AWS_SECRET_ACCESS_KEY", s.place)
	file := filepath.Join(t.TempDir(), "file")
	binary.WriteFiles(t, filepath.Dir(file), map[string]string{"file": "text"})
	for _, place := range []string{file, filepath.Join(file, "below"), "https://example.com/copies", "s3://a", "s3://bucket:80/x"} {
		if code, out := s.run("backup", "--follow", place, "--data", s.data); code != binary.ExitUsage {
			t.Errorf("%s: %d %s", place, code, out)
		}
	}
	s.expect(binary.ExitUsage, "--every must be", "backup", "--follow", t.TempDir(), "--data", s.data, "--every", "1ms")
	s.expect(binary.ExitFailure, "there is no state to restore", "restore", t.TempDir(), filepath.Join(t.TempDir(), "x"))
	s.expect(binary.ExitFailure, "there is no state to restore", "backup", "--list", t.TempDir())
	s.expect(binary.ExitUsage, "there is no data in", "backup", "--follow", t.TempDir(), "--data", t.TempDir())
}

// A second follower is refused: of the same directory, of a copy of the directory, and of another
// server. If two are at work nevertheless, one of them ends.
func TestSecondFollower(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]func(*testing.T) *s3test.Server{
		"directory": func(*testing.T) *s3test.Server { return nil },
		"bucket":    func(t *testing.T) *s3test.Server { return s3test.Start(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, t.TempDir(), store(t))
			s.follow()
			s.write()
			s.expect(binary.ExitFailure, "another process already copies", "backup", "--follow", s.place, "--data", s.data)
			other := binary.Start(t, nil, "serve", "--demo", "--listen", "127.0.0.1:0", "--data", filepath.Join(t.TempDir(), "other"))
			s.expect(binary.ExitFailure, "stop this one and restore the copies", "backup", "--follow", s.place, "--data", other.Data())
			copied := filepath.Join(t.TempDir(), "copied")
			if out, err := exec.Command("cp", "-a", s.data, copied).CombinedOutput(); err != nil {
				t.Fatalf("%v %s", err, out)
			}
			s.expect(binary.ExitFailure, "another follower writes to", "backup", "--follow", s.place, "--data", copied)
			s.write()
			s.awaitNotes()
		})
	}
}

// A server that was lost and restored elsewhere may come back, on a host of the same name and with a
// directory of the same name. Its data are older than the copies, which it must not continue.
func TestLostServerThatComesBack(t *testing.T) {
	t.Parallel()
	s := newSite(t, t.TempDir(), nil)
	s.follow()
	s.write()
	s.awaitNotes()
	s.follower.Kill(t)
	s.server.Kill(t)
	lost := s.data + ".lost"
	if err := os.Rename(s.data, lost); err != nil {
		t.Fatal(err)
	}
	s.expect(binary.ExitOK, "everything up to event", "restore", s.place, s.data)
	s.server = binary.Start(t, nil, "serve", "--demo", "--listen", "127.0.0.1:0", "--data", s.data)
	s.follow() // which waits whether the lost follower still writes
	s.awaitLog("waiting whether another follower still writes")
	s.write()
	s.awaitNotes()
	s.follower.End(t)
	s.server.End(t)
	if err := errors.Join(os.Rename(s.data, s.data+".new"), os.Rename(lost, s.data)); err != nil {
		t.Fatal(err)
	}
	back := binary.Start(t, nil, "serve", "--demo", "--listen", "127.0.0.1:0", "--data", s.data)
	s.expect(binary.ExitFailure, "they are older than the copies", "backup", "--follow", s.place, "--data", s.data)
	back.End(t)

	// What the message says to do: with a backup of the old data, they continue.
	aside := s.data + ".aside"
	s.expect(binary.ExitOK, "everything up to event", "backup", aside, "--data", s.data)
	if err := errors.Join(os.RemoveAll(s.data), os.Rename(aside, s.data)); err != nil {
		t.Fatal(err)
	}
	s.server = binary.Start(t, nil, "serve", "--demo", "--listen", "127.0.0.1:0", "--data", s.data)
	s.follow()
	s.write()
	s.awaitNotes()
}

// A destination that is full, or cannot be written for another reason, is reported with what to do. When
// it can be written again, the follower continues.
func TestDestinationThatIsFull(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", disk).CombinedOutput(); err != nil {
		t.Skipf("a file system to fill cannot be mounted here: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", "-l", disk).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	s := newSite(t, disk, nil)
	s.follow()
	s.write()
	s.awaitNotes()
	ballast := filepath.Join(disk, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 8<<20), 0o600); err == nil {
		t.Fatal("the disk takes more than it has")
	}
	s.write()
	s.awaitLog("is full; make room there")
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	s.awaitLog("copies work again")
	s.awaitNotes()
	for _, mode := range []string{"ro", "rw"} {
		if out, err := exec.Command("mount", "-o", "remount,"+mode, disk).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		s.write()
		if mode == "ro" {
			s.awaitLog("is read-only; mount it")
		}
	}
	s.awaitNotes()
}

// A damaged copy is found, with what to do; states that do not need it can be restored.
func TestDamagedCopies(t *testing.T) {
	t.Parallel()
	s := newSite(t, t.TempDir(), nil)
	s.follow()
	for range 3 {
		s.write()
		time.Sleep(300 * time.Millisecond)
	}
	s.awaitNotes()
	s.expect(binary.ExitOK, "age ", "backup", "--list", s.place, "--max-age", "1m")
	s.follower.Kill(t)
	found, err := filepath.Glob(filepath.Join(s.place, "ltx", "0", "*.ltx"))
	if err != nil || len(found) < 2 {
		t.Fatalf("%v %v", found, err)
	}
	last := found[len(found)-1]
	b, err := os.ReadFile(last)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(b)
	flipped[200] ^= 0xff
	for name, damaged := range map[string][]byte{"flipped": flipped, "cut": b[:len(b)/2], "empty": {}} {
		if err := os.WriteFile(last, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		s.expect(binary.ExitFailure, filepath.Base(last)+" is damaged", "backup", "--verify", s.place)
		to := filepath.Join(t.TempDir(), "restored")
		code, out := s.run("restore", s.place, to)
		_, at, ok := strings.Cut(out, "--at ")
		if code != binary.ExitFailure || !ok {
			t.Fatalf("%s: restored: %d %s", name, code, out)
		}
		if _, err := os.Stat(to); err == nil {
			t.Errorf("%s: a damaged state was restored", name)
		}
		s.expect(binary.ExitOK, "everything up to event", "restore", s.place, to, "--at", strings.Fields(at)[0])
	}
	s.follow() // which cannot resume at a damaged copy
	s.awaitLog("the newest copy is missing or damaged")
	s.write()
	s.awaitNotes()
	s.follower.Kill(t)
	time.Sleep(1100 * time.Millisecond)
	s.expect(binary.ExitFailure, "see the log of loquat backup --follow", "backup", "--list", s.place, "--max-age", "1s")
	s.expect(binary.ExitFailure, "the oldest is that of", "restore", s.place, filepath.Join(t.TempDir(), "x"), "--at", "2020-01-01T00:00:00Z")
	s.expect(binary.ExitUsage, "is not a time", "restore", s.place, filepath.Join(t.TempDir(), "x"), "--at", "yesterday")
	s.expect(binary.ExitUsage, "exists; name a directory", "restore", s.place, t.TempDir())
}

// A server that is restored into its place is followed again, with all its earlier states.
func TestFollowedAfterARestore(t *testing.T) {
	t.Parallel()
	s := newSite(t, t.TempDir(), nil)
	s.follow()
	s.write()
	s.awaitNotes()
	s.server.End(t)
	if err := os.Rename(s.data, s.data+".old"); err != nil {
		t.Fatal(err)
	}
	s.expect(binary.ExitOK, "everything up to event", "restore", s.place, s.data)
	if code := s.follower.Stopped(t); code != binary.ExitFailure || !strings.Contains(s.follower.Log.String(), "removed or replaced") {
		t.Errorf("exit code %d of a follower whose database was replaced:\n%s", code, s.follower.Log)
	}
	s.server = binary.Start(t, nil, "serve", "--demo", "--listen", "127.0.0.1:0", "--data", s.data)
	s.follow()
	s.write()
	s.awaitNotes()
	s.expect(binary.ExitOK, "full copies       2", "backup", "--list", s.place)
	s.server.End(t)
	_ = s.follower.Cmd.Process.Signal(os.Interrupt)
	if code := s.follower.Stopped(t); code != binary.ExitOK {
		t.Errorf("exit code %d of a follower that was stopped:\n%s", code, s.follower.Log)
	}
}
