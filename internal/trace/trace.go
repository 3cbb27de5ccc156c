// Package trace describes what a request does as OpenTelemetry spans.
//
// A request is the root of a tree, or a child of the span that its client has named in the header traceparent. Below it
// are the phases, below these the calls of the backend; tools and the commits that the request waits for are
// children of the request. A context carries the span, so code that makes spans knows no tracer: below a request that is
// not traced, all functions do nothing. Texts of users, models and tools are in spans only if the operator asks for them.
//
// Package otlp sends the spans. This package reads no configuration.
package trace

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	api "go.opentelemetry.io/otel/trace"

	"loquat"
)

// scope is the name of what makes the spans.
const scope = "loquat"

// maxContent bounds a text in a span, and the messages of a span together, in characters.
const maxContent = 32 << 10

// Tracer starts the spans of requests. A nil Tracer traces nothing.
type Tracer struct {
	tracer  api.Tracer
	content bool
}

// New returns a Tracer. content lets spans have the texts of messages, arguments and results.
func New(p api.TracerProvider, content bool) *Tracer {
	return &Tracer{tracer: p.Tracer(scope), content: content}
}

// Parent is the span of a client, as the headers traceparent and tracestate of W3C Trace Context name it. The zero
// Parent is none.
type Parent struct {
	Traceparent string `json:"traceparent,omitempty"`
	Tracestate  string `json:"tracestate,omitempty"`
}

// ParentOf returns the span that the headers of a call name. Headers that are not valid name none.
func ParentOf(h http.Header) Parent {
	if h.Get("Traceparent") == "" {
		return Parent{}
	}
	ctx := w3c.Extract(context.Background(), propagation.HeaderCarrier(h))
	span := api.SpanContextFromContext(ctx)
	if !span.IsValid() {
		return Parent{}
	}
	carrier := propagation.MapCarrier{}
	w3c.Inject(ctx, carrier)
	return Parent{carrier["traceparent"], carrier["tracestate"]}
}

var w3c propagation.TraceContext

// Inject adds the headers that name the span of a context.
func Inject(ctx context.Context, h http.Header) { w3c.Inject(ctx, propagation.HeaderCarrier(h)) }

// Names returns the same as Inject in a map, for what has no headers. It is empty without a span.
func Names(ctx context.Context) map[string]string {
	carrier := propagation.MapCarrier{}
	w3c.Inject(ctx, carrier)
	return carrier
}

// Span is something that a request does. The zero Span is not traced.
type Span struct {
	span    api.Span
	content bool
}

type contentKey struct{}

// start starts a span below that of a context, if there is one.
func start(ctx context.Context, name string, kind api.SpanKind, attrs ...attribute.KeyValue) (context.Context, Span) {
	parent := api.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, Span{}
	}
	ctx, span := parent.TracerProvider().Tracer(scope).Start(ctx, name, api.WithSpanKind(kind), api.WithAttributes(attrs...))
	content, _ := ctx.Value(contentKey{}).(bool)
	return ctx, Span{span, content}
}

// root starts a span below that of a client.
func (t *Tracer) root(ctx context.Context, parent Parent, name string, kind api.SpanKind, attrs ...attribute.KeyValue) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx = w3c.Extract(ctx, propagation.MapCarrier{"traceparent": parent.Traceparent, "tracestate": parent.Tracestate})
	ctx, span := t.tracer.Start(context.WithValue(ctx, contentKey{}, t.content), name, api.WithSpanKind(kind), api.WithAttributes(attrs...))
	return ctx, Span{span, t.content}
}

// Request is a request of a session.
type Request struct {
	Parent                        Parent
	AgentID, SessionID, RequestID string
}

