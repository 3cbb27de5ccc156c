package data_test

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

// checkData runs the check on a directory.
func checkData(t *testing.T, dir string, flags ...string) (code int, stdout, stderr string) {
	t.Helper()
	path, err := binary.Path()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, append([]string{"check", "--data", dir}, flags...)...)
	cmd.Env = binary.CleanEnv()
	var out, said strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), said.String()
}

// A directory that users fill is sound while the server runs, after it was killed, in a
// backup, and after a stop.
func TestCheckOfSoundData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	serve := []string{"serve", "--demo", "--data", data, "--listen", "127.0.0.1:0"}
	p := binary.Start(t, nil, serve...)
	c, err := client.New(p.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	u := newStaff(t, c, p.URL)
	sound := func(when, dir string) {
		t.Helper()
		for _, flags := range [][]string{nil, {"--full"}} {
			if code, out, said := checkData(t, dir, flags...); code != binary.ExitOK || !strings.HasPrefix(out, dir+" is sound: ") {
				t.Errorf("%s, %v: exit code %d\n%s%s", when, flags, code, out, said)
			}
		}
	}
	u.atWork()
	sound("while users work", data)
	to := filepath.Join(dir, "backup")
	if code, said := binary.Exit(t, "backup", to, "--data", data); code != binary.ExitOK {
		t.Fatalf("backup: %s", said)
	}
	u.stop()
	p.Kill(t)
	before := listing(t, data)
	sound("after a kill", data)
	if after := listing(t, data); after != before {
		t.Errorf("the check has changed the directory:\n%s\nit was\n%s", after, before)
	}
	sound("of a backup", to)
	p = binary.Start(t, nil, serve...)
	p.End(t)
	before = listing(t, data)
	sound("after a stop", data)
	if after := listing(t, data); after != before {
		t.Errorf("the check has changed the directory:\n%s\nit was\n%s", after, before)
	}
}

