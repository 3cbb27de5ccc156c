package backups_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/e2e/audit"
	"loquat/internal/e2e/binary"
)

// ledger keeps what clients have seen of a server, and when.
type ledger struct {
	mu     sync.Mutex
	events map[loquat.EventID]sighting
	acks   []ack
	images map[string]*image // by path
}

// sighting is an event as a client received it.
type sighting struct {
	at   time.Time
	json string
}

// ack is an acknowledged change: the log had the event at this time.
type ack struct {
	at   time.Time
	last loquat.EventID
}

// image is an upload that was acknowledged.
type image struct {
	at, removed time.Time // when it was acknowledged, and when its removal was asked for
	hash        string
}

func newLedger() *ledger {
	return &ledger{events: map[loquat.EventID]sighting{}, images: map[string]*image{}}
}

// superseded reports whether events of a type may be merged, or be removed after the reply.
func superseded(t loquat.EventType) bool { return t == loquat.Partial || t == loquat.ToolPartial }

// crowd is the clients that write and read while a server dies and comes back.
type crowd struct {
	*ledger
	t    testing.TB
	url  string
	n    atomic.Int64
	end  context.CancelFunc
	busy sync.WaitGroup
}

// patience is how long a call of a client may take, with a server that is dead for a while.
const patience = 20 * time.Second

// startCrowd starts clients of the server at url, which the end of the test stops.
func startCrowd(t testing.TB, url string) *crowd {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	c := &crowd{ledger: newLedger(), t: t, url: url, end: end}
	cl, err := client.New(url, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		c.run(ctx, func(ctx context.Context) error { return c.write(ctx, cl, fmt.Sprint("writer-", i)) })
	}
	c.run(ctx, func(ctx context.Context) error { return c.send(ctx, cl) })
	c.run(ctx, c.upload)
	since := loquat.EventID(0)
	c.run(ctx, func(ctx context.Context) error { return c.read(ctx, cl, &since) })
	t.Cleanup(func() {
		c.stop()
		cl.CloseIdleConnections()
	})
	return c
}

func (c *crowd) stop() {
	c.end()
	c.busy.Wait()
}

