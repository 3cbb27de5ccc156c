package fullscreen

import (
	"fmt"
	"strings"
	"time"

	"loquat"
)

// The phases of a request.
const (
	phaseWaiting  = "waiting for the model"
	phaseThinking = "thinking"
	phaseWriting  = "writing"
	phaseTools    = "running tools"
	phaseRetrying = "waiting to try again"
)

// maxLive is the number of bytes that are kept of the output of a tool that runs. The screen shows
// its last lines; the result has the whole output.
const maxLive = 64 << 10

// run is the progress of the request that runs on a session. The messages are in the fold.
type run struct {
	id        string
	begun     time.Time
	phase     string
	tools     []*toolRun
	attempt   int // of the next call of the backend, while the phase is phaseRetrying
	cause     string
	resume    time.Time
	thought   time.Duration // how long the model reasoned in this phase, once it has written text
	reasoning time.Time     // when the reasoning of this phase began; zero if there was none
}

// toolRun is a call without a result yet.
type toolRun struct {
	call     loquat.ToolCall
	output   string
	progress string
}

// apply changes the progress by an event of the request.
func (r *run) apply(e loquat.Event, now time.Time) {
	switch e.Type {
	case loquat.AssistantMessage:
		if e.Phase == loquat.PhaseStart {
			r.phase, r.reasoning, r.thought = phaseWaiting, time.Time{}, 0
		}
	case loquat.Partial:
		r.partial(e, now)
	case loquat.Final:
		r.endReasoning(now)
		r.phase = phaseWaiting
	case loquat.ToolCalls:
		r.phase, r.tools = phaseTools, nil
		for _, c := range e.ToolCalls {
			r.tools = append(r.tools, &toolRun{call: c})
		}
	case loquat.ToolPartial:
		r.toolPartial(e)
	case loquat.ToolResults:
		r.phase, r.tools, r.reasoning, r.thought = phaseWaiting, nil, time.Time{}, 0
	case loquat.RetryScheduled:
		r.phase, r.attempt, r.cause, r.resume = phaseRetrying, e.Attempt+1, retryCause(e), now
		if e.DelaySeconds != nil {
			r.resume = now.Add(time.Duration(*e.DelaySeconds * float64(time.Second)))
		}
	}
}

func retryCause(e loquat.Event) string {
	if e.Status != 0 {
		return fmt.Sprintf("HTTP status %d", e.Status)
	}
	return strings.ReplaceAll(e.Cause, "_", " ")
}

func (r *run) partial(e loquat.Event, now time.Time) {
	if e.Message == nil {
		return
	}
	meta := e.Message.Metadata
	if meta.Bool(loquat.MetaStreamRestarted) {
		r.phase, r.reasoning, r.thought = phaseWaiting, time.Time{}, 0
	}
	switch {
	case e.Message.Content != "":
		r.endReasoning(now)
		r.phase = phaseWriting
	case meta.String(loquat.MetaReasoningContent) != "" || meta.String(loquat.MetaReasoning) != "":
		if r.reasoning.IsZero() {
			r.reasoning = now
		}
		r.phase = phaseThinking
	}
}

func (r *run) endReasoning(now time.Time) {
	if !r.reasoning.IsZero() && r.thought == 0 {
		r.thought = max(now.Sub(r.reasoning), time.Millisecond)
	}
}

func (r *run) toolPartial(e loquat.Event) {
	for _, t := range r.tools {
		if t.call.ID != e.ToolCallID || e.Payload == nil {
			continue
		}
		if e.Payload.Part != nil {
			t.output += *e.Payload.Part
			if cut := len(t.output) - maxLive; cut > 0 {
				t.output = strings.ToValidUTF8(t.output[cut:], "")
			}
		}
		if p := e.Payload.Progress; p != nil {
			t.progress = fmt.Sprintf("%g", *p)
			if total := e.Payload.Total; total != nil {
				t.progress = fmt.Sprintf("%g of %g", *p, *total)
			}
		}
	}
}

// indicator describes the progress in a few words.
func (r *run) indicator(now time.Time) string {
	if r.phase == phaseRetrying {
		return fmt.Sprintf("attempt %d in %d s: the backend failed (%s)", r.attempt, secondsUntil(r.resume, now), r.cause)
	}
	return r.phase + " · " + seconds(now.Sub(r.begun))
}