// listing is the names and the bytes of a directory, but for what locks it and the index
// of the write-ahead log, which holds no data.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() == "loquat.lock" || entry.Name() == "loquat.db-shm" {
			return err
		}
		b, err := os.ReadFile(path)
		out.WriteString(path + " " + hashOf(b) + "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// Whatever is wrong is named with what to do about it; the server that starts on it says
// so too.
func TestCheckFindsDamage(t *testing.T) {
	t.Parallel()
	made := filepath.Join(t.TempDir(), "made")
	p := binary.Start(t, nil, "serve", "--demo", "--data", made, "--listen", "127.0.0.1:0")
	c, err := client.New(p.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	s, err := c.CreateSession(t.Context(), loquat.NewSession{SessionID: "notes"})
	if err != nil {
		t.Fatal(err)
	}
	photo := binary.Photo(1, 1<<10)
	if _, status, err := upload(t.Context(), p.URL, s.SessionID, bytes.NewReader(photo)); status != http.StatusCreated {
		t.Fatalf("%d %v", status, err)
	}
	for range 60 {
		if status, body := appendOnce(t, p.URL, s.SessionID, strings.Repeat("marrow ", 200)); status != http.StatusCreated {
			t.Fatalf("%d %s", status, body)
		}
	}
	p.Kill(t)
	hash := hashOf(photo)
	change := func(name string, with func([]byte) []byte) func(string) error {
		return func(dir string) error {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, name), with(b), 0o600)
		}
	}
	flip := func(b []byte) []byte { b[len(b)/2] ^= 1; return b }
	image := filepath.Join("assets", hash[:2], hash)
	for _, c := range []struct {
		name  string
		spoil func(dir string) error
		flags []string
		says  string
		fix   string
	}{
		{"lost changes", change("loquat.db-wal", flip), nil, "lost: the database has lost the events from", "backup that holds these events"},
		{"a mark that is damaged", change("loquat.mark", flip), nil, "lost: the check for lost events failed", "backup"},
		{"an image that is missing", func(dir string) error { return os.Remove(filepath.Join(dir, image)) }, nil, "image: open ", "from a backup to its place"},
		{"an image that is cut", func(dir string) error { return os.Truncate(filepath.Join(dir, image), 9) }, nil, "image: ", "from a backup to its place"},
		{"an image that is changed", change(image, flip), []string{"--full"}, "image: " + hash, "from a backup to its place"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			if err := os.CopyFS(dir, os.DirFS(made)); err != nil {
				t.Fatal(err)
			}
			if err := c.spoil(dir); err != nil {
				t.Fatal(err)
			}
			code, out, said := checkData(t, dir, c.flags...)
			if code != binary.ExitFailure || !strings.HasPrefix(out, c.says) || !strings.Contains(said, c.fix) || strings.Count(out, "\n") != 1 {
				t.Errorf("exit code %d\n%s%s", code, out, said)
			}
		})
	}

	t.Run("lost changes at the start", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "data")
		if err := errors.Join(os.CopyFS(dir, os.DirFS(made)), change("loquat.db-wal", flip)(dir)); err != nil {
			t.Fatal(err)
		}
		server := binary.Start(t, nil, "serve", "--demo", "--data", dir, "--listen", "127.0.0.1:0")
		if _, body := binary.GetOnce(t, server.URL+"/readyz"); !strings.Contains(body, `"lost":"the database has lost the events from`) {
			t.Errorf("/readyz: %s", body)
		}
		if n := strings.Count(server.Log.String(), "level=ERROR"); n != 1 {
			t.Errorf("the log has %d errors:\n%s", n, server.Log)
		}
		server.End(t)
		if code, out, said := checkData(t, dir); code != binary.ExitOK {
			t.Errorf("after a start: exit code %d\n%s%s", code, out, said)
		}
	})
	t.Run("a damaged database", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "data")
		if err := os.CopyFS(dir, os.DirFS(made)); err != nil {
			t.Fatal(err)
		}
		server := binary.Start(t, nil, "serve", "--demo", "--data", dir, "--listen", "127.0.0.1:0") // copies the write-ahead log back
		server.End(t)
		if err := change("loquat.db", spoilPages)(dir); err != nil {
			t.Fatal(err)
		}
		if code, out, said := checkData(t, dir); code != binary.ExitFailure || !strings.Contains(out, "database: ") || !strings.Contains(said, "restore a backup") {
			t.Errorf("exit code %d\n%s%s", code, out, said)
		}
		server = binary.Start(t, nil, "serve", "--demo", "--data", dir, "--listen", "127.0.0.1:0")
		for range 20 {
			if status, body := binary.GetOnce(t, server.URL+"/sessions/notes"); status != http.StatusServiceUnavailable || !strings.Contains(body, "the database is damaged") {
				t.Fatalf("%d %.300s", status, body)
			}
		}
		if status, body := appendOnce(t, server.URL, "notes", "lost"); status != http.StatusServiceUnavailable || !strings.Contains(body, "the database is damaged") {
			t.Errorf("a change: %d %.300s", status, body)
		}
		if status, body := binary.GetOnce(t, server.URL+"/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "run loquat check") {
			t.Errorf("/readyz: %d %s", status, body)
		}
		if n := strings.Count(server.Log.String(), "level=ERROR"); n != 1 {
			t.Errorf("the log has %d errors:\n%s", n, server.Log)
		}
	})
	t.Run("nothing there", func(t *testing.T) {
		if code, _, said := checkData(t, t.TempDir()); code != binary.ExitUsage || !strings.Contains(said, "there is no data in ") {
			t.Errorf("exit code %d, said %s", code, said)
		}
	})
}

// spoilPages overwrites the pages that hold the text of messages.
func spoilPages(b []byte) []byte {
	const page = 4096
	for at := 0; at+page <= len(b); at += page {
		if bytes.Contains(b[at:at+page], []byte("marrow marrow")) {
			copy(b[at:], bytes.Repeat([]byte{0xA5}, page))
		}
	}
	return b
}
