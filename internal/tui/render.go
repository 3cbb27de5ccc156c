// Package tui shows events to a person at a terminal, or writes them to a pipe.
//
// It shows no text twice, whether a reply arrives in increments, as a whole, or after a
// reconnect. On a terminal, it removes control sequences from the texts of events. In a
// pipe, one writer gets the final texts of replies and nothing else, and the other writer
// gets everything else.
//
// The package does not keep the messages of sessions.
package tui

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"loquat"
	"loquat/internal/readable"
)

// Renderer shows the events of requests. It is not safe for concurrent use.
type Renderer struct {
	text *Screen // replies
	side *Screen // everything else; the same screen when both are one terminal

	requests map[string]*request
}

// request is what was shown of a running request.
type request struct {
	text, reasoning shownText
	streamed        bool // an increment of the phase was shown
	calls           map[string]*call
	summary         string // tokens and model of the last reply
	end             string // cancelled or failed; "": completed
}

// shownText is the part of a text that was already shown in increments.
type shownText struct{ strings.Builder }

// rest returns the part of whole that was not shown yet. ok is false if the shown text is
// not a part of whole.
func (s *shownText) rest(whole string) (rest string, ok bool) {
	if rest, ok := strings.CutPrefix(whole, s.String()); ok {
		return rest, true
	}
	// A reader that connected during the reply has seen only the end.
	return "", strings.HasSuffix(whole, s.String())
}

// call is a tool call without a result yet.
type call struct {
	name   string
	output shownText
	line   string // the last, incomplete line of the output
}

// NewRenderer returns a Renderer that shows replies on text and everything else on side.
func NewRenderer(text, side *Screen) *Renderer {
	return &Renderer{text: text, side: side, requests: map[string]*request{}}
}

// Err returns the first error of a write.
func (r *Renderer) Err() error { return cmp.Or(r.text.Err(), r.side.Err()) }

// Show shows one event. It skips types that mean nothing to a reader.
func (r *Renderer) Show(e loquat.Event) {
	switch e.Type {
	case loquat.RequestStarted:
		if e.SteeredInto != "" {
			r.side.line(dim, "request "+e.RequestID+" is answered by request "+e.SteeredInto)
		} else {
			r.side.line(dim, "request "+e.RequestID+" started")
		}
	case loquat.RequestCancelled:
		r.request(e.RequestID).end = "cancelled" // shown with request_completed
	case loquat.RequestCompleted:
		r.completed(e)
	case loquat.ErrorEvent:
		r.Failed(e.RequestID)
		r.side.line(red, "error: "+e.Detail)
	case loquat.RetryScheduled:
		r.side.line(yellow, retryNotice(e))
	case loquat.Partial:
		r.partial(e)
	case loquat.Final, loquat.ToolResults:
		for _, m := range e.Messages {
			r.message(e.RequestID, m)
		}
	case loquat.ToolCalls:
		r.toolCalls(e)
	case loquat.ToolPartial:
		r.toolPartial(e)
	}
}

func (r *Renderer) request(id string) *request {
	q, ok := r.requests[id]
	if !ok {
		q = &request{calls: map[string]*call{}}
		r.requests[id] = q
	}
	return q
}

// Failed records that a request has failed. The caller shows the error.
func (r *Renderer) Failed(requestID string) { r.request(requestID).end = "failed" }

func (r *Renderer) completed(e loquat.Event) {
	q := r.request(e.RequestID)
	delete(r.requests, e.RequestID)
	st, note := dim, "request "+e.RequestID+" "+cmp.Or(q.end, "completed")
	if q.end != "" {
		st = yellow
	}
	if q.summary != "" {
		note += ": " + q.summary
	}
	r.text.breakLine()
	r.side.line(st, note)
}

// partial shows an increment if the screen is a terminal.
func (r *Renderer) partial(e loquat.Event) {
	if e.Message == nil {
		return
	}
	q := r.request(e.RequestID)
	if e.Message.Metadata.Bool(loquat.MetaStreamRestarted) {
		r.restart(q)
	}
	if text := reasoning(e.Message.Metadata); text != "" && r.side.Terminal {
		r.increment(q, r.side, dim, &q.reasoning, text)
	}
	if text := e.Message.Content; text != "" && r.text.Terminal {
		if q.reasoning.Len() > 0 && q.text.Len() == 0 {
			r.side.breakLine()
		}
		r.increment(q, r.text, plain, &q.text, text)
	}
}

func (r *Renderer) increment(q *request, screen *Screen, st style, shown *shownText, text string) {
	screen.print(st, text)
	shown.WriteString(text)
	q.streamed = true
}

// restart shows that the increments so far do not count any more.
func (r *Renderer) restart(q *request) {
	if q.streamed {
		r.side.line(yellow, "the connection to the backend broke; the reply begins again and replaces the text above")
	}
	q.endPhase()
}

func (q *request) endPhase() {
	q.text.Reset()
	q.reasoning.Reset()
	q.streamed = false
}

