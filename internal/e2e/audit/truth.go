// Package audit puts servers under load and checks that they kept what they promised: every
// acknowledged change is in the log exactly once, every event that a client saw is there and
// means the same, every request has one end, and every follower's fold equals the stored
// session. Only tests use it.
package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"loquat"
)

// Truth is the state of an idle server: the log from an event on, the sessions that were created
// since, and their requests.
type Truth struct {
	log       []loquat.Event
	bySession map[string][]loquat.Event
	ByRequest map[string][]loquat.Event
	Sessions  map[string]loquat.Snapshot // without deleted sessions
	Requests  map[string]loquat.Request  // of these sessions
}

// NewTruth returns the truth of a log. The caller adds the sessions and the requests.
func NewTruth(log []loquat.Event) *Truth {
	t := &Truth{
		log: log, bySession: map[string][]loquat.Event{}, ByRequest: map[string][]loquat.Event{},
		Sessions: map[string]loquat.Snapshot{}, Requests: map[string]loquat.Request{},
	}
	for _, e := range log {
		t.bySession[e.SessionID] = append(t.bySession[e.SessionID], e)
		if e.RequestID != "" {
			t.ByRequest[e.RequestID] = append(t.ByRequest[e.RequestID], e)
		}
	}
	return t
}

// Log returns the events.
func (t *Truth) Log() []loquat.Event { return t.log }

// dropOlder forgets the sessions that were created at or before an event.
func (t *Truth) dropOlder(from loquat.EventID) {
	if from == 0 {
		return
	}
	for id, events := range t.bySession {
		if first := events[0].Type; first == loquat.SessionCreated || first == loquat.SessionDeleted { // all that is left of one
			continue
		}
		delete(t.bySession, id)
		for _, e := range events {
			delete(t.ByRequest, e.RequestID)
		}
	}
}

// deleted reports whether the log says that a session was deleted.
func (t *Truth) deleted(sessionID string) bool {
	events := t.bySession[sessionID]
	return len(events) > 0 && events[len(events)-1].Type == loquat.SessionDeleted
}

// Check returns all contradictions within the truth.
func (t *Truth) Check() (faults []error) {
	note := func(err error) {
		if err != nil {
			faults = append(faults, err)
		}
	}
	for i := 1; i < len(t.log); i++ {
		if t.log[i].EventID <= t.log[i-1].EventID {
			note(fmt.Errorf("event %s follows %s", t.log[i].EventID, t.log[i-1].EventID))
		}
	}
	for id, s := range t.Sessions {
		note(checkSessionOrder(t.bySession[id]))
		note(sameMessages("session "+id, replay(t.bySession[id], 0), s.Messages))
		note(checkMetadata(t.bySession[id], s.Metadata))
		if s.ActiveRequestID != "" {
			note(fmt.Errorf("session %s: request %s runs after all have ended", id, s.ActiveRequestID))
		}
		if len(s.Queue) > 0 {
			note(fmt.Errorf("session %s: %d sends wait, and nothing runs", id, len(s.Queue)))
		}
	}
	for id, events := range t.ByRequest {
		if t.deleted(events[0].SessionID) {
			continue
		}
		note(checkRequestOrder(events, rolledBack(t.bySession[events[0].SessionID], id)))
		note(checkStatus(events, t.Requests[id]))
	}
	return faults
}

// replayed is a session built from its events, and the errors in these events.
type replayed struct {
	messages []loquat.Message
	err      error
}

