package data_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

// Backups that are taken while users write, upload, remove and send are each one state
// of the server, with all that was acknowledged before; a server on one goes on, as a
// log of its own.
func TestBackup(t *testing.T) {
	backups := 3
	if testing.Short() {
		backups = 1
	}
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	p := binary.Start(t, nil, "serve", "--demo", "--data", data, "--listen", "127.0.0.1:0")
	c, err := client.New(p.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	u := newStaff(t, c, p.URL)
	defer u.stop()
	for i := range backups {
		u.atWork()
		floor := u.acknowledged()
		to := filepath.Join(dir, fmt.Sprint("backup-", i))
		path, err := binary.Path()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), path, "backup", to, "--data", data)
		cmd.Env = binary.CleanEnv()
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		var last loquat.EventID
		var images int
		at := strings.TrimPrefix(string(out), to+": everything up to event ")
		if _, err := fmt.Sscanf(at, "%d, %d image", &last, &images); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		u.atWork() // so that the server goes on to events that the copy does not have
		copied := restored(t, to)
		copied.checkSessions(floor)
		copied.checkImages(floor, u.removedSince(floor))
		copied.checkLog(c, last)
		t.Logf("backup %d: %s", i, strings.TrimSpace(at))
	}
	u.stop()
	if strings.Contains(p.Log.String(), "level=ERROR") {
		t.Errorf("the server says:\n%s", p.Log)
	}
}

// staff are users that write, upload, remove and send until they are stopped.
type staff struct {
	t    *testing.T
	c    *client.Client
	url  string
	end  context.CancelFunc
	busy sync.WaitGroup

	mu         sync.Mutex
	said       map[string]int    // by session: how many messages were acknowledged
	images     map[string]string // by path: the hash of its bytes
	removed    map[string]bool   // paths of images
	operations int
}

// writers are those of the staff that append messages.
const writers = 3

func newStaff(t *testing.T, c *client.Client, url string) *staff {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	u := &staff{t: t, c: c, url: url, end: end, said: map[string]int{}, images: map[string]string{}, removed: map[string]bool{}}
	for i := range writers + 2 {
		s, err := c.CreateSession(ctx, loquat.NewSession{SessionID: fmt.Sprint("user-", i)})
		if err != nil {
			t.Fatal(err)
		}
		work := []func(context.Context, string, int) error{u.upload, u.send, u.write}[min(i, 2)]
		u.busy.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if err := work(ctx, s.SessionID, n); err != nil && ctx.Err() == nil {
					t.Errorf("%s: %v", s.SessionID, err)
					return
				}
				u.mu.Lock()
				u.operations++
				u.mu.Unlock()
			}
		})
	}
	return u
}

func (u *staff) stop() {
	u.end()
	u.busy.Wait()
}

// atWork waits until something has been done since.
func (u *staff) atWork() {
	u.t.Helper()
	count := func() int {
		u.mu.Lock()
		defer u.mu.Unlock()
		return u.operations
	}
	before := count()
	for began := time.Now(); count() < before+50; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > time.Minute || u.t.Failed() {
			u.t.Fatalf("the users have done %d operations in %s", count()-before, time.Since(began))
		}
	}
}

func (u *staff) write(ctx context.Context, session string, n int) error {
	_, err := u.c.AppendMessage(ctx, session, loquat.NewMessage{Role: "user", Content: fmt.Sprint(n)})
	if err == nil {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.said[session] = n + 1
	}
	return err
}

// upload keeps some forty of its images, so that backups meet some that go.
func (u *staff) upload(ctx context.Context, session string, n int) error {
	b := binary.Photo(uint64(n), 4<<10)
	a, status, err := upload(ctx, u.url, session, bytes.NewReader(b))
	if err != nil || status != http.StatusCreated {
		return fmt.Errorf("upload: %d %w", status, err)
	}
	u.mu.Lock()
	u.images["/sessions/"+session+"/assets/"+a.AssetID] = hashOf(b)
	old := ""
	for path := range u.images {
		if len(u.images)-len(u.removed) > 40 && !u.removed[path] {
			u.removed[path], old = true, path // from here on it may be gone
			break
		}
	}
	u.mu.Unlock()
	if old == "" {
		return nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, u.url+old, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("delete: %s", resp.Status)
	}
	return nil
}

