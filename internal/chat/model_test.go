package chat_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"loquat"
	"loquat/internal/chat"
	"loquat/internal/feed"
	"loquat/internal/store"
)

// Whatever is done to sessions, in whatever order, and with what races a small model
// allows, they are as the model says.
func TestModel(t *testing.T) {
	t.Parallel()
	p := newPuppet()
	r := newRig(t, p.tool())
	r.provider.chat = p.Chat
	p.called = r.checkHistory
	checkModel(t, p, r)
}

// checkModel compares services on one log with the model. Each action is done at any of them.
func checkModel(t *testing.T, p *puppet, nodes ...*rig) {
	world := 0
	rapid.Check(t, func(t *rapid.T) {
		world++
		m := &machine{nodes: nodes, puppet: p, world: world}
		defer m.clear()
		m.create(t)
		t.Repeat(map[string]func(*rapid.T){
			"":             m.check,
			"create":       m.create,
			"send":         m.send,
			"send again":   m.send,
			"regenerate":   m.regenerate,
			"order":        m.orderQueue,
			"change":       m.changeQueued,
			"switch":       m.switchEnd,
			"remove":       m.removeEnd,
			"say":          m.say,
			"finish":       m.finish,
			"fail":         m.fail,
			"call a tool":  m.callTool,
			"cancel":       m.cancel,
			"append":       m.append,
			"modify":       m.modify,
			"delete":       m.deleteMessage,
			"describe":     m.describe,
			"delete all":   m.deleteSession,
			"crash":        m.crash,
			"shut down":    m.shutDown,
			"race":         m.race,
			"another race": m.race,
			"race to stop": m.raceToStop,

			"race to change": m.raceToChange,
			"race to steer":  m.raceToSteer,
			"race back":      m.raceBack,
		})
		m.checkLogs(t)
	})
}

// checkHistory compares the messages that a model gets with those that the store has, unless
// the request has ended meanwhile.
func (r *rig) checkHistory(req loquat.LLMRequest) {
	stored, err := r.Messages(context.Background(), req.SessionID, chat.PageQuery{})
	if err != nil || stored.ActiveRequestID != req.RequestID {
		return
	}
	want, wantErr := json.Marshal(stored.Messages)
	got, gotErr := json.Marshal(req.Messages)
	if err := errors.Join(wantErr, gotErr); err != nil || !bytes.Equal(got, want) {
		r.t.Errorf("the model got %s, the session has %s, %v", got, want, err)
	}
}

// machine is one or more services and what they should be.
type machine struct {
	nodes    []*rig
	puppet   *puppet
	world    int
	n        int // for names that are not used twice
	sessions []*modelSession
}

// modelSession is what the model knows of a session.
type modelSession struct {
	id        string
	deleted   bool
	note      int // in its metadata
	messages  []string
	running   *modelRequest
	queue     []*modelRequest
	requests  []*modelRequest
	ends      []*modelEnd // alternatives that hang in the messages
	made      int         // how many there ever were
	acts      int         // of the puppet, so far
	snapshots []loquat.Snapshot
	queueAt   loquat.EventID // up to which the events were read
	shown     string         // the queue by these events, as waiting returns it
}

// modelEnd is what the model knows of an alternative. Unless it is in place, it has messages, and
// the alternatives that hang in them.
type modelEnd struct {
	n, index int
	inPlace  bool
	messages []string
	ends     []*modelEnd
}

// modelRequest is what the model knows of a request.
type modelRequest struct {
	id      string
	content string // of its user message; "" is none
	onBusy  string // while it is queued
	from    int    // index of its first message
	back    bool   // its end takes back its messages
	into    string // the request that took in its message
	stream  bool
	status  loquat.RequestStatus
	said    string // in its phase
	rounds  int
	inTool  bool
}

const unknownOutcome = "tool:The request was cut short while this tool ran. Whether it took effect is unknown."

// start makes a request of the model run.
func (s *modelSession) start(q *modelRequest) {
	q.status, q.from, s.running = loquat.StatusRunning, len(s.messages), q
	if q.content != "" {
		s.messages = append(s.messages, "user:"+q.content)
	}
	s.acts++
}

// end ends the running request of the model; why is empty for a normal end. The next
// one starts, if there is one and it may.
func (s *modelSession) end(status loquat.RequestStatus, why string, startNext bool) {
	q := s.running
	switch {
	case q.back:
		s.cut(q.from)
	case why == "":
		s.messages = append(s.messages, "assistant:"+q.said)
	case q.inTool:
		s.messages = append(s.messages, unknownOutcome)
	case q.stream && q.said != "":
		s.messages = append(s.messages, "assistant:"+q.said+" ("+why+")")
	}
	q.status, s.running = status, nil
	if startNext {
		s.startNext()
	}
}

// cut removes the messages from an index on, with the alternatives that hang in them, which it
// returns.
func (s *modelSession) cut(from int) (hanging []*modelEnd) {
	s.messages = slices.Clone(s.messages[:from])
	s.ends = slices.DeleteFunc(s.ends, func(e *modelEnd) bool {
		if e.index > from {
			hanging = append(hanging, e)
		}
		return e.index > from
	})
	return hanging
}

// cutEnds is cut. The indices of what it returns count from there.
func (s *modelSession) cutEnds(from int) []*modelEnd {
	hanging := s.cut(from)
	for _, e := range hanging {
		e.index -= from
	}
	return hanging
}