func (r *Renderer) message(requestID string, m loquat.Message) {
	switch m.Role {
	case loquat.RoleAssistant:
		r.reply(r.request(requestID), m)
	case loquat.RoleTool:
		r.toolResult(r.request(requestID), m)
	default:
		if m.Content != "" {
			r.side.line(dim, m.Role+" message:")
			r.side.block(dim, m.Content)
		}
	}
}

// reply shows the part of an assistant message that was not shown yet.
func (r *Renderer) reply(q *request, m loquat.Message) {
	r.finalReasoning(q, readable.Reasoning(m.Metadata))
	rest, ok := q.text.rest(m.Content)
	if !ok {
		r.side.line(yellow, "the reply was stored as follows:")
		rest = m.Content
	}
	if rest != "" && q.text.Len() == 0 {
		r.side.breakLine()
	}
	r.text.print(plain, rest)
	r.text.breakLine()
	for _, notice := range readable.EndingNotices(m) {
		r.side.line(yellow, notice)
	}
	q.endPhase()
	q.summary = summary(m.Metadata)
}

func (r *Renderer) finalReasoning(q *request, whole string) {
	rest, ok := q.reasoning.rest(whole)
	switch {
	case rest == "" || !ok:
		return // reasoning that differs from the shown text is not repeated
	case q.reasoning.Len() > 0 && !strings.HasPrefix(rest, readable.Between):
		r.side.print(dim, rest)
		r.side.breakLine()
	default:
		rest = strings.TrimPrefix(rest, readable.Between)
		r.text.breakLine()
		r.side.line(dim, "reasoning:")
		r.side.block(dim, rest)
	}
}

func (r *Renderer) toolCalls(e loquat.Event) {
	q := r.request(e.RequestID)
	for _, c := range e.ToolCalls {
		q.calls[c.ID] = &call{name: c.Name}
		r.side.line(cyan, r.side.clipToWidth("tool call: "+c.Name+" "+c.Arguments))
	}
}

// toolPartial shows a tool's output if the screen is a terminal. It shows whole lines only,
// because several tools may write at the same time.
func (r *Renderer) toolPartial(e loquat.Event) {
	if !r.side.Terminal || e.Payload == nil || e.Payload.Part == nil {
		return
	}
	q := r.request(e.RequestID)
	c, ok := q.calls[e.ToolCallID]
	if !ok {
		c = &call{name: e.ToolCallID}
		q.calls[e.ToolCallID] = c
	}
	c.output.WriteString(*e.Payload.Part)
	lines := strings.Split(c.line+*e.Payload.Part, "\n")
	for _, l := range lines[:len(lines)-1] {
		r.side.line(dim, "  "+c.name+" | "+l)
	}
	c.line = lines[len(lines)-1]
}

// toolResult shows a tool message, unless its output has been shown.
func (r *Renderer) toolResult(q *request, m loquat.Message) {
	id := m.Metadata.String(loquat.MetaToolCallID)
	c := q.calls[id]
	if c == nil {
		c = &call{}
	}
	delete(q.calls, id)
	name := cmp.Or(m.Metadata.String(loquat.MetaToolName), c.name, id)
	if c.line != "" {
		r.side.line(dim, "  "+name+" | "+c.line)
	}
	head, st := "tool result: ", cyan
	if m.Metadata.Bool(loquat.MetaIsError) {
		head, st = "tool error: ", red
	}
	content := readable.Displayed(m)
	switch {
	case content == "":
		r.side.line(st, head+name+", no output")
	case c.output.Len() > 0 && strings.TrimSpace(content) == strings.TrimSpace(c.output.String()):
		r.side.line(st, head+name+", as shown")
	default:
		r.side.line(st, head+name)
		r.side.block(dim, content)
	}
}

// reasoning returns the reasoning text of an increment. If the increment has both kinds, only
// one is shown until the reply is complete, because two texts that grow in turn are
// unreadable.
func reasoning(meta loquat.Object) string {
	return cmp.Or(meta.String(loquat.MetaReasoningContent), meta.String(loquat.MetaReasoning))
}

// summary returns the tokens and the model of a reply, if the backend reported them.
func summary(meta loquat.Object) string {
	var parts []string
	if n := meta.String("usage_total_tokens_formatted"); n != "" {
		parts = append(parts, n+" tokens")
	}
	if model := meta.String(loquat.MetaModel); model != "" {
		parts = append(parts, model)
	}
	return strings.Join(parts, ", ")
}

func retryNotice(e loquat.Event) string {
	cause := e.Cause
	if e.Status != 0 {
		cause = fmt.Sprintf("%s, HTTP status %d", cause, e.Status)
	}
	when := "now"
	if e.DelaySeconds != nil && *e.DelaySeconds > 0 {
		when = "in " + time.Duration(*e.DelaySeconds*float64(time.Second)).Round(time.Millisecond).String()
	}
	return fmt.Sprintf("the backend failed (%s); attempt %d follows %s", strings.ReplaceAll(cause, "_", " "), e.Attempt+1, when)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