// Request starts the span of a request.
func (t *Tracer) Request(ctx context.Context, r Request) (context.Context, Span) {
	attrs := []attribute.KeyValue{keyOperation.String(opRequest), keyAgent.String(r.AgentID), keyConversation.String(r.SessionID), keyRequest.String(r.RequestID)}
	return t.root(ctx, r.Parent, opRequest+" "+r.AgentID, api.SpanKindInternal, attrs...)
}

// Relay starts the span of a relayed request.
func (t *Tracer) Relay(ctx context.Context, parent Parent, provider, model string, stream bool) (context.Context, Span) {
	return t.root(ctx, parent, opModel+" "+model, api.SpanKindServer, modelAttributes(provider, model, stream)...)
}

func modelAttributes(provider, model string, stream bool) []attribute.KeyValue {
	return []attribute.KeyValue{keyOperation.String(opModel), keyProvider.String(provider), keyModel.String(model), keyStream.Bool(stream)}
}

// Phase starts the span of a phase: one answer of a model.
func Phase(ctx context.Context, provider, model string, stream bool) (context.Context, Span) {
	return start(ctx, opModel+" "+model, api.SpanKindInternal, modelAttributes(provider, model, stream)...)
}

// Attempt starts the span of a call of the backend, the first of which is number 1.
func Attempt(ctx context.Context, base *url.URL, number int) (context.Context, Span) {
	attrs := []attribute.KeyValue{keyMethod.String(http.MethodPost), keyServer.String(base.Hostname())}
	if port, err := strconv.Atoi(base.Port()); err == nil {
		attrs = append(attrs, keyPort.Int(port))
	}
	if number > 1 {
		attrs = append(attrs, keyResend.Int(number-1))
	}
	return start(ctx, spanAttempt, api.SpanKindClient, attrs...)
}

// Tool starts the span of a call of a tool.
func Tool(ctx context.Context, call loquat.ToolCall) (context.Context, Span) {
	ctx, s := start(ctx, opTool+" "+loquat.Clip(call.Name, loquat.Excerpt), api.SpanKindInternal, keyOperation.String(opTool), keyTool.String(loquat.Clip(call.Name, loquat.Excerpt)),
		keyToolCall.String(loquat.Clip(call.ID, loquat.Excerpt)), keyToolType.String(toolFunction))
	s.setText(keyArguments, call.Arguments)
	return ctx, s
}

// Commit starts the span of a transaction.
func Commit(ctx context.Context) Span {
	_, s := start(ctx, spanCommit, api.SpanKindInternal)
	return s
}

// Retry notes the delay before the next call of the backend, or a recovery.
func Retry(ctx context.Context, r loquat.Retry) {
	if span := api.SpanFromContext(ctx); span.IsRecording() {
		attrs := []attribute.KeyValue{keyCause.String(r.Cause), keyAttempt.Int(r.Attempt), keyDelay.Float64(r.Delay.Seconds())}
		if r.Status != 0 {
			attrs = append(attrs, keyStatus.Int(r.Status))
		}
		span.AddEvent(eventRetry, api.WithAttributes(attrs...))
	}
}

// Traced reports whether the span is recorded: then it is worth to compute what it can have.
func (s Span) Traced() bool { return s.span != nil && s.span.IsRecording() }

// TraceID returns the id of the tree, as 32 hex digits, or "" if nothing is traced.
func (s Span) TraceID() string {
	if s.span == nil {
		return ""
	}
	return s.span.SpanContext().TraceID().String()
}

// End ends the span.
func (s Span) End() {
	if s.span != nil {
		s.span.End()
	}
}

// Fail says that what the span describes has failed, and of what kind the failure is. A detail may quote what a
// model or a tool said, so it is left out without content.
func (s Span) Fail(kind, detail string) {
	if s.span == nil {
		return
	}
	if !s.content {
		detail = ""
	}
	s.span.SetAttributes(keyError.String(kind))
	s.span.SetStatus(codes.Error, loquat.Clip(detail, loquat.MaxDetail))
}