// endInPlace returns the alternative at an index that is in place, or nil.
func (s *modelSession) endInPlace(index int) *modelEnd {
	for _, e := range s.ends {
		if e.index == index && e.inPlace {
			return e
		}
	}
	return nil
}

func (s *modelSession) addEnd(index int) *modelEnd {
	s.made++
	e := &modelEnd{n: s.made, index: index, inPlace: true}
	s.ends = append(s.ends, e)
	return e
}

// keep cuts the messages from an index on, and keeps them.
func (s *modelSession) keep(from int) {
	e := s.endInPlace(from)
	if e == nil {
		e = s.addEnd(from)
	}
	e.inPlace, e.messages = false, s.messages[from:]
	e.ends = s.cutEnds(from)
	s.addEnd(from)
}

// dropLast removes the alternative in place at an index if it is the only one.
func (s *modelSession) dropLast(index int) {
	kept := slices.ContainsFunc(s.ends, func(e *modelEnd) bool { return e.index == index && !e.inPlace })
	s.ends = slices.DeleteFunc(s.ends, func(e *modelEnd) bool { return e.index == index && e.inPlace && !kept })
}

// sortedEnds returns the alternatives in the order of the list.
func (s *modelSession) sortedEnds() []*modelEnd {
	return slices.SortedFunc(slices.Values(s.ends), func(a, b *modelEnd) int { return cmp.Or(a.index-b.index, a.n-b.n) })
}

func (s *modelSession) startNext() {
	if s.running == nil && len(s.queue) > 0 {
		next := s.queue[0]
		s.queue = s.queue[1:]
		s.start(next)
		s.takeSteers()
	}
}

// takeSteers puts the messages that are to steer into the running request.
func (s *modelSession) takeSteers() {
	s.queue = slices.DeleteFunc(s.queue, func(q *modelRequest) bool {
		if q.onBusy != loquat.BusySteer {
			return false
		}
		s.messages = append(s.messages, "user:"+q.content)
		q.status, q.into = loquat.StatusCompleted, s.running.id
		return true
	})
}

// enqueue puts a request into the queue.
func (s *modelSession) enqueue(q *modelRequest) {
	q.status = loquat.StatusQueued
	at := len(s.queue)
	switch q.onBusy {
	case loquat.BusyInterrupt, loquat.BusyRollback:
		at = 0
	case loquat.BusySteer:
		if plain := slices.IndexFunc(s.queue, func(o *modelRequest) bool { return o.onBusy == loquat.BusyQueue }); plain >= 0 {
			at = plain
		}
	}
	s.queue = slices.Insert(s.queue, at, q)
}

// waiting returns the queue as it is listed.
func (s *modelSession) waiting() string {
	var out []string
	for _, q := range s.queue {
		out = append(out, q.id+" "+q.onBusy+" "+q.content)
	}
	return strings.Join(out, " | ")
}

// unwell is a difference between the service and the model.
func unwell(t *rapid.T, s *modelSession, format string, args ...any) {
	t.Helper()
	t.Fatalf("session %s: %s", s.id, fmt.Sprintf(format, args...))
}

// at draws the service for a call.
func (m *machine) at(t *rapid.T) *rig {
	if len(m.nodes) == 1 {
		return m.nodes[0]
	}
	return m.nodes[rapid.IntRange(0, len(m.nodes)-1).Draw(t, "node")]
}

// some draws a session of which ok is true; the action is skipped when there is none.
func (m *machine) some(t *rapid.T, ok func(*modelSession) bool) *modelSession {
	var fit []*modelSession
	for _, s := range m.sessions {
		if !s.deleted && ok(s) {
			fit = append(fit, s)
		}
	}
	if len(fit) == 0 {
		t.Skip("no session for it")
	}
	return fit[rapid.IntRange(0, len(fit)-1).Draw(t, "session")]
}

func any1(*modelSession) bool         { return true }
func inModel(s *modelSession) bool    { return s.running != nil && !s.running.inTool }
func inAnything(s *modelSession) bool { return s.running != nil }

// await polls until ok holds.
func await(t *rapid.T, s *modelSession, what string, ok func() bool) {
	t.Helper()
	for began := time.Now(); time.Since(began) < time.Minute; {
		if ok() {
			return
		}
		time.Sleep(200 * time.Microsecond)
	}
	unwell(t, s, "waited in vain for %s", what)
}

// act returns what runs on a session, as soon as it does.
func (m *machine) act(t *rapid.T, s *modelSession) (a *act) {
	t.Helper()
	await(t, s, "the model or tool to be called", func() bool {
		a = m.puppet.on(s.id, s.acts)
		return a != nil
	})
	return a
}

func (m *machine) status(t *rapid.T, s *modelSession, q *modelRequest) loquat.RequestStatus {
	row, err := m.nodes[0].Requests.Request(m.nodes[0].t.Context(), q.id)
	if err != nil {
		unwell(t, s, "request %s: %v", q.id, err)
	}
	return row.Status
}

// settle waits until a session is where the model is.
func (m *machine) settle(t *rapid.T, s *modelSession) {
	t.Helper()
	for _, q := range s.requests {
		await(t, s, fmt.Sprintf("request %s to be %s", q.id, q.status), func() bool { return m.status(t, s, q) == q.status })
	}
	if s.running != nil {
		m.act(t, s)
		if q := s.running; q.stream && !q.inTool {
			await(t, s, "what was said to be on disk", func() bool { return m.streamed(q) == q.said })
		}
	}
}