// replay applies the events of a session up to an id; 0 means all. Unlike a client's fold,
// replay reports a message that is added twice and an index that does not exist.
func replay(events []loquat.Event, upTo loquat.EventID) (out replayed) {
	known := map[string]bool{}
	add := func(at loquat.EventID, messages ...loquat.Message) {
		for _, m := range messages {
			if known[m.ID] {
				out.err = errors.Join(out.err, fmt.Errorf("event %s adds message %s again", at, m.ID))
			}
			known[m.ID] = true
			out.messages = append(out.messages, m)
		}
	}
	place := func(at loquat.EventID, i int) bool {
		ok := i >= 0 && i < len(out.messages)
		if !ok {
			out.err = errors.Join(out.err, fmt.Errorf("event %s changes message %d of %d", at, i, len(out.messages)))
		}
		return ok
	}
	for _, e := range events {
		if upTo != 0 && e.EventID > upTo {
			break
		}
		switch e.Type {
		case loquat.SessionCreated:
			if e.Session != nil {
				add(e.EventID, e.Session.Messages...)
			}
		case loquat.MessageAppended:
			add(e.EventID, e.Message.AsMessage())
		case loquat.Final, loquat.ToolResults:
			add(e.EventID, e.Messages...)
		case loquat.MessageModified:
			if place(e.EventID, *e.Index) {
				out.messages[*e.Index].Content = *e.Content
			}
		case loquat.MessagesDeleted:
			for _, i := range slices.Backward(e.Indices) {
				if place(e.EventID, i) {
					known[out.messages[i].ID] = false // an alternative may bring it back
					out.messages = slices.Delete(out.messages, i, i+1)
				}
			}
		}
	}
	return out
}

// sameMessages compares a replay with the stored messages.
func sameMessages(what string, replay replayed, stored []loquat.Message) error {
	if replay.err != nil {
		return fmt.Errorf("%s: %w", what, replay.err)
	}
	a, b := AsText(replay.messages), AsText(stored)
	if a != b {
		return fmt.Errorf("%s: its events tell\n  %s\nand it is\n  %s", what, a, b)
	}
	return nil
}

// checkMetadata compares the stored metadata with the newest in the events.
func checkMetadata(events []loquat.Event, stored loquat.Object) error {
	for _, e := range slices.Backward(events) {
		if e.Type != loquat.Checkpoint || e.AgentID == "" {
			continue
		}
		if a, b := textOf(e.Metadata), textOf(stored); a != b && len(e.Metadata)+len(stored) > 0 {
			return fmt.Errorf("%s tells metadata\n  %s\nand stored is\n  %s", describe(e), a, b)
		}
		return nil
	}
	return nil
}

// AsText returns the JSON of messages.
func AsText(messages []loquat.Message) string {
	if len(messages) == 0 {
		return "[]"
	}
	return textOf(messages)
}

func textOf(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // it was decoded from JSON
	}
	return string(b)
}

// checkSessionOrder fails unless a checkpoint follows every change of a session and
// requests run one at a time.
func checkSessionOrder(events []loquat.Event) error {
	running := ""
	for i, e := range events {
		switch e.Type {
		case loquat.SessionCreated, loquat.MessageAppended, loquat.MessageModified, loquat.MessagesDeleted, loquat.Final, loquat.ToolResults:
			if i+1 == len(events) || !closesChange(e, events[i+1]) {
				return fmt.Errorf("%s is not followed by its checkpoint: %s", describe(e), outline(events[i:]))
			}
		case loquat.RequestStarted:
			if neverRan(events[i:]) {
				continue
			}
			if e.SteeredInto != running {
				return fmt.Errorf("%s, steered into %q, while %q runs", describe(e), e.SteeredInto, running)
			}
			if running == "" {
				running = e.RequestID
			}
		case loquat.RequestCompleted:
			if running == e.RequestID {
				running = ""
			}
		}
	}
	return nil
}

// closesChange reports whether next is the checkpoint of a change, or the next append of the same
// transaction: of a send with delete_from, of a response with several messages, or of a switch to an alternative.
func closesChange(change, next loquat.Event) bool {
	if (change.Type == loquat.MessagesDeleted || change.Type == loquat.MessageAppended) && next.Type == loquat.MessageAppended {
		return true
	}
	return next.Type == loquat.Checkpoint && next.RequestID == change.RequestID
}

// neverRan reports whether a request was cancelled in the transaction that created it.
func neverRan(events []loquat.Event) bool {
	return len(events) >= 3 && events[1].Type == loquat.RequestCancelled && events[2].Type == loquat.RequestCompleted &&
		events[1].RequestID == events[0].RequestID && events[2].RequestID == events[0].RequestID &&
		events[2].EventID == events[0].EventID+2
}

