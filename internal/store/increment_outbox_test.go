package store_test

import (
	"bytes"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"loquat"
	"loquat/internal/store"
)

// Every function that changes who runs a request, or whether it runs or is cancelled, notes it
// for the fence that the committer keeps in memory.
func TestFencesFollowStatements(t *testing.T) {
	whole := regexp.MustCompile(`(?s)(DELETE FROM requests|REPLACE INTO requests|INSERT INTO requests[^\x60]*'running')`)
	set := regexp.MustCompile(`(?s)UPDATE requests SET([^\x60]*?)(WHERE|\x60)`)
	column := regexp.MustCompile(`\b(status|owner|cancelled) = `)
	changes := func(text []byte) bool {
		return whole.Match(text) || slices.ContainsFunc(set.FindAllSubmatch(text, -1), func(m [][]byte) bool { return column.Match(m[1]) })
	}
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".go") || strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		source, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file.Name(), source, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				if text := source[d.Pos()-1 : d.End()-1]; changes(text) {
					t.Errorf("%s: a statement outside of a function changes requests", file.Name())
				}
				continue
			}
			text := source[f.Pos()-1 : f.End()-1]
			if !changes(text) {
				continue
			}
			found++
			if !bytes.Contains(text, []byte("tx.noteFence(")) {
				t.Errorf("%s does not call noteFence", f.Name.Name)
			}
		}
	}
	if found < 4 {
		t.Errorf("only %d functions change requests: the test misses some", found)
	}
}

// source is a Streamer whose increments are texts.
type source struct {
	q      store.Request
	outbox *store.Outbox

	mu      sync.Mutex
	waiting []string
	err     error // returned by PublishIncrements
	failed  chan error
	written chan []string
}

func newSource(s *store.Store, q store.Request) *source {
	o := &source{q: q, failed: make(chan error, 100), written: make(chan []string, 100)}
	o.outbox = s.NewOutbox(q, o)
	return o
}

func (o *source) put(text string) {
	o.mu.Lock()
	o.waiting = append(o.waiting, text)
	o.mu.Unlock()
	o.outbox.Ready()
}

func (o *source) PublishIncrements(tx *store.Tx) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	texts := o.waiting
	for _, text := range texts {
		e := loquat.Event{Type: loquat.Partial, Message: &loquat.Delta{Role: "assistant", Content: text}}
		if _, err := tx.Publish(e, &store.Head{SID: o.q.SID, SessionID: o.q.SessionID}, &o.q); err != nil {
			return err
		}
	}
	tx.AfterCommit(func() {
		o.mu.Lock()
		o.waiting = o.waiting[len(texts):]
		o.mu.Unlock()
		o.written <- texts
	})
	return o.err
}

func (o *source) IncrementsFailed(err error) { o.failed <- err }

func await[T any](t *testing.T, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(20 * time.Second):
		t.Fatalf("waited too long for %s", what)
	}
	return v
}