// streamed is what the log has of the open phase of a request.
func (m *machine) streamed(q *modelRequest) string {
	records, err := m.nodes[0].store.Events(m.nodes[0].t.Context(), 0, store.Filter{RequestID: q.id}, store.Bounds{Events: 1000})
	if err != nil {
		return err.Error()
	}
	said := ""
	for _, rec := range records {
		switch e, err := rec.Decode(); {
		case err != nil:
			return err.Error()
		case e.Type == loquat.Partial:
			said += e.Message.Content
		case e.Type == loquat.Final:
			said = ""
		}
	}
	return said
}

func (m *machine) name(kind string) string {
	m.n++
	return fmt.Sprintf("%s-%d-%d", kind, m.world, m.n)
}

// living returns how many sessions are not deleted.
func (m *machine) living() (n int) {
	for _, s := range m.sessions {
		if !s.deleted {
			n++
		}
	}
	return n
}

func (m *machine) create(t *rapid.T) {
	if m.living() == 3 {
		t.Skip("enough sessions")
	}
	s := &modelSession{id: m.name("session")}
	m.sessions = append(m.sessions, s)
	overrides := map[string]any{"request_options": map[string]any{"session": s.id}}
	s.snapshots = []loquat.Snapshot{m.at(t).create(loquat.NewSession{SessionID: s.id, Metadata: loquat.Object{}.Set("overrides", overrides)})}
}

// drawSend draws a send with a message of its own.
func (m *machine) drawSend(t *rapid.T, onBusy ...string) (*modelRequest, loquat.Send) {
	q := &modelRequest{id: m.name("request"), content: m.name("question"), stream: rapid.Bool().Draw(t, "stream")}
	q.onBusy = rapid.SampledFrom(onBusy).Draw(t, "on busy")
	return q, loquat.Send{RequestID: q.id, Content: &q.content, Stream: &q.stream, OnBusy: q.onBusy}
}

func (m *machine) send(t *rapid.T) {
	s := m.some(t, any1)
	q, p := m.drawSend(t, loquat.BusyReject, loquat.BusyQueue, loquat.BusyInterrupt, loquat.BusySteer, loquat.BusyRollback)
	out, err := m.at(t).Requests.Send(t.Context(), chat.Call{}, s.id, p)
	switch {
	case s.running == nil:
		s.start(q)
	case p.OnBusy == loquat.BusyReject:
		if loquat.CodeOf(err) != loquat.CodeBusy {
			unwell(t, s, "a send while one runs: %v", err)
		}
		return
	case len(s.queue) == 10:
		if loquat.CodeOf(err) != loquat.CodeRateLimited {
			unwell(t, s, "a send behind ten others: %v", err)
		}
		return
	default:
		s.enqueue(q)
	}
	if err != nil || out.Body.Status != q.status {
		unwell(t, s, "a send that is to be %s: %+v, %v", q.status, out, err)
	}
	s.requests = append(s.requests, q)
	if cancels(q) && q.status == loquat.StatusQueued {
		s.running.back = q.onBusy == loquat.BusyRollback
		s.end(loquat.StatusCancelled, "cancelled", true)
	}
	m.settle(t, s)
}

func cancels(q *modelRequest) bool {
	return q.onBusy == loquat.BusyInterrupt || q.onBusy == loquat.BusyRollback
}

func inQueue(s *modelSession) bool { return len(s.queue) > 0 }

// orderQueue gives a queue another order, or an order that does not fit it.
func (m *machine) orderQueue(t *rapid.T) {
	s := m.some(t, inQueue)
	order := rapid.Permutation(s.queue).Draw(t, "order")
	ids := idsOf(order)
	stale := rapid.IntRange(0, 3).Draw(t, "stale") == 0
	if stale {
		ids[0] = s.requests[0].id + "-unknown"
	}
	out, err := m.at(t).Requests.OrderQueue(t.Context(), chat.Call{}, s.id, ids)
	if stale {
		if loquat.CodeOf(err) != loquat.CodeConflict {
			unwell(t, s, "an order of other requests: %v", err)
		}
		return
	}
	s.queue = slices.Clone(order)
	if err != nil || listed(out.Body) != s.waiting() {
		unwell(t, s, "the queue in order is %s, want %s, %v", listed(out.Body), s.waiting(), err)
	}
}

func idsOf(queue []*modelRequest) []string {
	var out []string
	for _, q := range queue {
		out = append(out, q.id)
	}
	return out
}

// listed returns a queue as modelSession.waiting does.
func listed(queue loquat.Queue) string {
	var out []string
	for _, q := range queue.Queue {
		out = append(out, q.RequestID+" "+q.OnBusy+" "+q.Message.Content)
	}
	return strings.Join(out, " | ")
}

// drawChange draws a change of a queued send.
func (m *machine) drawChange(t *rapid.T) loquat.QueuedPatch {
	content := m.name("changed")
	return loquat.QueuedPatch{Content: &content, OnBusy: rapid.SampledFrom([]string{"", loquat.BusyQueue, loquat.BusySteer}).Draw(t, "on busy")}
}

// change makes a change in the model.
func (s *modelSession) change(q *modelRequest, p loquat.QueuedPatch) {
	q.content = *p.Content
	steers := p.OnBusy == loquat.BusySteer && q.onBusy != loquat.BusySteer
	if p.OnBusy != "" {
		q.onBusy = p.OnBusy
	}
	if steers {
		s.queue = slices.DeleteFunc(s.queue, func(o *modelRequest) bool { return o == q })
		s.enqueue(q)
	}
}