// run does something again and again. It may fail because the server is dead.
func (c *crowd) run(ctx context.Context, do func(context.Context) error) {
	c.busy.Go(func() {
		for ctx.Err() == nil {
			call, cancel := context.WithTimeout(ctx, patience)
			err := do(call)
			cancel()
			switch loquat.CodeOf(err) { // others have the dead server as their cause
			case loquat.CodeInvalid, loquat.CodeGone, loquat.CodeNotFound:
				c.t.Errorf("a client: %v", err)
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}

func (c *crowd) acknowledge(id loquat.EventID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acks = append(c.acks, ack{time.Now(), id})
}

func (c *crowd) write(ctx context.Context, cl *client.Client, session string) error {
	if _, err := cl.Session(ctx, session); loquat.CodeOf(err) == loquat.CodeNotFound {
		if _, err := cl.CreateSession(ctx, loquat.NewSession{SessionID: session}); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	for range 20 {
		done, err := cl.AppendMessage(ctx, session, loquat.NewMessage{Role: loquat.RoleUser, Content: fmt.Sprintf("%s says %d", session, c.n.Add(1))})
		if err != nil {
			return err
		}
		c.acknowledge(done.CursorEventID)
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

func (c *crowd) send(ctx context.Context, cl *client.Client) error {
	s, err := cl.CreateSession(ctx, loquat.NewSession{})
	if err != nil {
		return err
	}
	c.acknowledge(s.CursorEventID)
	content := fmt.Sprint("question ", c.n.Add(1))
	sent, err := cl.Send(ctx, s.SessionID, loquat.Send{Content: &content, Stream: new(true)})
	if err != nil {
		return err
	}
	for _, err := range cl.Follow(ctx, client.Query{RequestID: sent.RequestID, OmitSession: true}) {
		if err != nil {
			return err
		}
	}
	return nil
}

// upload uploads an image and removes an older one.
func (c *crowd) upload(ctx context.Context) error {
	b := binary.Photo(uint64(c.n.Add(1)), 4<<10)
	resp, err := post(ctx, c.url+"/sessions/writer-0/assets", "image/png", b)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var a loquat.Asset
	if resp.StatusCode != http.StatusCreated {
		time.Sleep(20 * time.Millisecond) // the session is not there yet
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		return err
	}
	c.mu.Lock()
	c.images["/sessions/writer-0/assets/"+a.AssetID] = &image{at: time.Now(), hash: a.SHA256}
	kept, old := 0, ""
	for path, i := range c.images {
		if i.removed.IsZero() {
			kept, old = kept+1, path
		}
	}
	if kept > 20 {
		c.images[old].removed = time.Now()
	} else {
		old = ""
	}
	c.mu.Unlock()
	time.Sleep(20 * time.Millisecond)
	if old == "" {
		return nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, c.url+old, nil)
	if err != nil {
		return err
	}
	gone, err := http.DefaultClient.Do(req)
	if err == nil {
		gone.Body.Close()
	}
	return err
}

func hashOf(b string) string {
	sum := sha256.Sum256([]byte(b))
	return hex.EncodeToString(sum[:])
}

func post(ctx context.Context, url, kind string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", kind)
	return http.DefaultClient.Do(req)
}

// read notes new events.
func (c *crowd) read(ctx context.Context, cl *client.Client, since *loquat.EventID) error {
	w, err := cl.Events(ctx, client.Query{Since: since, OmitSession: true, Wait: 100 * time.Millisecond})
	if err != nil {
		return err
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, e := range w.Events {
		*since = e.EventID
		if !superseded(e.Type) {
			c.events[e.EventID] = sighting{now, string(w.JSON[i])}
		}
	}
	return nil
}

// lastBefore returns the newest event that a client knew before a time.
func (l *ledger) lastBefore(at time.Time) (last loquat.EventID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.acks {
		if a.at.Before(at) {
			last = max(last, a.last)
		}
	}
	for id, s := range l.events {
		if s.at.Before(at) {
			last = max(last, id)
		}
	}
	return last
}

// removalWait is how much later than its time a state may have begun.
const removalWait = 5 * time.Second

// compare compares a server on a restored directory with what was seen. The directory has the state
// of a time, up to an event.
func (l *ledger) compare(t *testing.T, url string, at time.Time, last loquat.EventID) {
	t.Helper()
	if seen := l.lastBefore(at); seen > last {
		t.Errorf("the state of %s ends at event %s, and a client knew %s before", at.Format(time.RFC3339Nano), last, seen)
	}
	cl, err := client.New(url, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer cl.CloseIdleConnections()
	found, folds := readLog(t, cl)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(l.events)) {
		if id <= last && found[id] != l.events[id].json {
			t.Fatalf("event %s was\n  %s\nand is now\n  %s", id, l.events[id].json, found[id])
		}
	}
	for id, fold := range folds {
		s, err := cl.Session(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := audit.AsText(fold.Messages()), audit.AsText(s.Messages); a != b {
			t.Errorf("the events of session %s fold to\n  %s\nand it is\n  %s", id, a, b)
		}
	}
	for path, i := range l.images {
		if i.at.After(at) || !i.removed.IsZero() && i.removed.Before(at.Add(removalWait)) {
			continue
		}
		if status, b := binary.GetOnce(t, url+path); status != http.StatusOK || hashOf(b) != i.hash {
			t.Errorf("an image of the state of %s: %d, %d bytes", at.Format(time.RFC3339Nano), status, len(b))
		}
	}
}

// readLog returns the events of a server that last, and the fold of each session.
func readLog(t testing.TB, cl *client.Client) (events map[loquat.EventID]string, folds map[string]*loquat.Fold) {
	t.Helper()
	events, folds = map[loquat.EventID]string{}, map[string]*loquat.Fold{}
	for since := loquat.EventID(0); ; {
		w, err := cl.Events(t.Context(), client.Query{Since: &since, OmitSession: true, Limit: 5000})
		if err != nil {
			t.Fatal(err)
		}
		if len(w.Events) == 0 {
			return events, folds
		}
		for i, e := range w.Events {
			since = e.EventID
			if !superseded(e.Type) {
				events[e.EventID] = string(w.JSON[i])
			}
			if folds[e.SessionID] == nil {
				folds[e.SessionID] = binary.EmptyFold(e.SessionID)
			}
			folds[e.SessionID].Apply(e)
		}
	}
}
