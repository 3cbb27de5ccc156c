package data_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"loquat"
	"loquat/internal/archive"
	"loquat/internal/e2e/binary"
	"loquat/internal/strictjson"
)

// manyConversations writes an export of ChatGPT with n conversations. Every third has an answer that
// was regenerated.
func manyConversations(t *testing.T, n int) (name string, size int64) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "conversations.json")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(f)
	for i := range n {
		fmt.Fprintf(w, "%s\n{\"title\": \"Talk %d\", \"conversation_id\": \"talk-%d\", \"create_time\": %d.5, \"current_node\": \"m7\", \"mapping\": {\"root\": {\"children\": [\"m0\"]}", "[,"[min(i, 1):][:1], i, i, 1700000000+i)
		for m := range 8 {
			role, parent := "user", fmt.Sprint("m", m-1)
			if m%2 == 1 {
				role = "assistant"
			}
			if m == 0 {
				parent = "root"
			}
			text := strings.Repeat(fmt.Sprintf("Line %d of talk %d has some words.\\n", m, i), 30)
			message := `, "%s": {"parent": "%s", "message": {"id": "%[1]s", "author": {"role": "%[3]s"}, "create_time": %[4]d, "content": {"content_type": "text", "parts": ["%[5]s"]}, "metadata": {}, "recipient": "all"}}`
			fmt.Fprintf(w, message, fmt.Sprint("m", m), parent, role, 1700000000+i+m, text)
			if i%3 == 0 && m == 5 {
				fmt.Fprintf(w, message, "other", parent, role, 1700000000+i+m, "Another answer")
			}
		}
		w.WriteString("}}")
	}
	w.WriteString("\n]\n")
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return name, info.Size()
}

// serveData starts a server with a data directory.
func serveData(t *testing.T, dir string) *binary.Process {
	t.Helper()
	return binary.Start(t, nil, "serve", "--demo", "--data", dir, "--listen", "127.0.0.1:0")
}

