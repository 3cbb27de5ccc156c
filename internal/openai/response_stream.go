package openai

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"unicode/utf8"

	"loquat"
	"loquat/internal/chat"
	"loquat/internal/httpapi/route"
	"loquat/internal/sse"
)

// The sequence numbers of a stream can be computed from the messages alone, so they are the same for a
// client that resumes, also after a restart of the server, and however the log has merged increments.
// Each item of the output has a range of its own. Within it, a delta has the number of bytes of the
// text up to its end. So numbers rise, and are not consecutive.
const (
	sequenceCreated    = 0
	sequenceInProgress = 1
	sequenceItems      = 2       // of the first item
	sequenceRange      = 1 << 32 // of one item
	maxSequence        = 1<<53 - 1

	// The places in the range of an item; the last three count from its end.
	placeAdded    = 0
	placePart     = 1
	placeTextDone = sequenceRange - 3
	placePartDone = sequenceRange - 2
	placeItemDone = sequenceRange - 1
)

// responseStream turns the events of a request, or its messages, into the events of a response. It
// writes those after a sequence number.
type responseStream struct {
	response
	out   eventWriter
	after int64
	last  int64 // the number of the last event that was written

	items int // that are complete
	phase int // number of the assistant message that is open

	open      *outputItem // the item of the phase that is open, nil for none
	sent      int         // bytes of its text that deltas have covered
	again     bool        // the backend's stream began again in this phase
	void      bool        // it did so after deltas of the open item
	text      strings.Builder
	reasoned  bool   // the reasoning of the phase is complete
	reasoning string // the key of the reasoning in increments
}

// eventWriter sends the events of responses to a client.
type eventWriter interface {
	event(kind string, body []byte) error
	idle() error // keeps a quiet connection open
	end()        // is called after the last event
}

// sseWriter sends events as Server-Sent Events.
type sseWriter struct {
	w     http.ResponseWriter
	flush func() error
}

func (s *sseWriter) event(kind string, body []byte) error {
	if _, err := s.w.Write(sse.Frame{Name: kind, Data: body}.Append(nil)); err != nil {
		return err
	}
	return s.flush()
}

// idle writes a comment, so that no proxy closes a quiet connection.
func (s *sseWriter) idle() error {
	if _, err := s.w.Write([]byte(": \n\n")); err != nil {
		return err
	}
	return s.flush()
}

func (s *sseWriter) end() {
	_, _ = s.w.Write([]byte("data: [DONE]\n\n")) // an error means that the client disconnected
}

// stream answers with the events of a response. last is called before the last event is written.
func (a *API) stream(x *route.Exchange, requestID string, after int64, last func()) error {
	e, err := a.chat.Requests.Exchange(x.R.Context(), requestID)
	if err != nil {
		return err
	}
	h := x.W.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // proxies must not gather the events
	x.W.WriteHeader(http.StatusOK)
	a.streamTo(x.R.Context(), &sseWriter{x.W, http.NewResponseController(x.W).Flush}, e, after, last)
	return nil
}

// streamTo sends the events of a response after a sequence number.
func (a *API) streamTo(ctx context.Context, out eventWriter, e chat.Exchange, after int64, last func()) {
	s := &responseStream{response: newResponse(e), out: out, after: after}
	err := s.begin()
	if err == nil && !e.Status.Ended() {
		if err = a.follow(ctx, e.RequestID, s.take, out.idle); err == nil {
			s.Exchange, err = a.chat.Requests.Exchange(ctx, e.RequestID)
		}
	} else if err == nil {
		err = s.replay()
	}
	if err != nil {
		s.fail(ctx.Err(), err)
		return
	}
	last()
	s.end()
}

// emit writes an event unless the client has it.
func (s *responseStream) emit(sequence int64, kind string, fields map[string]any) error {
	if sequence <= s.after {
		return nil
	}
	return s.write(sequence, kind, fields)
}

// write writes an event.
func (s *responseStream) write(sequence int64, kind string, fields map[string]any) error {
	s.last = sequence
	fields["type"], fields["sequence_number"] = kind, sequence
	body, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	return s.out.event(kind, body)
}