// rolledBack reports whether the end of a request deleted messages.
func rolledBack(events []loquat.Event, requestID string) bool {
	i := slices.IndexFunc(events, func(e loquat.Event) bool { return e.Type == loquat.RequestCancelled && e.RequestID == requestID })
	return i >= 2 && events[i-1].Type == loquat.Checkpoint && events[i-2].Type == loquat.MessagesDeleted
}

// stage is how far a request has come, according to its events.
type stage string

const (
	stageNew      stage = "not started"
	stageReady    stage = "before a phase"
	stageSpeaking stage = "streaming"
	stageSpoken   stage = "after assistant_message end"
	stageFinal    stage = "after final"
	stageKept     stage = "after the checkpoint of a final"
	stageTools    stage = "running tools"
	stageResults  stage = "after tool_results"
	stageEnding   stage = "after error or request_cancelled"
	stageEnded    stage = "ended"
)

// step is the change of stage that an event makes.
type step struct {
	from stage
	kind loquat.EventType
}

// steps is the specification's order of events within a request, including abnormal ends.
// Rules that depend on more than the stage are in requestOrder.admits.
var steps = map[step]stage{
	{stageNew, loquat.RequestStarted}:        stageReady,
	{stageReady, loquat.RetryScheduled}:      stageReady,
	{stageReady, loquat.AssistantMessage}:    stageSpeaking,
	{stageReady, loquat.Final}:               stageFinal,
	{stageReady, loquat.ErrorEvent}:          stageEnding,
	{stageReady, loquat.RequestCancelled}:    stageEnding,
	{stageReady, loquat.RequestCompleted}:    stageEnded,
	{stageSpeaking, loquat.Partial}:          stageSpeaking,
	{stageSpeaking, loquat.RetryScheduled}:   stageSpeaking,
	{stageSpeaking, loquat.AssistantMessage}: stageSpoken,
	{stageSpoken, loquat.Final}:              stageFinal,
	{stageSpoken, loquat.ErrorEvent}:         stageEnding,
	{stageSpoken, loquat.RequestCancelled}:   stageEnding,
	{stageFinal, loquat.Checkpoint}:          stageKept,
	{stageKept, loquat.ToolCalls}:            stageTools,
	{stageKept, loquat.RequestCompleted}:     stageEnded,
	{stageKept, loquat.ErrorEvent}:           stageEnding,
	{stageKept, loquat.RequestCancelled}:     stageEnding,
	{stageTools, loquat.ToolPartial}:         stageTools,
	{stageTools, loquat.ToolResults}:         stageResults,
	{stageTools, loquat.RequestCancelled}:    stageEnding,
	{stageResults, loquat.Checkpoint}:        stageReady,
	{stageEnding, loquat.RequestCompleted}:   stageEnded,
}

// requestOrder follows the events of one request.
type requestOrder struct {
	at         stage
	rolledBack bool // its end deletes its messages
	steered    bool // another request took in its message
	streams    bool
	incomplete string            // of the last final
	wantsTools bool              // the last final contains tool calls
	calls      []string          // ids, while tools run
	phases     map[string]string // of tool_partials, by call
}

// checkRequestOrder fails unless the events of an ended request have the order that the
// specification fixes. Superseded increments may be missing.
func checkRequestOrder(events []loquat.Event, rolledBack bool) error {
	o := requestOrder{at: stageNew, rolledBack: rolledBack}
	for _, e := range events {
		next, ok := steps[step{o.at, e.Type}]
		if !ok {
			return fmt.Errorf("%s comes %s: %s", describe(e), o.at, outline(events))
		}
		if fault := o.admits(e); fault != "" {
			return fmt.Errorf("%s: %s: %s", describe(e), fault, outline(events))
		}
		o.at = next
	}
	if o.at != stageEnded {
		return fmt.Errorf("request %s stays %s: %s", events[0].RequestID, o.at, outline(events))
	}
	return nil
}

