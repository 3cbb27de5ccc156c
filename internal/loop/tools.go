package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"loquat"
	"loquat/internal/plugin"
	"loquat/internal/trace"
)

// toolRound is a running tool round. Its calls run in parallel.
type toolRound struct {
	job   Job
	tools *plugin.Toolset
	sink  Sink

	mu       sync.Mutex
	closed   bool                      // later progress and results are dropped
	finished map[string]loquat.Message // by call id
	failed   error                     // first error of the sink
}

// runTools runs the calls of a round and returns their messages in the order of the calls.
// If a call fails, its message says so. When ctx ends, runTools does not wait for tools that
// ignore ctx.
func runTools(ctx context.Context, job Job, tools *plugin.Toolset, calls []loquat.ToolCall, sink Sink) ([]loquat.Message, error) {
	r := &toolRound{job: job, tools: tools, sink: sink, finished: make(map[string]loquat.Message, len(calls))}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan struct{})
	var running sync.WaitGroup
	for _, call := range calls {
		running.Go(func() {
			if err := r.runCall(ctx, call); err != nil {
				r.fail(err)
				stop()
			}
		})
	}
	go func() { running.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
	finished, err := r.close(ctx)
	if err != nil {
		return nil, &Failure{Err: err, Finished: finished}
	}
	out := make([]loquat.Message, len(calls))
	for i, call := range calls {
		out[i] = finished[call.ID]
	}
	return out, nil
}

func (r *toolRound) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed == nil {
		r.failed = err
	}
}

// close ends the round and returns its finished messages.
func (r *toolRound) close(ctx context.Context) (map[string]loquat.Message, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.failed != nil {
		return r.finished, r.failed
	}
	return r.finished, context.Cause(ctx)
}

// runCall runs one call and publishes its events.
func (r *toolRound) runCall(ctx context.Context, call loquat.ToolCall) error {
	empty := ""
	if err := r.publish(ctx, call, loquat.PhaseStart, loquat.Payload{Part: &empty}); err != nil {
		return err
	}
	result := r.traceTool(ctx, call)
	m := toolMessage(r.job, call, result)
	boundResult(&m, call.Name, r.job.MaxToolResultBytes)
	r.attachImages(ctx, &m, result.Images)
	r.mu.Lock()
	// The error of a cancelled tool does not say whether the tool took effect.
	if r.closed || result.IsError && ctx.Err() != nil {
		r.mu.Unlock()
		return nil
	}
	r.finished[call.ID] = m
	r.mu.Unlock()
	return r.publish(ctx, call, loquat.PhaseEnd, loquat.Payload{Result: &m})
}