func (m *machine) changeQueued(t *rapid.T) {
	s := m.some(t, func(s *modelSession) bool { return len(s.requests) > 0 })
	q, p := rapid.SampledFrom(s.requests).Draw(t, "request"), m.drawChange(t)
	_, err := m.at(t).Requests.ChangeQueued(t.Context(), chat.Call{}, s.id, q.id, p)
	if q.status != loquat.StatusQueued {
		if loquat.CodeOf(err) != loquat.CodeConflict {
			unwell(t, s, "a change of a request that is %s: %v", q.status, err)
		}
		return
	}
	if err != nil {
		unwell(t, s, "a change of a queued request: %v", err)
	}
	s.change(q, p)
}

// regenerate sends with delete_from, with or without a message.
func (m *machine) regenerate(t *rapid.T) {
	s := m.some(t, any1)
	from := rapid.IntRange(0, len(s.messages)).Draw(t, "delete from")
	q, p := m.drawSend(t, loquat.BusyReject)
	p.DeleteFrom, p.Keep = &from, rapid.Bool().Draw(t, "keep")
	if rapid.Bool().Draw(t, "as it stands") {
		q.content, p.Content = "", nil
	}
	want := loquat.Code("")
	switch {
	case s.running != nil:
		want = loquat.CodeBusy
	case from == len(s.messages):
		want = loquat.CodeInvalid
	case q.content == "" && (from == 0 || strings.HasPrefix(s.messages[from-1], "assistant:")):
		want = loquat.CodeInvalid
	}
	_, err := m.at(t).Requests.Send(t.Context(), chat.Call{}, s.id, p)
	if loquat.CodeOf(err) != want && (err != nil || want != "") {
		unwell(t, s, "a send with delete_from %d: %v, want %q", from, err, want)
	}
	if err != nil {
		return
	}
	if p.Keep {
		s.keep(from)
	} else {
		s.cut(from)
	}
	s.requests = append(s.requests, q)
	s.start(q)
	m.settle(t, s)
}

func (m *machine) say(t *rapid.T) {
	s := m.some(t, inModel)
	word := m.name("word") + " "
	m.act(t, s).do(order{word: word})
	s.running.said += word
	m.settle(t, s)
}

// finish ends what runs as it is meant to end.
func (m *machine) finish(t *rapid.T) {
	s := m.some(t, inAnything)
	m.act(t, s).do(order{finish: true})
	if q := s.running; q.inTool {
		q.inTool, q.said = false, ""
		s.messages = append(s.messages, "tool:done")
		s.takeSteers()
		s.acts++
	} else {
		s.end(loquat.StatusCompleted, "", true)
	}
	m.settle(t, s)
}

func (m *machine) fail(t *rapid.T) {
	s := m.some(t, inModel)
	m.act(t, s).do(order{fail: true})
	s.end(loquat.StatusFailed, "error", true)
	m.settle(t, s)
}

func (m *machine) callTool(t *rapid.T) {
	s := m.some(t, inModel)
	m.act(t, s).do(order{call: true})
	if q := s.running; q.rounds == 3 { // max_tool_rounds
		s.end(loquat.StatusFailed, "error", true)
	} else {
		s.messages = append(s.messages, "assistant:"+q.said)
		q.rounds++
		q.inTool = true
		s.acts++
	}
	m.settle(t, s)
}

func (m *machine) cancel(t *rapid.T) {
	s := m.some(t, func(s *modelSession) bool { return len(s.requests) > 0 })
	q := rapid.SampledFrom(s.requests).Draw(t, "request")
	was := q.status
	out, err := m.at(t).Requests.Cancel(t.Context(), chat.Call{}, q.id)
	if err != nil || out.Accepted == was.Ended() {
		unwell(t, s, "cancel of a request that is %s: %+v, %v", was, out, err)
	}
	switch was {
	case loquat.StatusQueued:
		s.queue = slices.DeleteFunc(s.queue, func(o *modelRequest) bool { return o == q })
		q.status = loquat.StatusCancelled
	case loquat.StatusRunning:
		s.end(loquat.StatusCancelled, "cancelled", true)
	}
	m.settle(t, s)
}

// changed checks the answer to a change of messages and reports whether it was made.
func changed(t *rapid.T, s *modelSession, err error) bool {
	if s.running != nil {
		if loquat.CodeOf(err) != loquat.CodeBusy {
			unwell(t, s, "a change while a request runs: %v", err)
		}
		return false
	}
	if err != nil {
		unwell(t, s, "a change: %v", err)
	}
	return true
}

func (m *machine) append(t *rapid.T) {
	s := m.some(t, any1)
	role := rapid.SampledFrom([]string{loquat.RoleUser, loquat.RoleAssistant}).Draw(t, "role")
	content := m.name("appended")
	_, err := m.at(t).AppendMessage(t.Context(), chat.Call{}, s.id, loquat.NewMessage{Role: role, Content: content})
	if changed(t, s, err) {
		s.messages = append(s.messages, role+":"+content)
	}
}

func (m *machine) modify(t *rapid.T) {
	s := m.some(t, func(s *modelSession) bool { return len(s.messages) > 0 })
	i, content := rapid.IntRange(0, len(s.messages)-1).Draw(t, "index"), m.name("modified")
	_, err := m.at(t).ModifyMessage(t.Context(), chat.Call{}, s.id, i, content)
	if changed(t, s, err) {
		role, old, _ := strings.Cut(s.messages[i], ":")
		why := ""
		if at := strings.LastIndex(old, " ("); at >= 0 {
			why = old[at:]
		}
		s.messages[i] = role + ":" + content + why
	}
}

