package audit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"loquat"
	"loquat/internal/client"
)

// promise is a fact that an acknowledged change makes permanent.
type promise struct {
	what, sessionID string
	kept            func(*Truth) error
}

// promises collects the promises of all acknowledged changes.
type promises struct {
	mu    sync.Mutex
	given []promise
	kinds map[string]int
}

func (p *promises) add(what, sessionID string, kept func(*Truth) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.given = append(p.given, promise{what, sessionID, kept})
	p.kinds[what]++
}

// check returns the broken promises. Promises about a deleted session no longer hold.
func (p *promises) check(t *Truth) (faults []error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.given {
		if t.deleted(one.sessionID) {
			continue
		}
		if err := one.kept(t); err != nil {
			faults = append(faults, fmt.Errorf("an acknowledged %s on session %s is lost: %w", one.what, one.sessionID, err))
		}
	}
	return faults
}

func (p *promises) counts() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.kinds)
}

// crowd is the set of clients that change sessions. Every client may change any session.
type crowd struct {
	c        *client.Client
	promises *promises
	states   *stateLedger
	opened   func(loquat.Snapshot) // a session was made
	fault    func(error)
	few      int // sessions below which users make another
	name     string
	agents   []string
	tools    []map[string]any
	keeps    bool // no session is deleted

	gate sync.RWMutex // changes hold the read lock; the write lock pauses all changes

	from loquat.EventID // the log's newest event before the load

	mu       sync.Mutex
	serial   int
	sessions []*target
	deleting map[string]bool // sessions whose deletion was asked for
	again    []repeat
}

// target is a session that is changed, with its last known state.
type target struct {
	id         string
	count      int // messages
	checkpoint loquat.EventID
	requests   []string // the newest
}

// repeat is an acknowledged POST that is made again.
type repeat struct {
	sessionID, what, first string
	call                   func(context.Context) (any, error)
}

// The bounds of what the crowd remembers and makes.
const (
	extraSessions = 4 // above few, from which users delete sessions
	maxRepeats    = 50
	maxRequests   = 6
	opPatience    = 20 * time.Second
)

// user is one client of the crowd. It makes one call at a time.
type user struct {
	*crowd
	random *rand.Rand
}

// run changes sessions until ctx ends.
func (u user) run(ctx context.Context) {
	for ctx.Err() == nil {
		u.gate.RLock()
		u.act(ctx)
		u.gate.RUnlock()
		time.Sleep(time.Duration(u.random.IntN(25)) * time.Millisecond)
	}
}

// act makes one call. A refusal that the session's state explains is expected. A call
// without an acknowledgement may or may not have taken effect.
func (u user) act(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, opPatience)
	defer cancel()
	t := u.pick()
	if t == nil {
		u.judge("create", "", u.create(ctx))
		return
	}
	what, op, fine := u.choose()
	u.judge(what, t.id, op(ctx, t), fine...)
}

// choose picks a random operation and returns the refusals that it may meet.
func (u user) choose() (string, func(context.Context, *target) error, []loquat.Code) {
	const invalid, busy, overtaken = loquat.CodeInvalid, loquat.CodeBusy, loquat.CodePreconditionFailed
	switch n := u.random.IntN(100); {
	case n < 38:
		return "send", u.send, []loquat.Code{busy, invalid, loquat.CodeRateLimited}
	case n < 50:
		return "cancel", u.cancel, nil
	case n < 62:
		return "append", u.append, []loquat.Code{busy, overtaken}
	case n < 68:
		return "modify", u.modify, []loquat.Code{busy, invalid, loquat.CodeNotFound}
	case n < 73:
		return "delete", u.delete, []loquat.Code{busy, invalid, loquat.CodeNotFound}
	case n < 78:
		return "describe", u.describe, nil
	case n < 88:
		return "snapshot", u.snapshot, []loquat.Code{loquat.CodeRateLimited} // on a slow network the clients together read too slowly
	case n < 92:
		return "switch", u.switchOver, []loquat.Code{busy, loquat.CodeNotFound}
	case n < 96:
		return "repeat", u.repeat, nil
	case n < 98:
		return "fork", u.fork, []loquat.Code{invalid}
	default:
		return "delete session", u.deleteSession, nil
	}
}

