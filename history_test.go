package loquat

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// history generates random histories of a session, as the log may contain them. It counts
// the messages, so that indices are valid.
type history struct {
	t        *rapid.T
	session  string
	events   []Event
	messages int
	requests int
	ids      int
}

var testTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func (h *history) emit(e Event) {
	e.SessionID = h.session
	h.events = append(h.events, e)
}

func (h *history) flip(label string) bool { return rapid.Bool().Draw(h.t, label) }

func (h *history) newMessage(role string, meta Object) Message {
	h.ids++
	return Message{ID: fmt.Sprintf("%s-m%d", h.session, h.ids), Role: role, Content: h.text(), Metadata: meta, CreatedAt: testTime}
}

func (h *history) text() string {
	return rapid.SampledFrom([]string{"", "a", "Hello ", "\"\\\n", "…\u2028", "é", " "}).Draw(h.t, "text")
}

func (h *history) checkpoint(request string) {
	h.emit(Event{Type: Checkpoint, RequestID: request, Timestamp: &testTime})
}

func (h *history) append() {
	m := h.newMessage(RoleUser, nil)
	h.emit(Event{Type: MessageAppended, Role: m.Role, Content: &m.Content, Message: m.AsDelta()})
	h.messages++
	h.checkpoint("")
}

func (h *history) modify() {
	if h.messages == 0 {
		return
	}
	i := rapid.IntRange(0, h.messages-1).Draw(h.t, "modified")
	text := h.text()
	e := Event{Type: MessageModified, Index: &i, Content: &text}
	if h.flip("whole") {
		e.Message = h.newMessage(RoleSystem, nil).AsDelta()
		e.Message.Content = text
	}
	h.emit(e)
	h.checkpoint("")
}

func (h *history) delete() {
	if h.messages == 0 {
		return
	}
	var indices []int
	for i := range h.messages {
		if h.flip("deleted") {
			indices = append(indices, i)
		}
	}
	if len(indices) == 0 {
		return
	}
	h.emit(Event{Type: MessagesDeleted, Indices: indices})
	h.messages -= len(indices)
	h.checkpoint("")
}

func (h *history) changeAgent() {
	e := Event{Type: Checkpoint, Timestamp: &testTime, AgentID: rapid.SampledFrom([]string{"default", "other"}).Draw(h.t, "agent")}
	if h.flip("metadata") {
		e.Metadata = Object{}.Set(MetaTitle, h.text())
	}
	h.emit(e)
}

// send emits the events of one request, with a random end.
func (h *history) send() {
	h.append()
	h.requests++
	id := fmt.Sprintf("%s-r%d", h.session, h.requests)
	yes := true
	h.emit(Event{Type: RequestStarted, RequestID: id, Stream: &yes})
	for round := range rapid.IntRange(0, 2).Draw(h.t, "rounds") + 1 {
		end := rapid.SampledFrom([]string{"fine", "fine", "fine", "cancelled", "error"}).Draw(h.t, "end")
		h.phase(id, end)
		if end != "fine" {
			h.emit(map[string]Event{
				"cancelled": {Type: RequestCancelled, RequestID: id},
				"error":     {Type: ErrorEvent, RequestID: id, Detail: "the backend is away"},
			}[end])
			break
		}
		if round == 2 || !h.flip("tools") {
			break
		}
		h.tools(id, round)
	}
	h.emit(Event{Type: RequestCompleted, RequestID: id})
}

func (h *history) phase(request, end string) {
	h.emit(Event{Type: AssistantMessage, RequestID: request, Phase: PhaseStart})
	for range rapid.IntRange(0, 6).Draw(h.t, "chunks") {
		switch rapid.IntRange(0, 9).Draw(h.t, "between") {
		case 0:
			h.emit(Event{Type: RetryScheduled, RequestID: request, Attempt: 1, Cause: CauseStream})
			h.partial(request, true)
		case 1:
			h.changeAgent() // agent and metadata may change while a request runs
		default:
			h.partial(request, false)
		}
	}
	h.emit(Event{Type: AssistantMessage, RequestID: request, Phase: PhaseEnd})
	if end != "fine" && h.flip("nothing visible") {
		return
	}
	h.emit(Event{Type: Final, RequestID: request, Messages: []Message{h.newMessage(RoleAssistant, nil)}})
	h.messages++
	h.checkpoint(request)
}