// Failed is Fail with an error, whose code is its kind.
func (s Span) Failed(err error) { s.Fail(string(loquat.CodeOf(err)), err.Error()) }

// Status notes the status of an answer over HTTP.
func (s Span) Status(code int) { s.set(keyStatus.Int(code)) }

// Ended notes how a request has ended.
func (s Span) Ended(status string) { s.set(keyEnd.String(status)) }

// Committed notes the number of transactions that were committed together, and of their events.
func (s Span) Committed(updates, events int) { s.set(keyUpdates.Int(updates), keyEvents.Int(events)) }

// Used notes the tokens of an answer.
func (s Span) Used(input, output int64) {
	s.set(keyInputTokens.Int64(input), keyOutputTokens.Int64(output))
}

// Finished notes why a model stopped.
func (s Span) Finished(reason string) {
	if reason != "" {
		s.set(keyFinish.StringSlice([]string{reason}))
	}
}

// Asked notes the messages of a phase, with content alone: those of a session from which on they are given.
func (s Span) Asked(messages []loquat.Message) { s.setMessages(keyInput, messages) }

// Answered notes the reply of a phase, with content alone.
func (s Span) Answered(m loquat.Message) { s.setMessages(keyOutput, []loquat.Message{m}) }

// Returned notes the result of a tool, with content alone.
func (s Span) Returned(result string) { s.setText(keyResult, result) }

func (s Span) set(attrs ...attribute.KeyValue) {
	if s.span != nil {
		s.span.SetAttributes(attrs...)
	}
}

func (s Span) setText(key attribute.Key, text string) {
	if s.content && s.Traced() {
		s.set(key.String(loquat.Clip(text, maxContent)))
	}
}

// part is a part of a message in the form of the conventions.
type part struct {
	Type      string          `json:"type"`
	Content   string          `json:"content,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Response  string          `json:"response,omitempty"`
}

// said is a message in the form of the conventions.
type said struct {
	Role  string `json:"role"`
	Parts []part `json:"parts"`
}

// setMessages sets messages, the newest ones that fit. All of them together have about maxContent characters.
func (s Span) setMessages(key attribute.Key, messages []loquat.Message) {
	if !s.content || !s.Traced() {
		return
	}
	var out []said
	left := maxContent
	for i := len(messages) - 1; i >= 0 && left > 0; i-- {
		var m said
		m, left = partsOf(messages[i], left)
		out = append(out, m)
	}
	slices.Reverse(out)
	if text, err := json.Marshal(out); err == nil {
		s.set(key.String(string(text)))
	}
}

// frame is about how many characters a message or a part has around its texts.
const frame = 64

// partsOf returns a message with about so many characters at most, and how many of them are left. Calls of tools that
// do not fit are left out.
func partsOf(m loquat.Message, most int) (said, int) {
	left := most - frame
	clip := func(text string, n int) string {
		text = loquat.Clip(text, min(n, left))
		left -= utf8.RuneCountInString(text)
		return text
	}
	if m.Role == loquat.RoleTool {
		id := clip(m.Metadata.String(loquat.MetaToolCallID), loquat.Excerpt)
		return said{m.Role, []part{{Type: "tool_call_response", ID: id, Response: clip(m.Content, left)}}}, left
	}
	out := said{m.Role, nil}
	if text := clip(m.Content, left); text != "" {
		out.Parts = append(out.Parts, part{Type: "text", Content: text})
	}
	for _, call := range m.ToolCalls() {
		if left -= frame; left <= 0 {
			break
		}
		p := part{Type: "tool_call", ID: clip(call.ID, loquat.Excerpt), Name: clip(call.Name, loquat.Excerpt)}
		arguments := clip(call.Arguments, left)
		if p.Arguments = json.RawMessage(arguments); !json.Valid(p.Arguments) {
			p.Arguments = json.RawMessage(loquat.Quote(arguments))
		}
		out.Parts = append(out.Parts, p)
	}
	return out, left
}