// fail ends a stream that cannot go on. SDKs raise the event as an error. It has the number of the event
// before it, so that a program that resumes after it gets all the others.
func (s *responseStream) fail(gone, err error) {
	if gone != nil {
		return // the client disconnected
	}
	e := errorOf(route.ProblemOf(err))
	_ = s.write(max(s.after, s.last), "error", map[string]any{
		"error": e, "message": e.Message, "code": e.Code, "param": e.Param,
	})
}

func (s *responseStream) begin() error {
	begun := s.begun()
	if err := s.emit(sequenceCreated, "response.created", map[string]any{"response": begun}); err != nil {
		return err
	}
	return s.emit(sequenceInProgress, "response.in_progress", map[string]any{"response": begun})
}

// replay writes the events of the messages that are stored.
func (s *responseStream) replay() error {
	for _, m := range s.replies() {
		if err := s.final(m); err != nil {
			return err
		}
	}
	return nil
}

// end writes the last event.
func (s *responseStream) end() {
	if s.open != nil && s.closeAs(statusIncomplete) != nil { // no message was stored
		return
	}
	kind := "response.completed"
	switch status, _ := s.status(); status {
	case statusFailed:
		kind = "response.failed"
	case statusIncomplete, statusCancelled:
		kind = "response.incomplete"
	}
	last := s.number(0)
	if s.after > last { // of an item that a restart of the backend's stream made void
		last = s.after + 1
	}
	if s.emit(last, kind, map[string]any{"response": s.resource()}) == nil {
		s.out.end()
	}
}

// number returns the sequence number of a place of the next item.
func (s *responseStream) number(place int64) int64 {
	return sequenceItems + int64(s.items)*sequenceRange + place
}

// take takes in an event of the request.
func (s *responseStream) take(e loquat.Event) error {
	switch e.Type {
	case loquat.Partial:
		if e.Message != nil {
			return s.partial(*e.Message)
		}
	case loquat.Final:
		for _, m := range e.Messages {
			if err := s.final(m); err != nil {
				return err
			}
		}
	}
	return nil
}

// partial takes in an increment.
func (s *responseStream) partial(d loquat.Delta) error {
	if d.Metadata.Bool(loquat.MetaStreamRestarted) {
		s.again = true
		s.void = s.void || s.open != nil && (s.sent > 0 || s.after > s.number(placePart))
		s.text.Reset()
	}
	text, key := reasoningOf(d.Metadata)
	if s.reasoning == "" {
		s.reasoning = key
	}
	if text = s.beforeText(text, d.Metadata); text != "" && key == s.reasoning && !s.reasoned {
		if err := s.add(itemReasoning, text); err != nil {
			return err
		}
	}
	if d.Content == "" {
		return nil
	}
	if s.open != nil && s.open.kind == itemReasoning {
		if err := s.closeAs(statusCompleted); err != nil {
			return err
		}
	}
	return s.add(itemMessage, d.Content)
}

// beforeText returns the part of an increment of reasoning that came before the text. final has the
// rest: more text may come, and its item has to end first.
func (s *responseStream) beforeText(text string, metadata loquat.Object) string {
	if len(metadata[loquat.MetaReasoningBefore]) == 0 {
		return text
	}
	known := ""
	if s.open != nil && s.open.kind == itemReasoning {
		known = s.text.String()
	}
	before, _ := splitReasoning(known+text, metadata)
	return before[min(len(known), len(before)):]
}

// add adds a text to the open item, which it begins if there is none.
func (s *responseStream) add(kind, text string) error {
	if s.open == nil {
		if err := s.beginItem(outputItem{kind: kind, id: itemID(kind, chat.ReplyID(s.RequestID, s.phase))}); err != nil {
			return err
		}
	}
	s.text.WriteString(text)
	if s.void {
		return nil // the deltas of the item are of another text: only its end has the new one
	}
	s.reasoned = s.reasoned || kind == itemMessage
	return s.delta(text)
}

