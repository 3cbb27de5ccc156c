// Package loop runs one request: phases of the model, rounds of tools between them,
// until the model asks for no more.
//
// It promises the order of events that the specification fixes, and that nothing of
// a phase is acted on before its sink has made it durable. It knows no store and no
// HTTP. How a request ends when it fails is the sink's owner's business: Run returns
// a *Failure that says what was left in hand.
package loop

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"loquat"
	"loquat/internal/plugin"
)

// Job is a request to run.
type Job struct {
	SessionID     string
	RequestID     string
	ProviderID    string
	Provider      plugin.Provider
	Plugins       *plugin.Registry
	Config        loquat.Object // effective, as it was when the request started
	Concealed     loquat.Object // Config with its secrets as {"set": true}
	History       []loquat.Message
	Stream        bool
	StreamTools   bool
	MaxToolRounds int

	MaxToolResultBytes int // of the text of one result, and of each value of its metadata

	NewMessage func(role string) loquat.Message // with id and time

	OpenAsset  func(ctx context.Context, assetID string) (loquat.Asset, io.ReadCloser, error)
	StoreImage func(ctx context.Context, img plugin.Image) (loquat.Asset, error) // of a tool
}

// Sink takes what a request brings forth. An error of any method ends the request.
type Sink interface {
	// Publish takes an increment. It may be merged with others that wait, and it
	// is durable at the latest when one of the other methods returns.
	Publish(ctx context.Context, e loquat.Event) error
	// EndPhase makes the phase's message durable. Without calls the request is
	// completed by it.
	EndPhase(ctx context.Context, p Phase) error
	// ToolResults makes the results of a round durable.
	ToolResults(ctx context.Context, results []loquat.Message) error
}

// Phase is a finished phase of the model.
type Phase struct {
	Streamed bool // assistant_message start was published and wants its end
	Message  loquat.Message
	Calls    []loquat.ToolCall
}

// Failure is why a request could not be completed, and what it had in hand.
type Failure struct {
	Err      error
	Usage    loquat.Object             // metadata that the dead phase had reported, usage above all
	Finished map[string]loquat.Message // tool messages by call id, of a round that was cut short
}

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// Run runs a request to its end. A nil error means that the sink has completed it;
// otherwise it is a *Failure.
func Run(ctx context.Context, job Job, sink Sink) error {
	history := job.History
	for round := 0; ; round++ {
		tools := job.Plugins.Tools()
		phase, err := runPhase(ctx, job, tools, history, sink)
		if err != nil {
			return err
		}
		if len(phase.Calls) > 0 && round >= job.MaxToolRounds {
			return &Failure{Err: loquat.Errorf(loquat.CodeBackendError,
				"the model asked for more than %d rounds of tools; raise limits.max_tool_rounds if that is wanted", job.MaxToolRounds), Usage: usageOf(phase.Message.Metadata)}
		}
		if err := sink.EndPhase(ctx, phase); err != nil {
			return &Failure{Err: err, Usage: usageOf(phase.Message.Metadata)}
		}
		if len(phase.Calls) == 0 {
			return nil
		}
		results, err := runTools(ctx, job, tools, phase.Calls, sink)
		if err != nil {
			return err
		}
		if err := sink.ToolResults(ctx, results); err != nil {
			return &Failure{Err: err, Finished: byCall(results)}
		}
		history = append(append(history, phase.Message), results...)
	}
}

// runPhase asks the model once and passes on what it says while it says it.
func runPhase(ctx context.Context, job Job, tools *plugin.Toolset, history []loquat.Message, sink Sink) (Phase, error) {
	req := loquat.LLMRequest{
		ProviderID: job.ProviderID,
		SessionID:  job.SessionID,
		RequestID:  job.RequestID,
		Config:     job.Config,
		Concealed:  job.Concealed,
		Messages:   history,
		Tools:      tools.Schemas(),
		Stream:     job.Stream,
		OpenAsset:  job.OpenAsset,
	}
	if err := job.Plugins.EditRequest(ctx, &req); err != nil {
		return Phase{}, &Failure{Err: err}
	}
	out := streamer{job: job, sink: sink}
	var reply *loquat.Reply
	for chunk, err := range job.Provider.Chat(ctx, req) {
		if err != nil {
			f := &Failure{Err: err}
			if chunk.Reply != nil {
				f.Usage = usageOf(chunk.Reply.Metadata)
			}
			return Phase{}, f
		}
		if chunk.Reply != nil {
			reply = chunk.Reply
			break
		}
		if err := out.pass(ctx, chunk); err != nil {
			return Phase{}, &Failure{Err: err}
		}
	}
	if reply == nil {
		return Phase{}, &Failure{Err: fmt.Errorf("provider %s ended without a reply", job.ProviderID)}
	}
	if err := checkReply(job.ProviderID, reply); err != nil {
		return Phase{}, &Failure{Err: err, Usage: usageOf(reply.Metadata)}
	}
	if err := out.start(ctx); err != nil {
		return Phase{}, &Failure{Err: err}
	}
	return Phase{Streamed: out.started, Message: job.message(reply), Calls: reply.ToolCalls}, nil
}

// checkReply refuses a reply that nests too deep to be stored.
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

// message makes the assistant message of a reply.
func (job Job) message(reply *loquat.Reply) loquat.Message {
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
	restarted bool // the next partial has to say that what came before is void
}

func (s *streamer) pass(ctx context.Context, c loquat.Chunk) error {
	if c.Retry != nil {
		return s.sink.Publish(ctx, retryEvent(*c.Retry))
	}
	if !s.job.Stream {
		return nil
	}
	if err := s.start(ctx); err != nil {
		return err
	}
	s.restarted = s.restarted || c.Restarted
	if c.Text == "" && c.Reasoning == "" && c.ReasoningContent == "" && len(c.Extra) == 0 {
		return nil
	}
	if err := c.Extra.CheckDepth(); err != nil {
		return loquat.Errorf(loquat.CodeBackendError, "an increment of provider %s cannot be stored: %v", s.job.ProviderID, err)
	}
	metadata := c.Extra
	metadata.Clean()
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
	if s.restarted {
		metadata = metadata.Set(loquat.MetaStreamRestarted, true)
		s.restarted = false
	}
	return s.sink.Publish(ctx, loquat.Event{
		Type:    loquat.Partial,
		Message: &loquat.Delta{Role: loquat.RoleAssistant, Content: loquat.CleanText(c.Text), Metadata: metadata},
	})
}

// start opens a streamed phase, once.
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

// usageOf returns the keys of metadata that tell of usage.
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