func (u *staff) send(ctx context.Context, session string, n int) error {
	content := fmt.Sprint("question ", n)
	sent, err := u.c.Send(ctx, session, loquat.Send{Content: &content, Stream: new(true)})
	if err != nil {
		return err
	}
	for _, err := range u.c.Follow(ctx, client.Query{RequestID: sent.RequestID, OmitSession: true}) {
		if err != nil {
			return err
		}
	}
	return nil
}

// operationsDone is what was acknowledged at some moment.
type operationsDone struct {
	said    map[string]int
	images  map[string]string
	removed map[string]bool
}

func (u *staff) acknowledged() operationsDone {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := operationsDone{map[string]int{}, map[string]string{}, map[string]bool{}}
	for session, n := range u.said {
		s.said[session] = n
	}
	for path, hash := range u.images {
		if !u.removed[path] {
			s.images[path] = hash
		}
	}
	return s
}

// removedSince are images of a state that may be gone by now.
func (u *staff) removedSince(s operationsDone) map[string]bool {
	now := u.acknowledged()
	gone := map[string]bool{}
	for path := range s.images {
		gone[path] = now.images[path] == ""
	}
	return gone
}

// restoredServer is a server on a copy.
type restoredServer struct {
	t   *testing.T
	url string
	c   *client.Client
}