// beginItem begins an item.
func (s *responseStream) beginItem(item outputItem) error {
	item.status, item.text = statusInProgress, "" // programs append the deltas to the empty text
	s.open, s.sent = &item, 0
	s.void = s.again && s.after > s.number(placePart) // the client may have deltas of another text
	s.text.Reset()
	if err := s.emit(s.number(placeAdded), "response.output_item.added", map[string]any{"output_index": s.items, "item": item.body()}); err != nil {
		return err
	}
	if item.kind == itemCall {
		return nil
	}
	return s.emitPart(placePart, "response.content_part.added", map[string]any{"part": item.part()})
}

// emitPart writes an event about the open item.
func (s *responseStream) emitPart(place int64, kind string, fields map[string]any) error {
	fields["item_id"], fields["output_index"] = s.open.id, s.items
	if s.open.kind != itemCall {
		fields["content_index"] = 0
	}
	return s.emit(s.number(place), kind, fields)
}

// eventNames returns the names of the events with the text of an item, and the field of the last one.
func (o outputItem) eventNames() (delta, done, field string) {
	switch {
	case o.kind == itemReasoning:
		return "response.reasoning.delta", "response.reasoning.done", "text"
	case o.kind == itemCall:
		return "response.function_call_arguments.delta", "response.function_call_arguments.done", "arguments"
	case o.refusal:
		return "response.refusal.delta", "response.refusal.done", "refusal"
	}
	return "response.output_text.delta", "response.output_text.done", "text"
}

// delta writes the part of a text that the client does not have, and counts all of it.
func (s *responseStream) delta(text string) error {
	if text == "" {
		return nil
	}
	start := s.sent
	s.sent += len(text)
	if has := s.after - s.number(placePart) - int64(start); has > 0 { // bytes of the text
		if has >= int64(len(text)) {
			return nil
		}
		for has > 0 && !utf8.RuneStart(text[has]) { // the number is not one that a client got
			has--
		}
		text = text[has:]
	}
	name, _, _ := s.open.eventNames()
	fields := map[string]any{"delta": text}
	if s.open.kind == itemMessage && !s.open.refusal {
		fields["logprobs"] = []any{}
	}
	return s.emitPart(placePart+int64(s.sent), name, fields)
}

// closeAs ends the open item with the text that has come.
func (s *responseStream) closeAs(status string) error {
	s.open.text, s.open.status = s.text.String(), status
	return s.close()
}

// close ends the open item, which has its whole text and its status.
func (s *responseStream) close() error {
	item := s.open
	if item.status == statusInProgress {
		item.status = statusCompleted
	}
	_, done, field := item.eventNames()
	fields := map[string]any{field: item.text}
	switch {
	case item.kind == itemCall:
		fields["name"] = item.function.Name
	case item.kind == itemMessage && !item.refusal:
		fields["logprobs"] = []any{}
	}
	if err := s.emitPart(placeTextDone, done, fields); err != nil {
		return err
	}
	if item.kind != itemCall {
		if err := s.emitPart(placePartDone, "response.content_part.done", map[string]any{"part": item.part()}); err != nil {
			return err
		}
	}
	err := s.emit(s.number(placeItemDone), "response.output_item.done", map[string]any{"output_index": s.items, "item": item.body()})
	s.reasoned = s.reasoned || item.kind == itemReasoning
	s.open, s.void = nil, false
	s.items++
	return err
}

// final completes the items of a phase.
func (s *responseStream) final(m loquat.Message) error {
	for _, item := range itemsOf(m, s.functions) {
		if item.kind == itemReasoning && !item.late && s.reasoned {
			continue
		}
		if s.open != nil && s.open.kind != item.kind { // the backend's stream began again without it
			if err := s.closeAs(statusIncomplete); err != nil {
				return err
			}
		}
		if s.open == nil {
			if err := s.beginItem(item); err != nil {
				return err
			}
		}
		s.open.text, s.open.status = item.text, item.status
		// The log may have merged the increment that began again with the message.
		if rest, same := strings.CutPrefix(item.text, s.text.String()); same && !s.void {
			if err := s.delta(rest); err != nil {
				return err
			}
		}
		if err := s.close(); err != nil {
			return err
		}
	}
	if s.open != nil {
		if err := s.closeAs(statusIncomplete); err != nil {
			return err
		}
	}
	s.phase++
	s.again, s.reasoned, s.reasoning = false, false, ""
	return nil
}