func (m *machine) deleteMessage(t *rapid.T) {
	s := m.some(t, func(s *modelSession) bool { return len(s.messages) > 0 })
	i := rapid.IntRange(0, len(s.messages)-1).Draw(t, "index")
	_, err := m.at(t).DeleteMessages(t.Context(), chat.Call{}, s.id, []int{i})
	if changed(t, s, err) {
		s.messages = slices.Delete(s.messages, i, i+1)
		s.ends = slices.DeleteFunc(s.ends, func(e *modelEnd) bool { return e.index == i+1 })
		for _, e := range s.ends {
			if e.index > i {
				e.index--
			}
		}
	}
}

// drawEnd draws an alternative, and returns its id.
func (m *machine) drawEnd(t *rapid.T, s *modelSession) (*modelEnd, string) {
	list, err := m.at(t).Alternatives(t.Context(), s.id, nil)
	if err != nil || len(list.Alternatives) != len(s.ends) {
		unwell(t, s, "%d alternatives, want %d, %v", len(list.Alternatives), len(s.ends), err)
	}
	i := rapid.IntRange(0, len(s.ends)-1).Draw(t, "alternative")
	return s.sortedEnds()[i], list.Alternatives[i].AlternativeID
}

func hasEnds(s *modelSession) bool { return len(s.ends) > 0 }

// switchEnd puts an alternative in place.
func (m *machine) switchEnd(t *rapid.T) {
	s := m.some(t, hasEnds)
	e, id := m.drawEnd(t, s)
	out, err := m.at(t).SwitchAlternative(t.Context(), chat.Call{}, s.id, id)
	if !changed(t, s, err) || e.inPlace {
		return
	}
	before := s.endInPlace(e.index)
	if tail := s.messages[e.index:]; len(tail) > 0 {
		before.inPlace, before.messages, before.ends = false, tail, s.cutEnds(e.index)
	} else {
		s.ends = slices.DeleteFunc(s.ends, func(o *modelEnd) bool { return o == before })
	}
	s.messages = append(s.messages, e.messages...)
	for _, hanging := range e.ends {
		hanging.index += e.index
		s.ends = append(s.ends, hanging)
	}
	e.inPlace, e.messages, e.ends = true, nil, nil
	s.dropLast(e.index)
	if out.Body.Total != len(s.messages) || out.Body.Index != e.index {
		unwell(t, s, "the switch answered %+v", out.Body)
	}
}

func (m *machine) removeEnd(t *rapid.T) {
	s := m.some(t, hasEnds)
	e, id := m.drawEnd(t, s)
	err := m.at(t).RemoveAlternative(t.Context(), chat.Call{}, s.id, id)
	if e.inPlace {
		if loquat.CodeOf(err) != loquat.CodeConflict {
			unwell(t, s, "the removal of an alternative in place: %v", err)
		}
		return
	}
	if err != nil {
		unwell(t, s, "the removal of an alternative: %v", err)
	}
	s.ends = slices.DeleteFunc(s.ends, func(o *modelEnd) bool { return o == e })
	s.dropLast(e.index)
}

// checkEnds compares the alternatives of a session with the model.
func (m *machine) checkEnds(t *rapid.T, s *modelSession) {
	r := m.nodes[0]
	list, err := r.Alternatives(r.t.Context(), s.id, nil)
	ends := s.sortedEnds()
	if err != nil || len(list.Alternatives) != len(ends) {
		unwell(t, s, "%d alternatives, want %d, %v", len(list.Alternatives), len(ends), err)
	}
	for i, a := range list.Alternatives {
		want := ends[i].messages
		if ends[i].inPlace {
			want = s.messages[ends[i].index:]
		}
		got, err := r.Alternative(r.t.Context(), s.id, a.AlternativeID)
		if err != nil || a.Index != ends[i].index || a.InPlace != ends[i].inPlace || a.MessageCount != len(want) || transcript(got.Messages) != strings.Join(want, " | ") {
			unwell(t, s, "alternative %d is %+v with %s, %v; want %+v with %s", i, a, transcript(got.Messages), err, ends[i], want)
		}
	}
}

// describe changes metadata, which is allowed at any time.
func (m *machine) describe(t *rapid.T) {
	s := m.some(t, any1)
	m.n++
	r := m.at(t)
	before := r.snapshot(s.id)
	after, err := r.UpdateSession(t.Context(), chat.Call{}, s.id, loquat.SessionPatch{Metadata: loquat.Object{}.Set("note", m.n)})
	if err != nil || (after.CursorEventID == before.CursorEventID) != (s.running != nil) {
		unwell(t, s, "a change of metadata: cursor %s, was %s, %v", after.CursorEventID, before.CursorEventID, err)
	}
	s.note = m.n
	s.snapshots = append(s.snapshots, after)
}

func (m *machine) deleteSession(t *rapid.T) {
	s := m.some(t, any1)
	if rapid.IntRange(0, 3).Draw(t, "rarely") > 0 {
		t.Skip("later")
	}
	running := (*act)(nil)
	if s.running != nil {
		running = m.act(t, s)
	}
	if err := m.at(t).DeleteSession(t.Context(), chat.Call{}, s.id); err != nil {
		unwell(t, s, "delete: %v", err)
	}
	s.deleted = true
	if running != nil {
		<-running.gone
	}
	if m.living() == 0 {
		m.create(t) // without a session only create is possible, which may not be drawn for long
	}
}

