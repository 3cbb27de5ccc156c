// Package upgrade_test opens data directories of older versions with the current program.
package upgrade_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"loquat"
	"loquat/internal/backend"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

// configure returns the configuration of both versions.
func configure(backendURL string, retention int, plugins ...string) string {
	list := []string{"loquat.providers.reference_generic_compatible", "loquat.features.request_options", "loquat.features.compact_range"}
	for _, dir := range plugins {
		list = append(list, "path:"+dir)
	}
	text, err := json.Marshal(map[string]any{
		"plugins": list,
		"events":  map[string]any{"retention_seconds": retention},
		"providers": map[string]any{"main": map[string]any{
			"provider": "reference_generic_compatible", "model": "echo", "base_url": backendURL + "/v1",
			"retry_on_status": map[string]any{"503": []float64{0.05}},
			"stream_recovery": map[string]any{"mode": "aggressive", "max_retries": 2},
		}},
		"agents": map[string]any{
			"default":   map[string]any{"provider": "main"},
			"brief":     map[string]any{"provider": "main", "request_options": map[string]any{"max_tokens": 200}},
			"reasoning": map[string]any{"provider": "main", "model": "demo-reasoning"},
			"tools":     map[string]any{"provider": "main"},
		},
	})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// TestOlderVersions opens data directories that older versions made and whose servers were
// killed. The current program serves what the older version served, followers continue
// where they were, and the log goes on.
func TestOlderVersions(t *testing.T) {
	if *record != "" {
		recordOlder(t)
	}
	eachVersion(t, servedBy, func(t *testing.T, r recording) {
		t.Parallel()
		o := openOlder(t, r)
		o.serve()
		o.checkServed()
		o.checkFollowers()
		o.stop()
		o.serve() // the second start migrates nothing
		o.checkServed()
		o.checkFollowers()
		o.checkPages()
		o.goOn()
		o.stop()
		if code, stderr := binary.Exit(t, "check", "--data", o.data); code != binary.ExitOK {
			t.Errorf("check: exit code %d: %s", code, stderr)
		}
	})
}

// eachVersion runs a test for each version of which testdata has a recording.
func eachVersion[R any](t *testing.T, fileOf func(version string) string, test func(t *testing.T, recorded R)) {
	t.Helper()
	paths, err := filepath.Glob(fileOf("*"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("testdata holds no %s: %v", fileOf("*"), err)
	}
	before, after, _ := strings.Cut(fileOf("*"), "*")
	for _, path := range paths {
		var recorded R
		if err := readJSON(path, &recorded); err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(strings.TrimPrefix(path, before), after), func(t *testing.T) { test(t, recorded) })
	}
}

// older is a data directory of an older version, opened by the current program.
type older struct {
	t       *testing.T
	ctx     context.Context
	data    string
	config  string
	r       recording
	process *binary.Process
	c       *client.Client
}

// dataOf returns the file that holds the data directory of a version, compressed.
func dataOf(version string) string {
	return filepath.Join("testdata", "data-of-"+version+".tar.gz")
}

// servedBy returns the file that holds the recording of a version, compressed.
func servedBy(version string) string {
	return filepath.Join("testdata", "served-by-"+version+".json.gz")
}

func openOlder(t *testing.T, r recording) *older {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	o := &older{t: t, ctx: ctx, data: filepath.Join(t.TempDir(), "data"), config: filepath.Join(t.TempDir(), "loquat.json"), r: r}
	if err := unpack(dataOf(r.Version), o.data); err != nil {
		t.Fatal(err)
	}
	config := configure(binary.ScriptedBackend(t, backend.Options{}), 0)
	if err := os.WriteFile(o.config, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return o
}

// serve starts the current program and waits until every request has ended.
func (o *older) serve() {
	o.t.Helper()
	o.process = binary.Start(o.t, nil, "serve", "--config", o.config, "--listen", "127.0.0.1:0", "--data", o.data)
	c, err := client.New(o.process.URL, client.Options{Token: o.r.Tokens["owner"]})
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(c.CloseIdleConnections)
	o.c = c
	awaitEnds(o.ctx, o.t, c, o.r.Requests)
}

func (o *older) stop() {
	o.t.Helper()
	o.process.End(o.t)
	if log := o.process.Log.String(); strings.Contains(log, "level=ERROR") {
		o.t.Errorf("the server logs an error:\n%s", log)
	}
}

// awaitEnds waits until requests have ended, those of deleted sessions excepted.
func awaitEnds(ctx context.Context, t *testing.T, c *client.Client, requests []string) {
	t.Helper()
	for _, id := range requests {
		binary.Eventually(t, "the end of request "+id, func() bool {
			r, err := c.Request(ctx, id)
			if loquat.CodeOf(err) == loquat.CodeNotFound {
				return true
			}
			if err != nil {
				t.Fatal(err)
			}
			return r.Status.Ended()
		})
	}
}

// checkServed compares every answer with that of the older version.
func (o *older) checkServed() {
	o.t.Helper()
	for _, want := range o.r.Served {
		got, err := load(o.ctx, o.process.URL, o.r.Tokens[want.Token], want.Path)
		if err != nil {
			o.t.Fatal(err)
		}
		if a, b := o.r.comparable(o.t, got), o.r.comparable(o.t, want); a != b {
			o.t.Errorf("%s by %s:\n%s", want.Path, want.Token, firstDifference(a, b))
		}
	}
}

// firstDifference returns the first lines in which two texts differ.
func firstDifference(got, want string) string {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			return fmt.Sprintf("line %d: got\n%s\nwant\n%s", i+1, strings.Join(a[min(i, len(a)):min(i+8, len(a))], "\n"), strings.Join(b[min(i, len(b)):min(i+8, len(b))], "\n"))
		}
	}
	return ""
}