// sessionsOf returns the digests of all sessions of a server, by id.
func sessionsOf(t *testing.T, url string) map[string][sha256.Size]byte {
	t.Helper()
	name := filepath.Join(t.TempDir(), "all.json")
	if err := binary.Run(t.Context(), []string{"export", "--server", url, "--all", "--output", name}, nil, io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(name)
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in, err := strictjson.NewStream(f)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][sha256.Size]byte{}
	for item, err := range archive.NewReader(in, archive.Options{}).Sessions() {
		if err == nil {
			err = item.Err
		}
		if err != nil {
			t.Fatal(err)
		}
		if out[item.Session.SessionID], err = archive.Digest(item.Session); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// importWay is a way to import a file into a data directory.
type importWay struct {
	t    *testing.T
	name string
	file string
}

// fuse is a file whose reader stops everything once it has read some of it.
type fuse struct {
	file *os.File
	left int64
	blow func() // nil: never
}

// Read reads the file, and nothing more once the fuse is blown.
func (f *fuse) Read(p []byte) (int, error) {
	if f.left <= 0 && f.blow != nil {
		f.blow()
		return 0, io.EOF
	}
	n, err := f.file.Read(p)
	f.left -= int64(n)
	return n, err
}

// run imports the file and returns what was reported. Unless killAt is 0, it kills everything once so
// many bytes were sent.
func (w importWay) run(dir string, killAt int64) (report loquat.ImportReport, said string, peak int64) {
	t := w.t
	t.Helper()
	file, err := os.Open(w.file)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	in := &fuse{file: file, left: killAt}
	if w.name == "data directory" {
		return w.command(in, killAt > 0, nil, "--demo", "--data", dir)
	}
	server := serveData(t, dir)
	if w.name == "POST" {
		report, peak = w.post(in, killAt > 0, server)
	} else {
		report, said, peak = w.command(in, killAt > 0, server, "--server", server.URL)
	}
	if killAt == 0 {
		peak = max(peak, binary.Memory(t, server, "VmHWM"))
		server.End(t)
	}
	return report, said, peak
}

// command imports with the command.
func (w importWay) command(in *fuse, kill bool, server *binary.Process, args ...string) (report loquat.ImportReport, said string, peak int64) {
	t := w.t
	t.Helper()
	path, err := binary.Path()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, append([]string{"import", "-"}, args...)...)
	cmd.Env, cmd.Stdin = binary.CleanEnv(), in
	if kill {
		in.blow = func() {
			_ = cmd.Process.Kill()
			if server != nil {
				_ = server.Cmd.Process.Kill()
			}
		}
	} else {
		cmd.Stdin = in.file
	}
	out, peak, err := binary.RunWithPeak(cmd)
	if kill {
		if server != nil {
			server.Stopped(t)
		}
		return report, "", 0
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	_, last, _ := strings.Cut(string(out), "-: ")
	if _, err := fmt.Sscanf(last, "%d imported, %d skipped, %d failed", &report.Imported, &report.Skipped, &report.Failed); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return report, string(out), peak
}

// post imports with a call.
func (w importWay) post(in *fuse, kill bool, server *binary.Process) (report loquat.ImportReport, peak int64) {
	t := w.t
	t.Helper()
	if kill {
		in.blow = func() { // what was sent may still wait in the connection
			for range 500 {
				if listed(server.URL) >= 5 {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			_ = server.Cmd.Process.Kill()
		}
	}
	resp, err := http.Post(server.URL+"/sessions/import", "application/json", in)
	if kill {
		server.Stopped(t)
		if err == nil {
			resp.Body.Close()
		}
		return report, 0
	}
	if err != nil {
		t.Fatal(err)
	}
	status, body := binary.AnswerOf(t, resp)
	if err := json.Unmarshal([]byte(body), &report); status != http.StatusOK || err != nil {
		t.Fatalf("%d %s", status, body)
	}
	return report, 0
}

// listed returns how many sessions the first page of a server's list has.
func listed(url string) int {
	resp, err := http.Get(url + "/sessions?limit=5")
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	var list loquat.SessionList
	_ = json.NewDecoder(resp.Body).Decode(&list)
	return len(list.Sessions)
}

// An import of many conversations that is killed in the middle and repeated leaves the same sessions
// as one that is not. Its memory does not grow with the file.
func TestImportOfManyConversations(t *testing.T) {
	n := binary.Number(t, "LOQUAT_IMPORT_CONVERSATIONS", 150)
	file, size := manyConversations(t, n)
	var want map[string][sha256.Size]byte
	for _, name := range []string{"data directory", "server", "POST"} {
		t.Run(name, func(t *testing.T) {
			w := importWay{t, name, file}
			dir := t.TempDir()
			begun := time.Now()
			report, said, peak := w.run(dir, 0)
			took := time.Since(begun)
			if report.Imported != n || report.Failed+report.Skipped > 0 {
				t.Fatalf("%d imported, %d skipped, %d failed\n%s", report.Imported, report.Skipped, report.Failed, said)
			}
			t.Logf("%d conversations, %d MB, in %v; peak memory %d MB", n, size>>20, took.Round(time.Millisecond), peak>>20)
			if peak > 300<<20 {
				t.Errorf("the import took %d MB of memory for a file of %d MB", peak>>20, size>>20)
			}
			if n > 10_000 && name != "POST" && !strings.Contains(said, "imported so far") {
				t.Errorf("no progress in\n%s", said)
			}
			if got := w.stored(dir); want == nil {
				want = got
			} else if !maps.Equal(got, want) {
				t.Errorf("%d sessions, not the same as another way gives", len(got))
			}
			if len(want) != n {
				t.Errorf("%d sessions are stored", len(want))
			}

			dir = t.TempDir()
			w.run(dir, size/2)
			report, said, _ = w.run(dir, 0)
			t.Logf("killed after %d sessions", report.Skipped)
			if report.Imported+report.Skipped != n || report.Imported == 0 || report.Skipped == 0 || !maps.Equal(w.stored(dir), want) {
				t.Errorf("after a kill and a repeat the sessions differ; %d imported, %d skipped\n%s", report.Imported, report.Skipped, said)
			}
		})
	}
}

// stored returns the sessions in a data directory.
func (w importWay) stored(dir string) map[string][sha256.Size]byte {
	w.t.Helper()
	server := serveData(w.t, dir)
	defer server.End(w.t)
	return sessionsOf(w.t, server.URL)
}