// publish publishes a tool_partial if tools are streamed. It drops progress after the end of
// the call.
func (r *toolRound) publish(ctx context.Context, call loquat.ToolCall, phase string, p loquat.Payload) error {
	if !r.job.StreamTools {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, over := r.finished[call.ID]
	if r.closed || over && phase == loquat.PhaseStream {
		return nil
	}
	return r.sink.Publish(ctx, loquat.Event{Type: loquat.ToolPartial, ToolCallID: call.ID, Phase: phase, Payload: &p})
}

// traceTool is callTool in a span.
func (r *toolRound) traceTool(ctx context.Context, call loquat.ToolCall) plugin.ToolResult {
	ctx, span := trace.Tool(ctx, call)
	defer span.End()
	result := r.callTool(ctx, call)
	if result.IsError {
		span.Fail("tool_error", result.Content)
	}
	span.Returned(result.Content)
	return result
}

// callTool calls the tool. Errors and panics become error results.
func (r *toolRound) callTool(ctx context.Context, call loquat.ToolCall) (result plugin.ToolResult) {
	tool, ok := r.tools.Tool(call.Name)
	if !ok {
		name := loquat.Clip(call.Name, loquat.Excerpt)
		if absent := r.tools.Absent(); absent != "" {
			return toolError("there is no tool named %q; these plugins do not run, so their tools are missing: %s", name, absent)
		}
		return toolError("there is no tool named %q", name)
	}
	arguments, err := readArguments(call.Arguments)
	if err != nil {
		return toolError("the arguments of %s are not valid: %v", call.Name, err)
	}
	defer func() {
		if fault := recover(); fault != nil {
			result = toolError("tool %s failed: %v", call.Name, fault)
		}
	}()
	result, err = tool.Call(ctx, plugin.ToolCall{
		ID: call.ID, Name: call.Name, Arguments: arguments,
		Config: r.job.Config, Redacted: r.job.Redacted, SessionID: r.job.SessionID, RequestID: r.job.RequestID,
		Progress: func(part string, progress, total *float64) {
			part, progress, total = loquat.CleanText(part), finite(progress), finite(total)
			if err := r.publish(ctx, call, loquat.PhaseStream, loquat.Payload{Part: &part, Progress: progress, Total: total}); err != nil {
				r.fail(err)
			}
		},
	})
	if err != nil {
		return toolError("tool %s failed: %v", call.Name, err)
	}
	return result
}

// finite returns nil for a number that JSON cannot represent.
func finite(n *float64) *float64 {
	if n == nil || math.IsNaN(*n) || math.IsInf(*n, 0) {
		return nil
	}
	return n
}

func toolError(format string, args ...any) plugin.ToolResult {
	return plugin.ToolResult{Content: fmt.Sprintf(format, args...), IsError: true}
}

// readArguments checks that the arguments of a call are a JSON object. Empty arguments and
// null become an empty object.
func readArguments(s string) (json.RawMessage, error) {
	s = strings.TrimSpace(s)
	if s == "" || s == "null" {
		return json.RawMessage("{}"), nil
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(s), &object); err != nil {
		if json.Valid([]byte(s)) {
			return nil, errors.New("they have to be a JSON object")
		}
		return nil, fmt.Errorf("they have to be a JSON object: %w", err)
	}
	return json.RawMessage(s), nil
}

func toolMessage(job Job, call loquat.ToolCall, result plugin.ToolResult) loquat.Message {
	m := job.NewMessage(loquat.RoleTool)
	m.Content = loquat.CleanText(result.Content)
	m.Metadata = result.Metadata.Clone()
	for key, value := range m.Metadata {
		if err := (loquat.Object{key: value}).CheckDepth(); err != nil {
			addNotes(&m, fmt.Sprintf("[Metadata of %s is left out: %v.]", loquat.Clip(call.Name, maxNoteName), err))
			delete(m.Metadata, key)
		}
	}
	maps.DeleteFunc(m.Metadata, func(_ string, v json.RawMessage) bool { return !json.Valid(v) })
	m.Metadata.Clean()
	delete(m.Metadata, loquat.MetaAttachments) // only attachImages sets attachments
	m.Metadata = m.Metadata.
		Set(loquat.MetaToolCallID, call.ID).
		Set(loquat.MetaToolName, call.Name)
	if result.IsError {
		m.Metadata.Set(loquat.MetaIsError, true)
	}
	return m
}

// boundResult cuts the text of a tool message and removes values of its metadata that have
// more than most bytes, because every later request of the session would send them. The
// message says what is missing.
func boundResult(m *loquat.Message, tool string, most int) {
	tool = loquat.Clip(tool, maxNoteName)
	if size := len(m.Content); size > most {
		kept := most
		for kept > most-utf8.UTFMax+1 && !utf8.RuneStart(m.Content[kept]) { // not within a character
			kept--
		}
		m.Content = fmt.Sprintf("%s\n[The result of %s has %d bytes and is cut after %d. Ask for a smaller part, or raise limits.max_tool_result_bytes.]",
			m.Content[:kept], tool, size, kept)
	}
	for _, key := range slices.Sorted(maps.Keys(m.Metadata)) {
		if size := len(m.Metadata[key]); size > most && key != loquat.MetaToolCallID && key != loquat.MetaToolName {
			delete(m.Metadata, key)
			addNotes(m, fmt.Sprintf("[metadata.%s of the result of %s has %d bytes and is left out: it is over limits.max_tool_result_bytes, which is %d.]",
				key, tool, size, most))
		}
	}
}

// maxNoteName is the largest length of a tool's name in a note. The name comes from the
// model and may be arbitrary.
const maxNoteName = 64

// addNotes appends lines to the text of a tool message.
func addNotes(m *loquat.Message, notes ...string) {
	m.Content = strings.TrimLeft(m.Content+"\n"+strings.Join(notes, "\n"), "\n")
}

// maxImages is the largest number of images of one result.
const maxImages = 64

// attachImages stores a tool's images as assets of the session and attaches them to the
// message. For images that are rejected or too many, it adds notes to the message.
func (r *toolRound) attachImages(ctx context.Context, m *loquat.Message, images []plugin.Image) {
	var attachments []loquat.Object
	var notes []string
	for i, img := range images[:min(len(images), maxImages)] {
		a, err := r.job.StoreImage(ctx, img)
		if err != nil {
			reason := "it could not be stored"
			if e, ok := errors.AsType[*loquat.Error](err); ok {
				reason = e.Detail
			}
			notes = append(notes, fmt.Sprintf("[Image %d of the tool is left out: %s.]", i+1, reason))
			continue
		}
		attachments = append(attachments, loquat.Object{}.Set("type", "image").Set("asset_id", a.AssetID))
	}
	if more := len(images) - maxImages; more > 0 {
		notes = append(notes, fmt.Sprintf("[%d more images of the tool are left out: a result may have %d.]", more, maxImages))
	}
	if len(notes) > 0 {
		addNotes(m, notes...)
	}
	if len(attachments) > 0 {
		m.Metadata = m.Metadata.Set(loquat.MetaAttachments, attachments)
	}
}

// UnknownOutcome returns the tool message for a call whose tool did not finish.
func UnknownOutcome(m loquat.Message, call loquat.ToolCall) loquat.Message {
	m.Content = "The request was cut short while this tool ran. Whether it took effect is unknown."
	m.Metadata = loquat.Object{}.
		Set(loquat.MetaToolCallID, call.ID).
		Set(loquat.MetaToolName, call.Name).
		Set(loquat.MetaIsError, true)
	return m
}

func messagesByCall(messages []loquat.Message) map[string]loquat.Message {
	out := make(map[string]loquat.Message, len(messages))
	for _, m := range messages {
		out[m.Metadata.String(loquat.MetaToolCallID)] = m
	}
	return out
}