// crash puts a new service in the place of one that no longer gets anything done. One of several
// services on a log loses its hold of the log instead, as after a pause.
func (m *machine) crash(t *rapid.T) {
	r := m.at(t)
	ran := m.runningOn(t, r)
	if r.fence != nil {
		r.fence()
		m.afterEnd(t, ran)
		return
	}
	dead := r.Service
	r.restart()
	m.afterEnd(t, ran)
	dead.Stop(expired())
}

// shutDown stops a service without any time for what runs, and starts a new one.
func (m *machine) shutDown(t *rapid.T) {
	r := m.at(t)
	ran := m.runningOn(t, r)
	r.Stop(expired())
	r.restart()
	m.afterEnd(t, ran)
}

// runningOn returns the sessions whose request a service runs.
func (m *machine) runningOn(t *rapid.T, r *rig) map[*modelSession]bool {
	out := map[*modelSession]bool{}
	for _, s := range m.sessions {
		out[s] = !s.deleted && s.running != nil && m.ownerOf(t, s) == r
	}
	return out
}

// ownerOf returns the service that runs the request of a session.
func (m *machine) ownerOf(t *rapid.T, s *modelSession) *rig {
	q, err := store.Read(t.Context(), m.nodes[0].store, func(r *store.Reader) (store.Request, error) { return r.Request(s.running.id) })
	if err != nil {
		unwell(t, s, "request %s: %v", s.running.id, err)
	}
	for _, r := range m.nodes {
		if r.store.Owner() == q.Owner {
			return r
		}
	}
	unwell(t, s, "request %s belongs to nobody: %q", q.RequestID, q.Owner)
	return nil
}

// afterEnd follows the end of a service, which ran the requests of some sessions.
func (m *machine) afterEnd(t *rapid.T, ran map[*modelSession]bool) {
	for _, s := range m.sessions {
		if s.deleted {
			continue
		}
		if ran[s] && s.running != nil {
			s.end(loquat.StatusFailed, "interrupted", false)
		}
		s.startNext()
		m.settle(t, s)
	}
}

func raceable(s *modelSession) bool { return inModel(s) && len(s.queue) == 0 }

// race lets the model say a word and finish, or not, while the request is cancelled,
// or another one is sent, or both. The answers say which outcomes are possible.
func (m *machine) race(t *rapid.T) {
	s := m.some(t, raceable)
	q, a := s.running, m.act(t, s)
	word := m.name("word") + " "
	finish, cancel, another := rapid.Bool().Draw(t, "finish"), rapid.Bool().Draw(t, "cancel"), rapid.Bool().Draw(t, "another")
	next, p := m.drawSend(t, loquat.BusyQueue, loquat.BusyInterrupt, loquat.BusySteer, loquat.BusyRollback)
	var cancelled chat.Answer[loquat.CancelResult]
	var sent chat.Answer[loquat.SendResult]
	var cancelErr, sendErr error
	canceller, sender := m.at(t), m.at(t)
	var all sync.WaitGroup
	all.Go(func() {
		if a.do(order{word: word}) && finish {
			a.do(order{finish: true})
		}
	})
	if cancel {
		all.Go(func() { cancelled, cancelErr = canceller.Requests.Cancel(t.Context(), chat.Call{}, q.id) })
	}
	if another {
		all.Go(func() { sent, sendErr = sender.Requests.Send(t.Context(), chat.Call{}, s.id, p) })
	}
	all.Wait()
	if cancelErr != nil || sendErr != nil {
		unwell(t, s, "cancel: %v; send: %v", cancelErr, sendErr)
	}
	if another {
		s.requests = append(s.requests, next)
		s.enqueue(next)
	}
	interrupted := another && cancels(next) && sent.Body.Status == loquat.StatusQueued
	q.back = interrupted && next.onBusy == loquat.BusyRollback
	switch {
	case cancelled.Accepted || interrupted:
		m.endsWith(t, s, word, loquat.StatusCancelled, "cancelled", true)
	case finish:
		m.endsWith(t, s, word, loquat.StatusCompleted, "", true)
	default:
		q.said += word
	}
	m.settle(t, s)
}

// endsWith waits for the end of the running request, which has to be status, and takes
// from what was kept whether the last word was still heard.
func (m *machine) endsWith(t *rapid.T, s *modelSession, word string, status loquat.RequestStatus, why string, startNext bool) {
	t.Helper()
	q := s.running
	await(t, s, "the end of the race", func() bool { return m.status(t, s, q).Ended() })
	if got := m.status(t, s, q); got != status {
		unwell(t, s, "request %s is %s, want %s", q.id, got, status)
	}
	heard := why == ""
	if !q.back { // otherwise what was kept is gone
		for _, msg := range m.nodes[0].snapshot(s.id).Messages[len(s.messages):] {
			heard = heard || strings.Contains(msg.Content, word)
		}
	}
	if heard {
		q.said += word
	}
	s.end(status, why, startNext)
}

// raceToStop shuts the service down while the model finishes.
func (m *machine) raceToStop(t *rapid.T) {
	s := m.some(t, raceable)
	q, a, r := s.running, m.act(t, s), m.ownerOf(t, s)
	ran := m.runningOn(t, r)
	word := m.name("word") + " "
	var all sync.WaitGroup
	all.Go(func() { _ = a.do(order{word: word}) && a.do(order{finish: true}) })
	all.Go(func() { r.Stop(expired()) })
	all.Wait()
	if m.status(t, s, q) == loquat.StatusCompleted {
		m.endsWith(t, s, word, loquat.StatusCompleted, "", false)
	} else {
		m.endsWith(t, s, word, loquat.StatusFailed, "interrupted", false)
	}
	r.restart()
	m.afterEnd(t, ran)
}