// checkFollowers resumes each follower of the killed server after every event that it had
// received. What it had and what it gets now fold to the stored session.
func (o *older) checkFollowers() {
	o.t.Helper()
	for _, f := range o.r.Followers {
		id := f.Snapshot.SessionID
		stored, err := o.c.Session(o.ctx, id)
		if err != nil {
			o.t.Fatal(err)
		}
		for received := 0; received <= len(f.Events); received += 1 + len(f.Events)/6 {
			if err := o.resume(f, received, stored); err != nil {
				o.t.Errorf("session %s, after %d events: %v", id, received, err)
			}
		}
		if err := o.resume(f, len(f.Events), stored); err != nil {
			o.t.Errorf("session %s, after all events: %v", id, err)
		}
	}
}

// resume continues a follower that had received some events, over Server-Sent Events.
func (o *older) resume(f followerRecord, received int, stored loquat.Snapshot) error {
	fold, cursor := loquat.NewFold(f.Snapshot), f.Snapshot.CursorEventID
	seen := ""
	for _, text := range f.Events[:received] {
		var e loquat.Event
		if err := json.Unmarshal(text, &e); err != nil {
			return err
		}
		fold.Apply(e)
		cursor = e.EventID
		if e.Type == loquat.Partial {
			seen += e.Message.Content
		}
	}
	for e, err := range o.c.Follow(o.ctx, client.Query{SessionID: f.Snapshot.SessionID, Since: &cursor, OmitSession: true}) {
		if err != nil {
			return err
		}
		if e.EventID <= cursor {
			return fmt.Errorf("event %s follows event %s", e.EventID, cursor)
		}
		fold.Apply(e)
		if cursor = e.EventID; cursor >= stored.CursorEventID && e.Type == loquat.RequestCompleted {
			break
		}
	}
	got := binary.MustJSON(o.t, fold.Messages())
	if want := binary.MustJSON(o.t, stored.Messages); !binary.SameJSON(got, want) || fold.Draft() != nil {
		return fmt.Errorf("the follower has\n%s\nand the draft %+v, the server has\n%s", got, fold.Draft(), want)
	}
	for _, m := range stored.Messages {
		if m.Role == loquat.RoleAssistant && strings.HasPrefix(m.Content, seen) {
			return nil
		}
	}
	return fmt.Errorf("no message begins with the text that the follower had seen: %q", seen)
}

// checkPages reads the log in small windows and compares it with one window.
func (o *older) checkPages() {
	o.t.Helper()
	whole := o.settled(0)
	for _, limit := range []int{1, 7, 100} {
		if paged := o.settled(limit); !reflect.DeepEqual(paged, whole) {
			o.t.Errorf("windows of %d events hold %d settled events, one window %d", limit, len(paged), len(whole))
		}
	}
}

// settled returns the log without increments, read in windows.
func (o *older) settled(limit int) (events []string) {
	o.t.Helper()
	since, _ := o.oldest()
	for {
		w, err := o.c.Events(o.ctx, client.Query{Since: &since, Limit: limit, OmitSession: true})
		if err != nil {
			o.t.Fatal(err)
		}
		for i, e := range w.Events {
			if e.Type != loquat.Partial && e.Type != loquat.ToolPartial {
				events = append(events, string(w.JSON[i]))
			}
			if e.EventID <= since {
				o.t.Fatalf("event %s follows event %s", e.EventID, since)
			}
			since = e.EventID
		}
		if len(w.Events) == 0 {
			return events
		}
	}
}

// oldest returns the smallest cursor that is not gone, of all events.
func (o *older) oldest() (id loquat.EventID, gone int) {
	o.t.Helper()
	for ; ; id, gone = id+1, gone+1 {
		_, err := o.c.Events(o.ctx, client.Query{Since: &id, Limit: 1, OmitSession: true})
		if err == nil {
			return id, gone
		}
		if loquat.CodeOf(err) != loquat.CodeGone {
			o.t.Fatal(err)
		}
	}
}

// goOn changes old sessions and checks that the log continues.
func (o *older) goOn() {
	o.t.Helper()
	if _, gone := o.oldest(); gone == 0 {
		o.t.Error("no cursor is gone")
	}
	repeat := o.r.Repeat
	again, err := o.c.Send(o.ctx, repeat.SessionID, repeat.Send)
	if err != nil || again.RequestID != repeat.Answer.RequestID {
		o.t.Errorf("repeated send: %+v, %v, want %+v", again, err, repeat.Answer)
	}
	newest := o.r.Newest
	for _, id := range []string{"early", "talk", "cut-tool", "images"} {
		before, err := o.c.Session(o.ctx, id)
		if err != nil {
			o.t.Fatal(err)
		}
		sent, err := o.c.Send(o.ctx, id, loquat.Send{Content: new("after the upgrade")})
		if err != nil {
			o.t.Fatal(err)
		}
		for _, e := range binary.FollowRequest(o.ctx, o.t, o.c, sent.RequestID) {
			if e.EventID <= newest {
				o.t.Fatalf("session %s: event %s follows event %s", id, e.EventID, newest)
			}
			newest = e.EventID
		}
		after, err := o.c.Session(o.ctx, id)
		if err != nil {
			o.t.Fatal(err)
		}
		if n := len(before.Messages); len(after.Messages) <= n+1 || !reflect.DeepEqual(after.Messages[:n], before.Messages) {
			o.t.Errorf("session %s had %d messages and has %d after a request", id, n, len(after.Messages))
		}
	}
	if status := binary.Readiness(o.t, o.process.URL); status != http.StatusOK {
		o.t.Errorf("/readyz: %d", status)
	}
}