func restored(t *testing.T, dir string) *restoredServer {
	t.Helper()
	url := binary.Start(t, nil, "serve", "--demo", "--listen", "127.0.0.1:0", "--data", dir).URL
	c, err := client.New(url, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	return &restoredServer{t, url, c}
}

// checkSessions compares the stored messages of each writer with the acknowledged ones.
// All of those must be there, in order; unacknowledged ones may follow.
func (r *restoredServer) checkSessions(floor operationsDone) {
	r.t.Helper()
	for session, said := range floor.said {
		s, err := r.c.Session(r.t.Context(), session)
		if err != nil {
			r.t.Fatal(err)
		}
		if len(s.Messages) < said {
			r.t.Errorf("%s has %d messages of %d", session, len(s.Messages), said)
		}
		for i, m := range s.Messages {
			if m.Content != fmt.Sprint(i) {
				r.t.Fatalf("message %d of %s is %q", i, session, m.Content)
			}
		}
	}
}

func (r *restoredServer) checkImages(floor operationsDone, removed map[string]bool) {
	r.t.Helper()
	checked := 0
	for path, hash := range floor.images {
		if removed[path] {
			continue
		}
		status, b := getBody(r.t.Context(), r.t, r.url+path)
		if status != http.StatusOK || hashOf(b) != hash {
			r.t.Errorf("%s: %d, %d bytes", path, status, len(b))
		}
		checked++
	}
	r.t.Logf("%d images are as they were, of %d", checked, len(floor.images))
}

// checkLog holds the copy's events against those of the server that it is a copy of,
// which has gone on: up to last they agree, and none after it is in both.
func (r *restoredServer) checkLog(original *client.Client, last loquat.EventID) {
	r.t.Helper()
	mine, theirs := r.events(r.c), r.events(original)
	var newestOfTheirs loquat.EventID
	for id, e := range theirs {
		newestOfTheirs = max(newestOfTheirs, id)
		if id <= last && mine[id] != e {
			r.t.Errorf("event %s is %s, was %s", id, mine[id], e)
		}
	}
	if newestOfTheirs <= last {
		r.t.Fatalf("the server has not gone on after %s", last)
	}
	for id := range mine {
		if id <= last && theirs[id] == "" {
			r.t.Errorf("event %s is new", id)
		}
		if id > last && id <= newestOfTheirs {
			r.t.Errorf("event %s is not beyond those of the server, %s", id, newestOfTheirs)
		}
	}
	// A client that saw an event which the copy lacks gets 410; other clients continue.
	if _, err := r.c.Events(r.t.Context(), client.Query{Since: &newestOfTheirs}); loquat.CodeOf(err) != loquat.CodeGone {
		r.t.Errorf("after an event of the server alone: %v", err)
	}
	if _, err := r.c.Events(r.t.Context(), client.Query{Since: &last}); err != nil {
		r.t.Errorf("after the last event of both: %v", err)
	}
	if a, b := r.serverID(r.c), r.serverID(original); a != b {
		r.t.Errorf("apps know the server as %s, the copy is %s", b, a)
	}
}

func (r *restoredServer) serverID(c *client.Client) string {
	r.t.Helper()
	p, err := c.Pair(r.t.Context(), loquat.NewPairing{})
	if err != nil {
		r.t.Fatal(err)
	}
	return p.ServerID
}

// events are all events that are never superseded.
func (r *restoredServer) events(c *client.Client) map[loquat.EventID]string {
	r.t.Helper()
	newest, err := c.Events(r.t.Context(), client.Query{})
	if err != nil {
		r.t.Fatal(err)
	}
	all := map[loquat.EventID]string{}
	for since := loquat.EventID(0); since < newest.LatestEventID; {
		w, err := c.Events(r.t.Context(), client.Query{Since: &since, OmitSession: true})
		if err != nil {
			r.t.Fatal(err)
		}
		if len(w.Events) == 0 {
			return all // nothing has happened since it became a log of its own
		}
		for i, e := range w.Events {
			if since = e.EventID; e.Type != loquat.Partial {
				all[e.EventID] = string(w.JSON[i])
			}
		}
	}
	return all
}

// A backup works without a running server. It refuses a directory without data and an
// existing target.
func TestBackupOfAStoppedServer(t *testing.T) {
	data, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	backup := func(args ...string) (string, error) {
		var out bytes.Buffer
		err := binary.Run(t.Context(), append([]string{"backup"}, args...), strings.NewReader(""), &out, io.Discard)
		return out.String(), err
	}
	if _, err := backup(to, "--data", data); err == nil || !strings.Contains(err.Error(), "there is no data in "+data) {
		t.Errorf("of nothing: %v", err)
	}
	first := restored(t, data)
	s, err := first.c.CreateSession(t.Context(), loquat.NewSession{})
	if err != nil {
		t.Fatal(err)
	}
	lost := binary.Photo(1, 1<<10)
	a, _, err := upload(t.Context(), first.url, s.SessionID, bytes.NewReader(lost))
	if err != nil {
		t.Fatal(err)
	}
	if out, err := backup(to, "--data", data); err != nil || !strings.Contains(out, "1 image\n") {
		t.Fatalf("%s %v", out, err)
	}
	if _, err := backup(to, "--data", data); err == nil || !strings.Contains(err.Error(), "exists; name a directory") {
		t.Errorf("over another: %v", err)
	}
	second := restored(t, to)
	if status, b := getBody(t.Context(), t, second.url+"/sessions/"+s.SessionID+"/assets/"+a.AssetID); status != http.StatusOK || hashOf(b) != hashOf(lost) {
		t.Errorf("%d", status)
	}
	var version struct{ API int }
	if _, b := getBody(t.Context(), t, second.url+"/version"); json.Unmarshal(b, &version) != nil || version.API != 1 {
		t.Errorf("%s", b)
	}
}

// The next backup removes what one that was killed has left.
func TestBackupThatIsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, parent := filepath.Join(dir, "data"), filepath.Join(dir, "backups")
	if err := os.Mkdir(parent, 0o700); err != nil {
		t.Fatal(err)
	}
	p := binary.Start(t, nil, "serve", "--demo", "--data", data, "--listen", "127.0.0.1:0")
	if status, body := postOnce(t, p.URL+"/sessions", `{"session_id": "notes"}`); status != http.StatusCreated {
		t.Fatalf("%d %s", status, body)
	}
	for range 20 {
		if status, body := appendOnce(t, p.URL, "notes", strings.Repeat("marrow ", 150_000)); status != http.StatusCreated {
			t.Fatalf("%d %.300s", status, body)
		}
	}
	left := func() []string {
		found, err := filepath.Glob(filepath.Join(parent, ".loquat-backup-*", "loquat.db"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	path, err := binary.Path()
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; len(left()) == 0; i++ {
		if i == 20 {
			t.Fatal("every backup was complete before it was killed")
		}
		cmd := exec.Command(path, "backup", filepath.Join(parent, fmt.Sprint("killed-", i)), "--data", data)
		cmd.Env = binary.CleanEnv()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		running := true
		for running && len(left()) == 0 {
			select {
			case <-ended:
				running = false
			case <-time.After(time.Millisecond):
			}
		}
		if running {
			_ = cmd.Process.Kill()
			<-ended
		}
	}
	killed := filepath.Dir(left()[0])
	if code, said := binary.Exit(t, "backup", filepath.Join(parent, "whole"), "--data", data); code != binary.ExitOK || !strings.Contains(said, "removed "+killed) {
		t.Errorf("exit code %d, said %s", code, said)
	}
	if found := left(); len(found) > 0 {
		t.Errorf("there is still %v", found)
	}
}