// raceToChange changes a queued send, or the order of the queue, while the running request ends.
func (m *machine) raceToChange(t *rapid.T) {
	s := m.some(t, func(s *modelSession) bool { return inModel(s) && inQueue(s) })
	q, a, changer := s.queue[0], m.act(t, s), m.at(t)
	p, permuted := m.drawChange(t), rapid.Permutation(s.queue).Draw(t, "order")
	reorder := rapid.Bool().Draw(t, "reorder")
	var err error
	var all sync.WaitGroup
	all.Go(func() { a.do(order{finish: true}) })
	all.Go(func() {
		if reorder {
			_, err = changer.Requests.OrderQueue(t.Context(), chat.Call{}, s.id, idsOf(permuted))
		} else {
			_, err = changer.Requests.ChangeQueued(t.Context(), chat.Call{}, s.id, q.id, p)
		}
	})
	all.Wait()
	switch {
	case err != nil && loquat.CodeOf(err) != loquat.CodeConflict:
		unwell(t, s, "a change of the queue in a race: %v", err)
	case err == nil && reorder:
		s.queue = slices.Clone(permuted)
	case err == nil:
		s.change(q, p)
	}
	s.end(loquat.StatusCompleted, "", true)
	m.settle(t, s)
}

// raceToSteer steers while a tool returns.
func (m *machine) raceToSteer(t *rapid.T) {
	s := m.some(t, func(s *modelSession) bool { return s.running != nil && s.running.inTool && len(s.queue) < 10 })
	q, a, sender := s.running, m.act(t, s), m.at(t)
	steer, p := m.drawSend(t, loquat.BusySteer)
	var err error
	var all sync.WaitGroup
	all.Go(func() { a.do(order{finish: true}) })
	all.Go(func() { _, err = sender.Requests.Send(t.Context(), chat.Call{}, s.id, p) })
	all.Wait()
	if err != nil {
		unwell(t, s, "a send that steers: %v", err)
	}
	s.requests = append(s.requests, steer)
	s.acts++
	m.act(t, s) // the next call of the model
	s.messages = append(s.messages, "tool:done")
	q.inTool, q.said = false, ""
	late := m.status(t, s, steer) == loquat.StatusQueued
	if !late {
		s.enqueue(steer)
	}
	s.takeSteers()
	if late {
		s.enqueue(steer)
	}
	m.settle(t, s)
}

// raceBack rolls a request back while its service stops.
func (m *machine) raceBack(t *rapid.T) {
	s := m.some(t, raceable)
	q, r, sender := s.running, m.ownerOf(t, s), m.at(t)
	ran := m.runningOn(t, r)
	next, p := m.drawSend(t, loquat.BusyRollback)
	var err error
	var all sync.WaitGroup
	all.Go(func() { _, err = sender.Requests.Send(t.Context(), chat.Call{}, s.id, p) })
	all.Go(func() { r.Stop(expired()) })
	all.Wait()
	r.restart()
	if err != nil && loquat.CodeOf(err) != loquat.CodeUnavailable {
		unwell(t, s, "a rollback while the service stops: %v", err)
	}
	await(t, s, "the end of the request", func() bool { return m.status(t, s, q).Ended() })
	if err == nil {
		s.requests = append(s.requests, next)
		s.enqueue(next)
	}
	if status := m.status(t, s, q); status == loquat.StatusCancelled {
		q.back = true
		s.end(status, "cancelled", false)
	} else {
		s.end(status, "interrupted", false)
	}
	if err == nil && m.status(t, s, next) == loquat.StatusFailed { // it began before the service stopped
		s.startNext()
		s.end(loquat.StatusFailed, "interrupted", false)
		s.acts = m.puppet.began(s.id) // it may not have come to the model
	}
	ran[s] = false
	m.afterEnd(t, ran)
}

// check compares every session with the model.
// checkWaiting compares the queue and the last request in a snapshot with the model, and also the
// queue that a client has by events alone.
func (m *machine) checkWaiting(t *rapid.T, s *modelSession, got loquat.Snapshot) {
	r := m.nodes[0]
	for more := true; more; {
		w, err := r.Events(r.t.Context(), feed.Query{SessionID: s.id, Since: &s.queueAt, OmitSession: true})
		if err != nil {
			unwell(t, s, "its events: %v", err)
		}
		for _, rec := range w.Events {
			e, err := rec.Decode()
			if err != nil || e.QueueOmitted || e.Type == loquat.QueueChanged && e.Queue == nil {
				unwell(t, s, "event %s: %+v, %v", rec.ID, e, err)
			}
			if e.Type == loquat.QueueChanged {
				s.shown = listed(loquat.Queue{Queue: e.Queue})
			}
		}
		s.queueAt, more = w.Cursor, len(w.Events) > 0
	}
	if have := listed(loquat.Queue{Queue: got.Queue}); got.Queue == nil || have != s.waiting() || s.shown != have {
		unwell(t, s, "the snapshot has the queue %q, events say %q, want %q", have, s.shown, s.waiting())
	}
	var ended []string // that may be the last
	for _, q := range s.requests {
		if q.status.Ended() && q.into == "" {
			ended = append(ended, q.id+" "+string(q.status))
		}
	}
	switch last := got.LastRequest; {
	case s.running != nil:
		if last == nil || last.RequestID != s.running.id || last.Status != loquat.StatusRunning || last.EndedAt != nil {
			unwell(t, s, "%s runs, the last request is %+v", s.running.id, last)
		}
	case last == nil:
		if len(ended) > 0 {
			unwell(t, s, "there is no last request of %q", ended)
		}
	case !slices.Contains(ended, last.RequestID+" "+string(last.Status)) || last.StartedAt == nil && last.Status != loquat.StatusCancelled || last.EndedAt == nil:
		unwell(t, s, "the last request is %+v, ended are %q", last, ended)
	}
}

