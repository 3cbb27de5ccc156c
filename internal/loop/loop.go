// Package loop runs one request: phases with tool rounds between them, until the model asks
// for no more tool calls.
//
// It publishes events in the order of the specification. Tool calls run only after the sink
// has made their phase durable. The package does not depend on the store or on HTTP. If a
// request fails, Run returns a *Failure with the results so far, and the caller ends the
// request.
package loop

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"loquat"
	"loquat/internal/heap"
	"loquat/internal/plugin"
	"loquat/internal/trace"
)

// Job is a request to run.
type Job struct {
	SessionID     string
	RequestID     string
	ProviderID    string
	Provider      plugin.Provider
	Plugins       *plugin.Registry
	Config        loquat.Object           // the settings resolved when the request started
	Redacted      loquat.Object           // Config with its secrets as {"set": true}
	Earlier       *loquat.EarlierMessages // messages before History; nil: there are none
	History       []loquat.Message
	Stream        bool
	StreamTools   bool
	MaxToolRounds int

	MaxToolResultBytes int // bound on the text of a tool result, and on each value of its metadata

	// Settings of this request alone. A call of one of ClientTools ends the request: its client
	// runs the tool.
	Instructions string            // a system message in front of all others; "": none
	ClientTools  []json.RawMessage // schemas in the chat-completions convention
	Params       loquat.Object     // win over those of features
	NoteOrder    bool              // the metadata say which reasoning came before the text, if not all did

	NewMessage func(role string) loquat.Message // returns a message with id and time
	Attempted  func(loquat.Attempt)             // is told of each call of the backend after its end

	OpenAsset  func(ctx context.Context, assetID string) (loquat.Asset, io.ReadCloser, error)
	StoreImage func(ctx context.Context, img plugin.Image) (loquat.Asset, error) // stores an image of a tool result
}

// Sink stores and publishes the results of a request. An error of any method ends the
// request.
type Sink interface {
	// Publish publishes an event of the running phase or round. The sink may merge
	// waiting events. They are durable when another method of the sink returns.
	Publish(ctx context.Context, e loquat.Event) error
	// EndPhase makes the phase's message durable. If the phase has no tool calls, or is the last,
	// EndPhase also completes the request.
	EndPhase(ctx context.Context, p Phase) error
	// ToolResults makes the results of a tool round durable. It returns messages of the user that
	// follow them: the next phase answers these too. With last it completes the request.
	ToolResults(ctx context.Context, results []loquat.Message, last bool) (steers []loquat.Message, err error)
}

// Phase is the result of a phase.
type Phase struct {
	Streamed bool // assistant_message start was published, so the sink publishes its end
	Message  loquat.Message
	Calls    []loquat.ToolCall
	Last     bool // the client runs all of Calls

	finish string // why the model stopped
}

// Failure reports why a request failed, and its results so far.
type Failure struct {
	Err      error
	Usage    loquat.Object             // usage metadata that the failed phase had reported
	Finished map[string]loquat.Message // finished tool messages of an incomplete round, by call id
}

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// Run runs a request. If it returns nil, the sink has completed the request. Otherwise the
// error is a *Failure.
func Run(ctx context.Context, job Job, sink Sink) error {
	history := job.History
	var memory heap.Gauge
	defer memory.Reset()
	for round := 0; ; round++ {
		tools := job.Plugins.Tools()
		memory.Reset()
		phase, err := tracePhase(ctx, job, tools, history, sink, &memory)
		if err != nil {
			return err
		}
		calls := ServerCalls(job.ClientTools, phase.Calls)
		if len(calls) > 0 && round >= job.MaxToolRounds {
			return &Failure{Err: loquat.Errorf(loquat.CodeBackendError,
				"the model asked for more than %d rounds of tools; raise limits.max_tool_rounds to allow more", job.MaxToolRounds), Usage: usageOf(phase.Message.Metadata)}
		}
		last := len(calls) < len(phase.Calls)
		phase.Last = last && len(calls) == 0
		if err := sink.EndPhase(ctx, phase); err != nil {
			return &Failure{Err: err, Usage: usageOf(phase.Message.Metadata)}
		}
		if len(calls) == 0 {
			return nil
		}
		results, err := runTools(ctx, job, tools, calls, sink)
		if err != nil {
			return err
		}
		steers, err := sink.ToolResults(ctx, results, last)
		if err != nil {
			return &Failure{Err: err, Finished: messagesByCall(results)}
		}
		if last {
			return nil
		}
		history = append(append(append(history, phase.Message), results...), steers...)
	}
}

