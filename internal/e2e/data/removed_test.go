package data_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"loquat/internal/e2e/binary"
)

// A server whose data directory is taken away accepts no change that would be lost, and
// says why; when the directory comes back, the server goes on. A second server is kept out
// even when the lock file was removed.
func TestDataDirectoryIsTakenAway(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	server := binary.Start(t, nil, "serve", "--demo", "--listen", "127.0.0.1:0", "--data", data)
	create := func(id string) (int, string) {
		status, body := postOnce(t, server.URL+"/sessions", `{"session_id": "`+id+`"}`)
		return status, body
	}
	if status, body := create("before"); status != http.StatusCreated {
		t.Fatalf("%d %s", status, body)
	}
	if err := os.Remove(filepath.Join(data, "loquat.lock")); err != nil {
		t.Fatal(err)
	}
	code, said := binary.Exit(t, "serve", "--demo", "--listen", "127.0.0.1:0", "--data", data)
	if code != binary.ExitFailure || !strings.Contains(said, "is in use by another process") {
		t.Errorf("a second server: exit code %d, said\n%s", code, said)
	}

	images := filepath.Join(data, "assets")
	if err := os.Rename(images, images+".away"); err != nil {
		t.Fatal(err)
	}
	if status, body := binary.GetOnce(t, server.URL+"/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "directory of images was removed") {
		t.Errorf("/readyz without images: %d %s", status, body)
	}
	if err := os.Rename(images+".away", images); err != nil {
		t.Fatal(err)
	}

	if err := os.Rename(data, data+".away"); err != nil {
		t.Fatal(err)
	}
	const reason = "loquat.db was removed or replaced"
	if status, body := create("lost"); status != http.StatusServiceUnavailable || !strings.Contains(body, reason) {
		t.Errorf("a change: %d %s", status, body)
	}
	status, body := binary.GetOnce(t, server.URL+"/readyz")
	if status != http.StatusServiceUnavailable || !strings.Contains(body, reason) || strings.Contains(body, data) {
		t.Errorf("/readyz: %d %s", status, body)
	}
	if status, body := postOnce(t, server.URL+"/sessions/before/assets", string(binary.Photo(1, 1<<10))); status != http.StatusServiceUnavailable {
		t.Errorf("an upload: %d %s", status, body)
	}
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Errorf("the server has made the directory again: %v", err)
	}
	if err := os.Rename(data+".away", data); err != nil {
		t.Fatal(err)
	}
	binary.Eventually(t, "the server to be ready", func() bool { return binary.Readiness(t, server.URL) == http.StatusOK })
	if status, body := create("after"); status != http.StatusCreated {
		t.Errorf("%d %s", status, body)
	}
	if n := strings.Count(server.Log.String(), "level=ERROR"); n != 1 || !strings.Contains(server.Log.String(), reason) {
		t.Errorf("the log has %s errors:\n%s", strconv.Itoa(n), server.Log)
	}

	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	if status, body := create("lost"); status != http.StatusServiceUnavailable {
		t.Errorf("a change of a directory that is removed: %d %s", status, body)
	}
	if binary.Readiness(t, server.URL) != http.StatusServiceUnavailable {
		t.Error("the server is ready without its data directory")
	}
}