// judge records a refusal that nothing explains.
func (u user) judge(what, sessionID string, err error, fine ...loquat.Code) {
	code := loquat.CodeOf(err)
	gone := code == loquat.CodeNotFound && u.isDeleting(sessionID)
	away := code == loquat.CodeUnavailable || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	if err == nil || gone || away || slices.Contains(fine, code) {
		return
	}
	u.fault(fmt.Errorf("%s on session %s: %w", what, sessionID, err))
}

func (u user) isDeleting(sessionID string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.deleting[sessionID]
}

// pick chooses a session; nil says that there are too few.
func (u user) pick() *target {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.sessions) < u.few {
		return nil
	}
	return u.sessions[u.random.IntN(len(u.sessions))]
}

// mark makes a text that is unique, also among the loads of a log.
func (u user) mark(what string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.serial++
	if u.name != "" {
		what += " " + u.name
	}
	return fmt.Sprintf("%s %d.%d", what, u.from, u.serial)
}

// recordState stores the message count and the checkpoint from an answer.
func (u user) recordState(t *target, count int, checkpoint loquat.EventID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	t.count, t.checkpoint = count, checkpoint
}

func (u user) known(t *target) target {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := *t
	out.requests = slices.Clone(t.requests)
	return out
}

// remember keeps a POST for a repeat.
func (u user) remember(what, sessionID string, answer any, call func(context.Context) (any, error)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.again = append(u.again, repeat{sessionID, what, textOf(answer), call})
	if len(u.again) > maxRepeats {
		u.again = u.again[1:]
	}
}

// repeat makes an acknowledged POST again, which has to be answered as before.
func (u user) repeat(ctx context.Context, _ *target) error {
	u.mu.Lock()
	if len(u.again) == 0 {
		u.mu.Unlock()
		return nil
	}
	r := u.again[u.random.IntN(len(u.again))]
	u.mu.Unlock()
	answer, err := r.call(ctx)
	if u.isDeleting(r.sessionID) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("repeat of a %s: %w", r.what, err)
	}
	if got := textOf(answer); got != r.first {
		return fmt.Errorf("a repeated %s on session %s is answered\n  %s\nand was\n  %s", r.what, r.sessionID, got, r.first)
	}
	u.promises.add("repeat", r.sessionID, func(*Truth) error { return nil })
	return nil
}

func (u user) key() client.Option { return client.IdempotencyKey(u.mark("key")) }

// talk sends to a session of its own again and again, and each time waits for the end of the
// reply, until ctx ends.
func (u user) talk(ctx context.Context) {
	var t *target
	for ctx.Err() == nil {
		u.gate.RLock()
		if t == nil {
			t = u.openTalk(ctx)
		} else {
			u.judge("send", t.id, u.say(ctx, t))
		}
		u.gate.RUnlock()
		if t != nil {
			u.awaitEnd(ctx, u.known(t).requests)
		}
		wait(ctx, time.Duration(u.random.IntN(200))*time.Millisecond)
	}
}

// talkScript is the reply of a stream: about 3 s long.
func talkScript(id string) map[string]any {
	return map[string]any{"id": id, "attempts": []any{map[string]any{"rate": 20, "chunks": 16}}, "text": strings.Repeat("One two three four five six seven. ", 8)}
}

// openTalk creates a session that nobody else changes. It returns nil if that failed.
func (u user) openTalk(ctx context.Context) *target {
	ctx, cancel := context.WithTimeout(ctx, opPatience)
	defer cancel()
	made, err := u.c.CreateSession(ctx, loquat.NewSession{Metadata: loquat.Object{}.Set(loquat.MetaOverrides, map[string]any{
		"request_options": map[string]any{"loquat_script": talkScript(u.mark("script"))},
	})}, u.key())
	if err != nil {
		u.judge("create", "", err)
		return nil
	}
	u.opened(made)
	return &target{id: made.SessionID, checkpoint: made.Checkpoint}
}

// say sends to a session behind what runs on it.
func (u user) say(ctx context.Context, t *target) error {
	ctx, cancel := context.WithTimeout(ctx, opPatience)
	defer cancel()
	content := u.mark("say")
	s := loquat.Send{Content: &content, Stream: new(true), OnBusy: loquat.BusyQueue}
	done, err := u.c.Send(ctx, t.id, s, u.key())
	if loquat.CodeOf(err) == loquat.CodeRateLimited { // sends without an answer have filled the queue
		return nil
	}
	if err != nil {
		return err
	}
	u.mu.Lock()
	t.requests = []string{done.RequestID}
	u.mu.Unlock()
	u.promises.add("send", t.id, func(tr *Truth) error { return sendKept(tr, s, done) })
	return nil
}