// tracePhase is runPhase in a span.
func tracePhase(ctx context.Context, job Job, tools *plugin.Toolset, history []loquat.Message, sink Sink, memory *heap.Gauge) (Phase, error) {
	ctx, span := trace.Phase(ctx, job.ProviderID, job.Config.String("model"), job.Stream)
	defer span.End()
	span.Asked(history)
	phase, err := runPhase(ctx, job, tools, history, sink, memory)
	if !span.Traced() {
		return phase, err
	}
	if err != nil {
		span.Failed(err)
		return phase, err
	}
	span.Answered(phase.Message)
	span.Finished(phase.finish)
	if used := loquat.TokensIn(phase.Message.Metadata); used != nil {
		span.Used(used.Input, used.Output)
	}
	return phase, nil
}

// runPhase calls the model once, and publishes its chunks as they arrive. It adds the sizes of
// the chunks to memory.
func runPhase(ctx context.Context, job Job, tools *plugin.Toolset, history []loquat.Message, sink Sink, memory *heap.Gauge) (Phase, error) {
	req := loquat.LLMRequest{
		ProviderID: job.ProviderID,
		SessionID:  job.SessionID,
		RequestID:  job.RequestID,
		Config:     job.Config,
		Redacted:   job.Redacted,
		Messages:   history,
		Earlier:    job.Earlier,
		Tools:      slices.Concat(job.ClientTools, tools.Schemas()), // the provider takes the first of a name
		Stream:     job.Stream,
		OpenAsset:  job.OpenAsset,
	}
	var calls callCount
	req.Attempted = calls.count(job.Attempted)
	_, calls.counted = job.Provider.(plugin.AttemptCounter)
	if err := job.editRequest(ctx, &req); err != nil {
		return Phase{}, &Failure{Err: err}
	}
	if _, ok := job.Provider.(plugin.EarlierReader); !ok {
		if err := req.ReadEarlier(ctx); err != nil {
			return Phase{}, &Failure{Err: err}
		}
	}
	out := streamer{job: job, sink: sink}
	var reply *loquat.Reply
	defer func() { calls.ended(reply, out.received) }()
	for chunk, err := range job.Provider.Chat(ctx, req) {
		if err != nil {
			f := &Failure{Err: err}
			if reply = chunk.Reply; reply != nil {
				f.Usage = usageOf(reply.Metadata)
			}
			return Phase{}, f
		}
		if chunk.Reply != nil {
			reply = chunk.Reply
			break
		}
		memory.Add(len(chunk.Text) + len(chunk.Reasoning) + len(chunk.ReasoningContent))
		if err := out.publishChunk(ctx, chunk); err != nil {
			return Phase{}, &Failure{Err: err}
		}
	}
	if reply == nil {
		return Phase{}, &Failure{Err: fmt.Errorf("provider %s ended without a reply", job.ProviderID)}
	}
	if !job.Stream { // no chunk had the text
		memory.Add(len(reply.Content))
	}
	if err := checkReply(job.ProviderID, reply); err != nil {
		return Phase{}, &Failure{Err: err, Usage: usageOf(reply.Metadata)}
	}
	if err := out.start(ctx); err != nil {
		return Phase{}, &Failure{Err: err}
	}
	message := job.newReplyMessage(reply)
	if out.order.mixed {
		message.Metadata = message.Metadata.Set(loquat.MetaReasoningBefore, out.order.before)
	}
	return Phase{Streamed: out.started, Message: message, Calls: reply.ToolCalls, finish: reply.FinishReason}, nil
}

