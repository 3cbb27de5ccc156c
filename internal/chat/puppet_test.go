package chat_test

import (
	"context"
	"iter"
	"sync"

	"loquat"
	"loquat/internal/plugin"
)

// puppet is a model and a tool that do what a test orders, when it orders it. Each
// session has at most one phase or tool that runs; a session's request option
// `session` says which one a phase belongs to.
type puppet struct {
	mu      sync.Mutex
	newest  map[string]*act
	entered map[string]int // acts that ever began

	called func(loquat.LLMRequest) // sees the request of each phase
}

// act is a phase of the model or a call of the tool, while it runs.
type act struct {
	orders chan order
	gone   chan struct{} // closed when it has returned
}

// order is what an act does next; all but a word ends it.
type order struct {
	word   string
	finish bool
	fail   bool
	call   bool // ask for the tool
}

func newPuppet() *puppet {
	return &puppet{newest: map[string]*act{}, entered: map[string]int{}, called: func(loquat.LLMRequest) {}}
}

// on returns the act that runs on a session, when n acts have begun on it.
func (p *puppet) on(session string, n int) *act {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.entered[session] != n {
		return nil
	}
	return p.newest[session]
}

// began returns how many acts ever began on a session.
func (p *puppet) began(session string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.entered[session]
}

func (p *puppet) enter(session string) *act {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := &act{orders: make(chan order), gone: make(chan struct{})}
	p.newest[session] = a
	p.entered[session]++
	return a
}

// do gives an order, unless the act has returned.
func (a *act) do(o order) bool {
	select {
	case a.orders <- o:
		return true
	case <-a.gone:
		return false
	}
}

func (p *puppet) Chat(ctx context.Context, req loquat.LLMRequest) iter.Seq2[loquat.Chunk, error] {
	return func(yield func(loquat.Chunk, error) bool) {
		p.called(req)
		a := p.enter(req.Params.String("session"))
		defer close(a.gone)
		reply := &loquat.Reply{Metadata: loquat.Object{}}
		for {
			var o order
			select {
			case <-ctx.Done():
				yield(loquat.Chunk{}, ctx.Err())
				return
			case o = <-a.orders:
			}
			switch {
			case o.fail:
				yield(loquat.Chunk{}, loquat.Errorf(loquat.CodeBackendError, "cut"))
				return
			case o.finish, o.call:
				if o.call {
					reply.ToolCalls = calls("act")
				}
				yield(loquat.Chunk{Reply: reply}, nil)
				return
			}
			reply.Content += o.word
			if !yield(loquat.Chunk{Text: o.word}, nil) {
				return
			}
		}
	}
}

// tool is the tool named act.
func (p *puppet) tool() plugin.Tool {
	return tool{"act", func(ctx context.Context, call plugin.ToolCall) (plugin.ToolResult, error) {
		a := p.enter(call.SessionID)
		defer close(a.gone)
		select {
		case <-ctx.Done():
			return plugin.ToolResult{}, ctx.Err()
		case <-a.orders:
			return plugin.ToolResult{Content: "done"}, nil
		}
	}}
}