func (h *history) partial(request string, restarted bool) {
	d := Delta{Role: RoleAssistant, Content: h.text(), Metadata: drawMetadata(h.t)}
	if restarted {
		d.Metadata = d.Metadata.Set(MetaStreamRestarted, true)
	}
	h.emit(Event{Type: Partial, RequestID: request, Message: &d})
}

func drawMetadata(t *rapid.T) Object {
	meta := Object{}
	values := map[string][]string{
		MetaReasoning:        {`"so"`, `"\n\u00e9"`, `""`},
		MetaReasoningContent: {`"hm "`, `7`, `null`}, // a faulty backend may change the kind of a value
		MetaReasoningDetails: {`[]`, `[{"text":"a"}]`, `[1,2]`, `[ ]`},
		"logprob":            {`1`, `"x"`, `{"a":[1]}`},
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if rapid.IntRange(0, 3).Draw(t, key) == 0 {
			meta[key] = json.RawMessage(rapid.SampledFrom(values[key]).Draw(t, key+" value"))
		}
	}
	if len(meta) == 0 {
		return nil
	}
	return meta
}

func (h *history) tools(request string, round int) {
	ids := []string{fmt.Sprintf("c%d-1", round), fmt.Sprintf("c%d-2", round)}[:rapid.IntRange(1, 2).Draw(h.t, "calls")]
	var calls []ToolCall
	var results []Message
	for _, id := range ids {
		calls = append(calls, ToolCall{ID: id, Name: "clock", Arguments: "{}"})
		results = append(results, h.newMessage(RoleTool, Object{}.Set(MetaToolCallID, id)))
	}
	h.emit(Event{Type: ToolCalls, RequestID: request, ToolCalls: calls})
	for i, id := range ids {
		part := h.text()
		h.emit(Event{Type: ToolPartial, RequestID: request, ToolCallID: id, Phase: PhaseStart, Payload: &Payload{Part: new(string)}})
		h.emit(Event{Type: ToolPartial, RequestID: request, ToolCallID: id, Phase: PhaseStream, Payload: &Payload{Part: &part}})
		h.emit(Event{Type: ToolPartial, RequestID: request, ToolCallID: id, Phase: PhaseEnd, Payload: &Payload{Result: &results[i]}})
	}
	h.emit(Event{Type: ToolResults, RequestID: request, Messages: results})
	h.messages += len(results)
	h.checkpoint(request)
}

func drawHistory(t *rapid.T, session string) []Event {
	h := &history{t: t, session: session}
	h.append()
	for range rapid.IntRange(1, 5).Draw(t, "steps") {
		switch rapid.IntRange(0, 6).Draw(t, "step") {
		case 0:
			h.append()
		case 1:
			h.modify()
		case 2:
			h.delete()
		case 3:
			h.changeAgent()
		default:
			h.send()
		}
	}
	if rapid.IntRange(0, 9).Draw(t, "gone") == 0 {
		h.emit(Event{Type: SessionDeleted})
	}
	return h.events
}

// drawLog interleaves histories of several sessions into one log with ids.
func drawLog(t *rapid.T, sessions int) []Record {
	var histories [][]Event
	for i := range sessions {
		histories = append(histories, drawHistory(t, fmt.Sprintf("s%d", i)))
	}
	var log []Record
	for id := EventID(101); ; id++ {
		histories = slices.DeleteFunc(histories, func(h []Event) bool { return len(h) == 0 })
		if len(histories) == 0 {
			return log
		}
		next := rapid.IntRange(0, len(histories)-1).Draw(t, "next session")
		log = append(log, record(t, id, histories[next][0]))
		histories[next] = histories[next][1:]
	}
}

func record(t interface{ Fatal(...any) }, id EventID, e Event) Record {
	rec, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	rec.ID = id
	return rec
}

// records returns the records of events of session s, with ids from 1 on.
func records(t *testing.T, events ...Event) []Record {
	t.Helper()
	var out []Record
	for i, e := range events {
		if e.SessionID == "" {
			e.SessionID = "s"
		}
		out = append(out, record(t, EventID(i+1), e))
	}
	return out
}

// drawWindows splits a log at random places.
func drawWindows(t *rapid.T, log []Record) [][]Record {
	var out [][]Record
	for len(log) > 0 {
		n := rapid.IntRange(1, len(log)).Draw(t, "window")
		out = append(out, log[:n])
		log = log[n:]
	}
	return out
}