// callCount makes one call of a provider that does not count its calls.
type callCount struct {
	report  func(loquat.Attempt)
	counted bool
}

// count returns what the provider calls after each of its calls.
func (c *callCount) count(report func(loquat.Attempt)) func(loquat.Attempt) {
	if c.report = report; report == nil {
		c.report = func(loquat.Attempt) {}
	}
	return func(a loquat.Attempt) {
		c.counted = true
		c.report(a)
	}
}

// ended is called when the phase has ended, with the reply as far as it is known.
func (c *callCount) ended(reply *loquat.Reply, received int) {
	if c.counted {
		return
	}
	a := loquat.Attempt{Received: received}
	if reply != nil {
		a.Reported, a.Received = loquat.TokensIn(reply.Metadata), max(received, len(reply.Content))
	}
	c.report(a)
}

// editRequest changes a call as the plugins and the settings of the request say.
func (job Job) editRequest(ctx context.Context, req *loquat.LLMRequest) error {
	if job.Instructions != "" {
		if err := req.ReadEarlier(ctx); err != nil {
			return err
		}
		m := job.NewMessage(loquat.RoleSystem)
		m.Content = job.Instructions
		req.Messages = slices.Concat([]loquat.Message{m}, req.Messages)
	}
	if err := job.Plugins.EditRequest(ctx, req); err != nil {
		return err
	}
	if len(job.Params) > 0 {
		params := req.Params.Clone()
		if params == nil {
			params = loquat.Object{}
		}
		maps.Copy(params, job.Params)
		if len(req.Tools) == 0 { // backends refuse them without tools
			delete(params, "tool_choice")
			delete(params, "parallel_tool_calls")
		}
		req.Params = params
	}
	return nil
}