// admits returns an error if an event may not come next, and records the event.
func (o *requestOrder) admits(e loquat.Event) (fault string) {
	switch e.Type {
	case loquat.RequestStarted:
		o.streams, o.steered = e.Stream != nil && *e.Stream, e.SteeredInto != ""
	case loquat.AssistantMessage:
		switch {
		case !o.streams:
			return "the request does not stream"
		case o.at == stageReady && e.Phase != loquat.PhaseStart, o.at == stageSpeaking && e.Phase != loquat.PhaseEnd:
			return "its phase is " + e.Phase
		}
	case loquat.Final:
		return o.admitsFinal(e)
	case loquat.ToolCalls:
		return o.admitsCalls(e)
	case loquat.ToolPartial:
		return o.admitsToolPartial(e)
	case loquat.ToolResults:
		return o.admitsResults(e)
	case loquat.ErrorEvent, loquat.RequestCancelled:
		if o.at == stageTools && !o.rolledBack {
			return "the calls before it have no results"
		}
		if o.at == stageKept && o.incomplete == "" {
			return "the text before it is not marked incomplete"
		}
	case loquat.RequestCompleted:
		if o.at == stageKept && (o.incomplete != "" || o.wantsTools) {
			return "the reply before it is not whole"
		}
		if o.steered != (o.at == stageReady) && o.at != stageEnding {
			return "a request completes with a reply, or without one by steering another"
		}
	}
	return ""
}

func (o *requestOrder) admitsFinal(e loquat.Event) string {
	if len(e.Messages) != 1 || e.Messages[0].Role != loquat.RoleAssistant {
		return "it holds not one assistant message"
	}
	m := e.Messages[0]
	o.incomplete, o.wantsTools = m.Metadata.String(loquat.MetaIncomplete), len(m.ToolCalls()) > 0
	if o.at == stageReady && o.streams {
		return "a streamed reply was not opened"
	}
	if o.incomplete != "" && o.wantsTools {
		return "unfinished calls were kept"
	}
	return ""
}

func (o *requestOrder) admitsCalls(e loquat.Event) string {
	if !o.wantsTools {
		return "the reply before it asks for no tools"
	}
	o.calls, o.phases = nil, map[string]string{}
	for _, c := range e.ToolCalls {
		o.calls = append(o.calls, c.ID)
	}
	return ""
}

func (o *requestOrder) admitsToolPartial(e loquat.Event) string {
	if !slices.Contains(o.calls, e.ToolCallID) {
		return "no such call runs"
	}
	if o.phases[e.ToolCallID] == loquat.PhaseEnd || o.phases[e.ToolCallID] != "" && e.Phase == loquat.PhaseStart {
		return "it is out of order"
	}
	o.phases[e.ToolCallID] = e.Phase
	return ""
}

func (o *requestOrder) admitsResults(e loquat.Event) string {
	var answered []string
	for _, m := range e.Messages {
		answered = append(answered, m.Metadata.String(loquat.MetaToolCallID))
	}
	if !slices.Equal(answered, o.calls) {
		return fmt.Sprintf("it answers %v, the calls are %v", answered, o.calls)
	}
	return ""
}

// checkStatus compares the end of a request in the log with its stored status.
func checkStatus(events []loquat.Event, q loquat.Request) error {
	want := loquat.StatusCompleted
	if q.SteeredInto != events[0].SteeredInto {
		return fmt.Errorf("%s: steered into %q, and stored is %q", describe(events[0]), events[0].SteeredInto, q.SteeredInto)
	}
	for _, e := range events {
		switch e.Type {
		case loquat.RequestCancelled:
			want = loquat.StatusCancelled
		case loquat.ErrorEvent:
			want = loquat.StatusFailed
		}
	}
	if q.Status != want || q.EndedAt == nil {
		return fmt.Errorf("request %s is stored as %q and its events tell %s: %s", events[0].RequestID, q.Status, want, outline(events))
	}
	return nil
}

func describe(e loquat.Event) string {
	text := fmt.Sprintf("event %s, %s", e.EventID, e.Type)
	if e.Phase != "" {
		text += " " + e.Phase
	}
	if e.RequestID != "" {
		return text + " of request " + e.RequestID
	}
	return text + " of session " + e.SessionID
}

// outline lists the types of events in order, at most the first few.
func outline(events []loquat.Event) string {
	const most = 40
	var parts []string
	for _, e := range events[:min(most, len(events))] {
		parts = append(parts, strings.TrimSpace(string(e.Type)+" "+e.Phase))
	}
	if len(events) > most {
		parts = append(parts, "…")
	}
	return strings.Join(parts, ", ")
}