// awaitEnd waits until requests have ended, or as long as any may take.
func (u user) awaitEnd(ctx context.Context, requests []string) {
	ctx, cancel := context.WithTimeout(ctx, opPatience)
	defer cancel()
	for _, id := range requests {
		for ctx.Err() == nil {
			if q, err := u.c.Request(ctx, id); err == nil && q.Status.Ended() {
				break
			}
			wait(ctx, 300*time.Millisecond)
		}
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (u user) create(ctx context.Context) error {
	s := loquat.NewSession{Metadata: loquat.Object{}.Set(loquat.MetaOverrides, map[string]any{
		"request_options": map[string]any{"loquat_script": script(u.random, u.mark("script"), u.tools)},
	})}
	if len(u.agents) > 0 {
		s.AgentID = u.agents[u.random.IntN(len(u.agents))]
	}
	if u.random.IntN(2) == 0 {
		s.SessionID = fmt.Sprintf("s%d", u.random.Uint64())
	}
	for range u.random.IntN(3) {
		s.Messages = append(s.Messages, loquat.NewMessage{Role: loquat.RoleUser, Content: u.mark("given")})
	}
	key := u.key()
	made, err := u.c.CreateSession(ctx, s, key)
	if err != nil {
		return err
	}
	u.made("create", "", made, func(ctx context.Context) (any, error) { return u.c.CreateSession(ctx, s, key) })
	return nil
}

func (u user) fork(ctx context.Context, t *target) error {
	f := loquat.Fork{}
	if n := u.known(t).count; n > 0 && u.random.IntN(2) == 0 {
		i := u.random.IntN(n)
		f.UpToIndex = &i
	}
	key := u.key()
	made, err := u.c.Fork(ctx, t.id, f, key)
	if err != nil {
		return err
	}
	u.made("fork", t.id, made, func(ctx context.Context) (any, error) { return u.c.Fork(ctx, t.id, f, key) })
	return nil
}

// made records a new session, and what its answer promised.
func (u user) made(what, source string, s loquat.Snapshot, again func(context.Context) (any, error)) {
	u.promises.add(what, s.SessionID, func(t *Truth) error {
		events := t.bySession[s.SessionID]
		if len(events) < 2 || events[0].Type != loquat.SessionCreated || events[0].SourceSessionID != source || events[1].EventID != s.CursorEventID {
			return fmt.Errorf("its cursor is %s and its events begin with %s", s.CursorEventID, outline(events))
		}
		return nil
	})
	u.states.add(state{"the session that a " + what + " answered with", s.SessionID, s.CursorEventID, s.Messages})
	u.remember(what, s.SessionID, s, again)
	u.mu.Lock()
	u.sessions = append(u.sessions, &target{id: s.SessionID, count: len(s.Messages), checkpoint: s.Checkpoint})
	u.mu.Unlock()
	u.opened(s)
}

func (u user) deleteSession(ctx context.Context, t *target) error {
	u.mu.Lock()
	if u.keeps || len(u.sessions) < u.few+extraSessions {
		u.mu.Unlock()
		return nil
	}
	u.deleting[t.id] = true
	u.sessions = slices.DeleteFunc(u.sessions, func(other *target) bool { return other.id == t.id })
	u.mu.Unlock()
	if err := u.c.DeleteSession(ctx, t.id); err != nil {
		return err
	}
	u.promises.add("deletion of the session", t.id, func(t *Truth) error { return errors.New("it is still there") })
	return nil
}

func (u user) append(ctx context.Context, t *target) error {
	roles := []string{loquat.RoleUser, loquat.RoleUser, loquat.RoleAssistant, loquat.RoleSystem}
	m := loquat.NewMessage{Role: roles[u.random.IntN(len(roles))], Content: u.mark("append")}
	opts := []client.Option{u.key()}
	before := u.known(t).checkpoint
	conditional := before != 0 && u.random.IntN(4) == 0
	if conditional {
		opts = append(opts, client.IfMatch(before))
	}
	done, err := u.c.AppendMessage(ctx, t.id, m, opts...)
	if err != nil {
		return err
	}
	u.recordState(t, done.Index+1, done.CursorEventID)
	u.promises.add("append", t.id, func(tr *Truth) error {
		i, err := changeBefore(tr.bySession[t.id], done.CursorEventID, loquat.MessageAppended)
		if err != nil {
			return err
		}
		events := tr.bySession[t.id]
		if got := events[i].Message; got.ID != done.Message.ID || got.Content != m.Content {
			return fmt.Errorf("event %s appends %s", events[i].EventID, textOf(got))
		}
		if conditional && newestCheckpoint(events[:i]) != before {
			return fmt.Errorf("it was conditional on checkpoint %s and followed %s", before, newestCheckpoint(events[:i]))
		}
		return nil
	})
	u.remember("append", t.id, done, func(ctx context.Context) (any, error) { return u.c.AppendMessage(ctx, t.id, m, opts...) })
	return nil
}

func (u user) modify(ctx context.Context, t *target) error {
	index, content := u.random.IntN(u.known(t).count+1), u.mark("modify")
	done, err := u.c.ModifyMessage(ctx, t.id, index, content)
	if err != nil {
		return err
	}
	u.promises.add("modification", t.id, func(tr *Truth) error {
		events := tr.bySession[t.id]
		i, err := changeBefore(events, done.CursorEventID, loquat.MessageModified)
		if err == nil && (*events[i].Content != content || *events[i].Index != index) {
			err = fmt.Errorf("event %s sets message %d to %q", events[i].EventID, *events[i].Index, *events[i].Content)
		}
		return err
	})
	return nil
}

func (u user) delete(ctx context.Context, t *target) error {
	n := u.known(t).count
	indices := []int{u.random.IntN(n + 1)}
	if i := u.random.IntN(n + 1); i > indices[0] {
		indices = append(indices, i)
	}
	done, err := u.c.DeleteMessages(ctx, t.id, indices)
	if err != nil {
		return err
	}
	u.promises.add("deletion", t.id, func(tr *Truth) error {
		events := tr.bySession[t.id]
		i, err := changeBefore(events, done.CursorEventID, loquat.MessagesDeleted)
		if err == nil && !slices.Equal(events[i].Indices, indices) {
			err = fmt.Errorf("event %s deletes %v, not %v", events[i].EventID, events[i].Indices, indices)
		}
		return err
	})
	return nil
}

// switchOver puts an alternative of a regenerated or edited message in place.
func (u user) switchOver(ctx context.Context, t *target) error {
	list, err := u.c.Alternatives(ctx, t.id)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(a loquat.Alternative) bool { return a.InPlace })
	if len(list) == 0 {
		return nil
	}
	done, err := u.c.Switch(ctx, t.id, list[u.random.IntN(len(list))].AlternativeID)
	if err != nil {
		return err
	}
	u.recordState(t, done.Total, done.CursorEventID)
	u.promises.add("switch", t.id, func(tr *Truth) error {
		if n := len(replay(tr.bySession[t.id], done.CursorEventID).messages); n != done.Total || done.Index > n {
			return fmt.Errorf("at checkpoint %s there are %d messages, and the answer said %d", done.CursorEventID, n, done.Total)
		}
		return nil
	})
	return nil
}

// describe changes metadata, also while a request runs.
func (u user) describe(ctx context.Context, t *target) error {
	note := u.mark("note")
	s, err := u.c.UpdateSession(ctx, t.id, loquat.SessionPatch{Metadata: loquat.Object{}.Set("note", note)})
	if err != nil {
		return err
	}
	u.recordState(t, len(s.Messages), s.Checkpoint)
	u.states.add(state{"the session that a change of metadata answered with", t.id, s.CursorEventID, s.Messages})
	u.promises.add("change of metadata", t.id, func(tr *Truth) error {
		for _, e := range tr.bySession[t.id] {
			if e.EventID == s.Checkpoint && e.Type == loquat.Checkpoint && e.Metadata.String("note") == note {
				return nil
			}
		}
		return fmt.Errorf("no checkpoint %s with %q", s.Checkpoint, note)
	})
	return nil
}

// snapshot loads a session, whole or in pages.
func (u user) snapshot(ctx context.Context, t *target) error {
	if u.random.IntN(2) == 0 {
		s, err := u.c.Session(ctx, t.id)
		if err != nil {
			return err
		}
		u.recordState(t, len(s.Messages), s.Checkpoint)
		u.states.add(state{"a snapshot", t.id, s.CursorEventID, s.Messages})
		return nil
	}
	page, err := u.c.Messages(ctx, t.id, client.Page{Limit: 1 + u.random.IntN(5)})
	if err != nil {
		return err
	}
	messages := page.Messages
	if page.Total > len(messages) {
		rest, err := u.c.Messages(ctx, t.id, client.Page{From: len(messages), At: page.CursorEventID})
		if err != nil {
			return err
		}
		messages = append(messages, rest.Messages...)
	}
	u.states.add(state{"a snapshot in pages", t.id, page.CursorEventID, messages})
	return nil
}

func (u user) send(ctx context.Context, t *target) error {
	s := loquat.Send{Stream: new(u.random.IntN(4) > 0), StreamTools: u.random.IntN(2) == 0}
	s.OnBusy = []string{"", "queue", "queue", "interrupt", "steer", "rollback"}[u.random.IntN(6)]
	if s.OnBusy != "" || u.random.IntN(5) > 0 {
		content := u.mark("send")
		s.Content = &content
	}
	if n := u.known(t).count; s.OnBusy == "" && n > 0 && u.random.IntN(3) == 0 {
		from := u.random.IntN(n)
		s.DeleteFrom, s.Keep = &from, u.random.IntN(2) == 0
	}
	if u.random.IntN(2) == 0 {
		s.RequestID = fmt.Sprintf("r%d", u.random.Uint64())
	}
	key := u.key()
	done, err := u.c.Send(ctx, t.id, s, key)
	if err != nil {
		return err
	}
	u.mu.Lock()
	t.requests = append(t.requests, done.RequestID)
	t.requests = t.requests[max(0, len(t.requests)-maxRequests):]
	u.mu.Unlock()
	u.promises.add("send", t.id, func(tr *Truth) error { return sendKept(tr, s, done) })
	u.remember("send", t.id, done, func(ctx context.Context) (any, error) {
		if s.RequestID != "" {
			return u.c.Send(ctx, t.id, s) // with a new key: the request_id identifies the repeat
		}
		return u.c.Send(ctx, t.id, s, key)
	})
	return nil
}

// sendKept fails unless the log keeps what an acknowledged send promised.
func sendKept(t *Truth, s loquat.Send, done loquat.SendResult) error {
	q, own := t.Requests[done.RequestID], t.ByRequest[done.RequestID]
	if !q.Status.Ended() || len(own) == 0 {
		return fmt.Errorf("request %s is %q with %d events", done.RequestID, q.Status, len(own))
	}
	events := t.bySession[done.SessionID]
	started := slices.IndexFunc(events, func(e loquat.Event) bool { return e.EventID == own[0].EventID })
	if neverRan(own) && done.Status == loquat.StatusQueued {
		return nil
	}
	if s.Content != nil && (started < 2 || events[started-1].Type != loquat.Checkpoint ||
		events[started-2].Type != loquat.MessageAppended || events[started-2].Message.Content != *s.Content) {
		return fmt.Errorf("request %s started without its message %q: %s", done.RequestID, *s.Content, outline(events[max(0, started-3):started+1]))
	}
	if done.Status == loquat.StatusRunning && s.Content != nil && events[started-1].EventID != done.CursorEventID {
		return fmt.Errorf("request %s was answered with cursor %s and started at %s", done.RequestID, done.CursorEventID, events[started-1].EventID)
	}
	if own[0].SteeredInto != "" && s.OnBusy != loquat.BusySteer {
		return fmt.Errorf("request %s, sent with %q, was steered into %s", done.RequestID, s.OnBusy, own[0].SteeredInto)
	}
	if done.Status != loquat.StatusQueued || s.OnBusy != loquat.BusyInterrupt && s.OnBusy != loquat.BusyRollback {
		return nil
	}
	if !cancelledBetween(events, done.CursorEventID, own[0].EventID) {
		return fmt.Errorf("request %s was to %s, and no request that ended before it was cancelled", done.RequestID, s.OnBusy)
	}
	if s.OnBusy == loquat.BusyRollback {
		return rollbackKept(events, done, own[0].EventID)
	}
	return nil
}

// rollbackKept fails unless one of the requests that were cancelled between a rollback and its start
// has taken back its messages.
func rollbackKept(events []loquat.Event, done loquat.SendResult, started loquat.EventID) error {
	for i, e := range events {
		if e.Type != loquat.RequestCancelled || e.EventID < done.CursorEventID || e.EventID > started {
			continue
		}
		begin := slices.IndexFunc(events, func(b loquat.Event) bool { return b.Type == loquat.RequestStarted && b.RequestID == e.RequestID })
		left := AsText(replay(events, events[i].EventID).messages)
		if begin >= 2 && left == AsText(replay(events, events[begin-2].EventID-1).messages) || left == AsText(replay(events, events[begin].EventID).messages) {
			return nil
		}
	}
	return fmt.Errorf("request %s was to roll another back, and the messages of all those cancelled before it stayed", done.RequestID)
}

// cancelledBetween reports whether a request was cancelled between two events.
func cancelledBetween(events []loquat.Event, after, before loquat.EventID) bool {
	return slices.ContainsFunc(events, func(e loquat.Event) bool {
		return e.Type == loquat.RequestCancelled && e.EventID > after && e.EventID < before
	})
}

func (u user) cancel(ctx context.Context, t *target) error {
	requests := u.known(t).requests
	if len(requests) == 0 {
		return nil
	}
	id := requests[len(requests)-1-u.random.IntN(len(requests))]
	done, err := u.c.Cancel(ctx, id)
	if err != nil || done.Status != loquat.StatusRunning && done.Status != loquat.StatusCancelled {
		return err // the request had ended
	}
	u.promises.add("cancel", t.id, func(tr *Truth) error {
		if q := tr.Requests[id]; q.Status != loquat.StatusCancelled {
			return fmt.Errorf("request %s ended as %q: %s", id, q.Status, outline(tr.ByRequest[id]))
		}
		return nil
	})
	return nil
}

// changeBefore returns the index of the event of a change of messages. It is the event
// before the checkpoint that the answer to the change named.
func changeBefore(events []loquat.Event, checkpoint loquat.EventID, kind loquat.EventType) (int, error) {
	i := slices.IndexFunc(events, func(e loquat.Event) bool { return e.EventID == checkpoint })
	if i < 1 || events[i].Type != loquat.Checkpoint || events[i-1].Type != kind {
		return 0, fmt.Errorf("%s is not the checkpoint after a %s", checkpoint, kind)
	}
	return i - 1, nil
}

func newestCheckpoint(events []loquat.Event) (id loquat.EventID) {
	for _, e := range events {
		if e.Type == loquat.Checkpoint {
			id = e.EventID
		}
	}
	return id
}

// script makes random answers of the backend to a session's requests. Some call tools: unknown ones, or
// one of those that are given.
func script(random *rand.Rand, id string, tools []map[string]any) map[string]any {
	call := func(name string) map[string]any {
		return map[string]any{"name": name, "arguments": map[string]int{"n": 1}}
	}
	kinds := []map[string]any{
		{"rate": 200},
		{"rate": 60, "chunks": 12},
		{"rate": 0, "chunks": 300},
		{"rate": 150, "reasoning": "One thinks before one speaks, and then speaks."},
		{"rate": 200, "tool_calls": []any{call("nowhere"), call("nothing")}},
		{"rate": 100, "tool_calls": []any{call("nobody")}, "repeat_tool_calls": true},
		{"rate": 100, "drop_after": 6},
		{"rate": 100, "drop_after": 4, "drop": "short"},
		{"rate": 100, "error_after": 5},
		{"first_byte_delay_ms": 150},
		{"status": 503},
		{"rate": 20, "chunks": 14},
	}
	for _, tool := range tools {
		kinds = append(kinds, map[string]any{"rate": 200, "tool_calls": []any{tool}}, map[string]any{"rate": 200, "tool_calls": []any{tool, call("nowhere"), tool}})
	}
	attempts := make([]any, 60)
	for i := range attempts {
		attempts[i] = kinds[random.IntN(len(kinds))]
	}
	return map[string]any{"id": id, "attempts": attempts, "text": "One two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen."}
}