// runIn starts a request on a new session.
func runIn(t testing.TB, s *store.Store, session string) store.Request {
	t.Helper()
	createIn(t, s, session)
	q := store.Request{Request: loquat.Request{RequestID: "r-" + session}}
	err := s.Update(t.Context(), func(tx *store.Tx) error {
		h, err := tx.Head(session)
		if err != nil {
			return err
		}
		return errors.Join(tx.EnqueueRequest(&h, &q, store.AtTheEnd), tx.StartRequest(&q, "me"))
	})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// The committer writes what an outbox announces, until the request ends, is cancelled or
// changes its owner.
func TestOutboxFence(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*store.Tx, *store.Request) error
		want   error
	}{
		"ended":         {func(tx *store.Tx, q *store.Request) error { return tx.EndRequest(q, loquat.StatusFailed, "x") }, store.ErrFenced},
		"cancelled":     {func(tx *store.Tx, q *store.Request) error { return tx.FlagCancelled(q) }, store.ErrCancelled},
		"another owner": {func(tx *store.Tx, q *store.Request) error { return tx.SetOwner(q, "you") }, store.ErrFenced},
	} {
		t.Run(name, func(t *testing.T) {
			var logged bytes.Buffer
			s := openIn(t, t.TempDir(), &logged)
			defer s.Close()
			q := runIn(t, s, "s")
			o := newSource(s, q)
			o.put("one")
			if got := await(t, o.written, "the first increment"); len(got) != 1 {
				t.Errorf("wrote %q", got)
			}
			row := q
			errRolledBack := errors.New("rolled back")
			err := s.Update(t.Context(), func(tx *store.Tx) error { return errors.Join(c.change(tx, &row), errRolledBack) })
			if !errors.Is(err, errRolledBack) {
				t.Fatal(err)
			}
			o.put("two")
			await(t, o.written, "an increment after a change that was rolled back")
			row = q
			if err := s.Update(t.Context(), func(tx *store.Tx) error { return c.change(tx, &row) }); err != nil {
				t.Fatal(err)
			}
			before := s.Last()
			o.put("three")
			if err := await(t, o.failed, "the fence"); !errors.Is(err, c.want) {
				t.Errorf("failed with %v", err)
			}
			if s.Last() != before || len(o.written) > 0 {
				t.Error("an increment was written past the fence")
			}
		})
	}
}

// An outbox that fails does not affect the others of its batch, nor the updates.
func TestOutboxFailsAlone(t *testing.T) {
	var logged bytes.Buffer
	s := openIn(t, t.TempDir(), &logged)
	defer s.Close()
	good, bad := newSource(s, runIn(t, s, "good")), newSource(s, runIn(t, s, "bad"))
	bad.err = errors.New("cannot be written")
	for range 20 {
		bad.put("x")
		good.put("y")
		if err := s.Update(t.Context(), func(tx *store.Tx) error { _, err := tx.Head("good"); return err }); err != nil {
			t.Fatal(err)
		}
		if err := await(t, bad.failed, "the failure"); !errors.Is(err, bad.err) {
			t.Errorf("failed with %v", err)
		}
		for len(await(t, good.written, "the other request")) == 0 {
		}
	}
	records, err := s.Events(t.Context(), 0, store.Filter{SessionID: "bad"}, store.Bounds{Events: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if r.Type == loquat.Partial {
			t.Errorf("event %s of a failed batch is in the log", r.ID)
		}
	}
	bad.outbox.Close()
	bad.put("after the end")
	good.put("y")
	await(t, good.written, "the other request")
	if len(bad.failed) > 0 {
		t.Error("a closed outbox was collected")
	}
}

// Many requests that stream at the same time lose no increment and keep their order.
func TestOutboxesUnderLoad(t *testing.T) {
	var logged bytes.Buffer
	s := openIn(t, t.TempDir(), &logged)
	defer s.Close()
	const requests, each = 20, 200
	var wait sync.WaitGroup
	for i := range requests {
		o := newSource(s, runIn(t, s, string(rune('a'+i))))
		wait.Go(func() {
			for n := range each {
				o.put(string(rune('0' + n%10)))
				if n%7 == 0 {
					time.Sleep(time.Millisecond)
				}
			}
			for n := 0; n < each; {
				n += len(await(t, o.written, "the increments"))
			}
		})
	}
	wait.Wait()
	for i := range requests {
		records, err := s.Events(t.Context(), 0, store.Filter{SessionID: string(rune('a' + i))}, store.Bounds{Events: 10000})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, r := range records {
			if r.Type != loquat.Partial {
				continue
			}
			e, err := r.Decode()
			if err != nil || e.Message.Content != string(rune('0'+n%10)) {
				t.Fatalf("increment %d is %q, %v", n, r.Body, err)
			}
			n++
		}
		if n != each {
			t.Errorf("%d of %d increments are in the log", n, each)
		}
	}
}