// ServerCalls returns the calls of tools that the client does not run. clientTools are as in Job.
func ServerCalls(clientTools []json.RawMessage, calls []loquat.ToolCall) []loquat.ToolCall {
	if len(clientTools) == 0 {
		return calls
	}
	names := map[string]bool{}
	for _, raw := range clientTools {
		var schema loquat.Object
		if json.Unmarshal(raw, &schema) == nil {
			names[schema.Object("function").String("name")] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(calls), func(c loquat.ToolCall) bool { return names[c.Name] })
}

// checkReply returns an error if a reply nests too deep to be stored.
func checkReply(providerID string, reply *loquat.Reply) error {
	err := reply.Metadata.CheckDepth()
	for _, call := range reply.ToolCalls {
		err = cmp.Or(err, call.Extra.CheckDepth(), call.FunctionExtra.CheckDepth())
	}
	if err != nil {
		return loquat.Errorf(loquat.CodeBackendError, "the reply of provider %s cannot be stored: %v", providerID, err)
	}
	return nil
}

// newReplyMessage returns the assistant message of a reply.
func (job Job) newReplyMessage(reply *loquat.Reply) loquat.Message {
	m := job.NewMessage(loquat.RoleAssistant)
	m.Content = loquat.CleanText(reply.Content)
	m.Metadata = reply.Metadata
	if len(reply.ToolCalls) > 0 {
		m.Metadata = m.Metadata.Set(loquat.MetaToolCalls, reply.ToolCalls)
	}
	m.Metadata.Clean()
	return m
}

// streamer turns chunks into events.
type streamer struct {
	job       Job
	sink      Sink
	started   bool
	restarted bool // the next partial must carry stream_restarted
	received  int  // bytes of text and reasoning
	order     order
}

// order says which reasoning of a phase came before the text.
type order struct {
	before int  // bytes of the reasoning that came before the text
	text   bool // text has come
	mixed  bool // reasoning has come after the text
}

// note takes in a part of a chunk. Its reasoning comes before its text.
func (o *order) note(reasoning, text string) {
	if reasoning != "" && o.text {
		o.mixed = true
	} else {
		o.before += len(reasoning)
	}
	o.text = o.text || text != ""
}

// maxIncrement is the most text of one increment. A larger chunk is published as several, so
// that no step from here to the disk has to copy all of it.
const maxIncrement = 256 << 10

func (s *streamer) publishChunk(ctx context.Context, c loquat.Chunk) error {
	if c.Retry != nil {
		return s.sink.Publish(ctx, retryEvent(*c.Retry))
	}
	s.received += len(c.Text) + len(c.Reasoning) + len(c.ReasoningContent)
	if !s.job.Stream {
		return nil
	}
	if err := s.start(ctx); err != nil {
		return err
	}
	if c.Restarted {
		s.restarted, s.order = true, order{}
	}
	for {
		part := loquat.Chunk{Extra: c.Extra}
		c.Extra = nil
		part.Text, c.Text = cutText(c.Text)
		part.Reasoning, c.Reasoning = cutText(c.Reasoning)
		part.ReasoningContent, c.ReasoningContent = cutText(c.ReasoningContent)
		if err := s.publishIncrement(ctx, part); err != nil {
			return err
		}
		if c.Text == "" && c.Reasoning == "" && c.ReasoningContent == "" {
			return nil
		}
	}
}

// cutText cuts a text of at most maxIncrement bytes, which ends between two characters.
func cutText(s string) (text, rest string) {
	if len(s) <= maxIncrement {
		return s, ""
	}
	end := loquat.CharacterStart(s, maxIncrement)
	return s[:end], s[end:]
}

// publishIncrement publishes a chunk as one increment, unless it is empty.
func (s *streamer) publishIncrement(ctx context.Context, c loquat.Chunk) error {
	if c.Text == "" && c.Reasoning == "" && c.ReasoningContent == "" && len(c.Extra) == 0 {
		return nil
	}
	if err := c.Extra.CheckDepth(); err != nil {
		return loquat.Errorf(loquat.CodeBackendError, "an increment of provider %s cannot be stored: %v", s.job.ProviderID, err)
	}
	metadata := c.Extra
	metadata.Clean()
	text := loquat.CleanText(c.Text)
	for _, r := range [...]struct{ field, text string }{
		{loquat.MetaReasoning, c.Reasoning},
		{loquat.MetaReasoningContent, c.ReasoningContent},
	} {
		if r.text == "" {
			continue
		}
		if metadata == nil {
			metadata = make(loquat.Object, 1)
		}
		metadata[r.field] = loquat.Quote(loquat.CleanText(r.text))
	}
	if s.job.NoteOrder {
		s.order.note(loquat.CleanText(cmp.Or(c.ReasoningContent, c.Reasoning)), text)
		if s.order.mixed {
			metadata = metadata.Set(loquat.MetaReasoningBefore, s.order.before)
		}
	}
	if s.restarted {
		metadata = metadata.Set(loquat.MetaStreamRestarted, true)
		s.restarted = false
	}
	return s.sink.Publish(ctx, loquat.Event{
		Type:    loquat.Partial,
		Message: &loquat.Delta{Role: loquat.RoleAssistant, Content: text, Metadata: metadata},
	})
}

// start publishes the start of a streamed phase, unless it has done so.
func (s *streamer) start(ctx context.Context) error {
	if s.started || !s.job.Stream {
		return nil
	}
	s.started = true
	return s.sink.Publish(ctx, loquat.Event{Type: loquat.AssistantMessage, Phase: loquat.PhaseStart})
}

func retryEvent(r loquat.Retry) loquat.Event {
	seconds, at := r.Delay.Seconds(), r.ResumeAt.UTC().Truncate(time.Millisecond)
	return loquat.Event{
		Type: loquat.RetryScheduled, Attempt: r.Attempt, Cause: r.Cause, Status: r.Status,
		DelaySeconds: &seconds, ResumeAt: &at,
	}
}

// usageOf returns the usage keys of metadata.
func usageOf(metadata loquat.Object) loquat.Object {
	var out loquat.Object
	for k, v := range metadata {
		if k == loquat.MetaUsage || strings.HasPrefix(k, loquat.MetaUsage+"_") {
			if out == nil {
				out = loquat.Object{}
			}
			out[k] = v
		}
	}
	return out
}