func (m *machine) check(t *rapid.T) {
	for _, s := range m.sessions {
		got, err := m.nodes[0].Session(m.nodes[0].t.Context(), s.id)
		if s.deleted {
			if loquat.CodeOf(err) != loquat.CodeNotFound {
				unwell(t, s, "it is deleted, and still %v", err)
			}
			continue
		}
		if err != nil {
			unwell(t, s, "%v", err)
		}
		if have, want := transcript(got.Messages), strings.Join(s.messages, " | "); have != want {
			unwell(t, s, "messages\n%s\nwant\n%s", have, want)
		}
		active := ""
		if s.running != nil {
			active = s.running.id
		}
		if got.ActiveRequestID != active || s.note > 0 && string(got.Metadata["note"]) != fmt.Sprint(s.note) {
			unwell(t, s, "active is %q, want %q; the note is %s, want %d", got.ActiveRequestID, active, got.Metadata["note"], s.note)
		}
		m.checkWaiting(t, s, got)
		for _, q := range s.requests {
			row, err := m.nodes[0].Requests.Request(m.nodes[0].t.Context(), q.id)
			if err != nil || row.Status != q.status || row.SteeredInto != q.into {
				unwell(t, s, "request %s is %s, steered into %q, %v; want %s, %q", q.id, row.Status, row.SteeredInto, err, q.status, q.into)
			}
		}
		m.checkEnds(t, s)
		queue, err := m.nodes[0].Requests.Queue(m.nodes[0].t.Context(), s.id)
		if err != nil || listed(queue) != s.waiting() {
			unwell(t, s, "the queue is %s, want %s, %v", listed(queue), s.waiting(), err)
		}
	}
}

// checkLogs checks the log of each session: a fold from any cursor ends with the stored
// session, and each request has one beginning and one end.
func (m *machine) checkLogs(t *rapid.T) {
	for _, s := range m.sessions {
		r := m.at(t)
		now, _ := r.Session(r.t.Context(), s.id) // it waits for the tail; a deleted session has none
		events := r.log(s.id, 0)
		if s.deleted {
			if last := events[len(events)-1].Type; last != loquat.SessionDeleted {
				unwell(t, s, "it is deleted, and then comes %s", last)
			}
			continue
		}
		for _, from := range append(s.snapshots, now) {
			fold := loquat.NewFold(from)
			for _, e := range events {
				fold.Apply(e)
			}
			if got, want := transcript(fold.Messages()), transcript(now.Messages); got != want {
				unwell(t, s, "from %s on it folds to\n%s\nstored is\n%s", from.CursorEventID, got, want)
			}
			if draft := fold.Draft(); (draft != nil) != (s.running != nil && s.running.stream && !s.running.inTool && s.running.said != "") {
				unwell(t, s, "the draft is %+v", draft)
			}
		}
		for _, q := range s.requests {
			checkRequestLog(t, s, q, events)
		}
	}
}

// checkRequestLog checks that a request's events are in the order that is promised.
func checkRequestLog(t *rapid.T, s *modelSession, q *modelRequest, events []loquat.Event) {
	count := map[loquat.EventType]int{}
	open, order := 0, []loquat.EventType(nil)
	for _, e := range events {
		if e.RequestID != q.id {
			continue
		}
		if count[loquat.RequestCompleted] > 0 || (len(order) == 0) != (e.Type == loquat.RequestStarted) {
			unwell(t, s, "request %s has %s after %v", q.id, e.Type, order)
		}
		if e.Type == loquat.RequestStarted && e.SteeredInto != q.into {
			unwell(t, s, "request %s starts steered into %q, want %q", q.id, e.SteeredInto, q.into)
		}
		count[e.Type]++
		order = append(order, e.Type)
		switch e.Phase {
		case loquat.PhaseStart:
			open++
		case loquat.PhaseEnd:
			open--
		}
		if open < 0 || open > 1 {
			unwell(t, s, "request %s has %d open phases after %v", q.id, open, order)
		}
	}
	want := map[loquat.EventType]int{}
	if q.status != loquat.StatusQueued {
		want[loquat.RequestStarted] = 1
	}
	if q.status.Ended() {
		want[loquat.RequestCompleted] = 1
	}
	switch q.status {
	case loquat.StatusCancelled:
		want[loquat.RequestCancelled] = 1
	case loquat.StatusFailed:
		want[loquat.ErrorEvent] = 1
	}
	maps.DeleteFunc(count, func(kind loquat.EventType, _ int) bool {
		return kind != loquat.RequestStarted && kind != loquat.RequestCompleted && kind != loquat.RequestCancelled && kind != loquat.ErrorEvent
	})
	if !maps.Equal(count, want) || q.status.Ended() && open != 0 {
		unwell(t, s, "request %s, which is %s, has %v", q.id, q.status, order)
	}
}

// clear ends what a run leaves behind, so that the next one does not wait for it.
func (m *machine) clear() {
	for _, s := range m.sessions {
		if !s.deleted {
			_ = m.nodes[0].DeleteSession(m.nodes[0].t.Context(), chat.Call{}, s.id)
		}
	}
}
