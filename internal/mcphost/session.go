package mcphost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// listTimeout is how long a process may take to list its tools.
const listTimeout = 10 * time.Second

// legacyVersion is asked for when a process died of the question for its version.
const legacyVersion = "2025-11-25"

// errVersion is that the question for its version was the last that a process heard.
var errVersion = errors.New("it did not take the question for its version")

// errStopped is why a life ends that Loquat itself ends.
var errStopped = errors.New("it was stopped")

// session is one life of a plugin's process, from its start to its end.
type session struct {
	proc    *process
	wire    *wire
	mcp     *mcp.ClientSession
	timeout time.Duration // of a call
	changed chan struct{} // signalled when the tools may be others
	said    chan struct{} // closed when its standard error has ended, last being set
	last    string        // line of its standard error

	tokens   atomic.Int64
	doubting atomic.Bool
}

// open starts a process and shakes hands with it.
func open(ctx context.Context, cmd command, m Manifest, legacy bool, logs *logs) (*session, error) {
	proc, err := cmd.start()
	if err != nil {
		return nil, err
	}
	s := &session{proc: proc, timeout: m.timeout(), changed: make(chan struct{}, 1), said: make(chan struct{})}
	go func() {
		defer close(s.said)
		s.last = logs.copy(proc.stderr)
	}()
	s.wire = newWire(proc.stdout, proc.stdin, m.timeout(), logs.message)
	client := mcp.NewClient(&mcp.Implementation{Name: "loquat", Version: "1"}, &mcp.ClientOptions{
		Logger:         slog.New(slog.DiscardHandler),
		Capabilities:   &mcp.ClientCapabilities{},
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			s.wire.changing.Store(false)
			signal(s.changed)
		},
	})
	var opts mcp.ClientSessionOptions
	if legacy {
		opts.ProtocolVersion = legacyVersion
	}
	ctx, cancel := context.WithTimeoutCause(ctx, m.startTimeout(), fmt.Errorf("it did not answer within %v of its start; start_timeout_seconds allows more", m.startTimeout()))
	defer cancel()
	connected := make(chan error, 1)
	go func() {
		var err error
		s.mcp, err = client.Connect(ctx, s.wire, &opts)
		connected <- err
	}()
	select {
	case err = <-connected:
	case <-ctx.Done():
		s.wire.fail(context.Cause(ctx))
		err = <-connected
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		} else if why := s.reason(); why != nil {
			err = why
		}
		s.close()
		if !legacy && s.wire.unversed() {
			err = errors.Join(errVersion, err)
		}
		return nil, err
	}
	return s, nil
}

// reason waits a moment for what has ended the connection, if anything has, and says it.
func (s *session) reason() error {
	select {
	case <-s.wire.ended:
	case <-s.proc.exited:
		// What it wrote last is still to be read.
		select {
		case <-s.wire.ended:
		case <-time.After(patience):
			return s.end()
		}
	default:
		return nil
	}
	if !errors.Is(s.wire.why, io.EOF) {
		return s.wire.why
	}
	if s.proc.endsWithin(patience) {
		return s.end()
	}
	return errors.New("it closed its standard output")
}

// end says how an exited process ended, with what it said last.
func (s *session) end() error {
	select {
	case <-s.said:
	case <-time.After(patience): // something else holds its standard error
		return errors.New(s.proc.end())
	}
	if s.last == "" {
		return errors.New(s.proc.end())
	}
	return fmt.Errorf("%s; the last that it wrote to standard error: %s", s.proc.end(), s.last)
}

// await returns when the life is over, with the reason.
func (s *session) await(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.wire.ended:
	case <-s.proc.exited:
	}
	return s.reason()
}

// stop ends the process in order.
func (s *session) stop() {
	s.proc.stop()
	s.close()
}

// close ends what is left of the process, at once.
func (s *session) close() {
	s.proc.kill()
	s.wire.fail(errStopped)
	if s.mcp != nil {
		_ = s.mcp.Close()
	}
	_ = s.proc.stderr.Close()
	<-s.said
}

func (s *session) nextToken() string { return strconv.FormatInt(s.tokens.Add(1), 10) }

// doubt looks, after a call was given up, whether the process answers at all. One that
// says nothing whatever for as long as a call may take has lost its life.
func (s *session) doubt() {
	if !s.doubting.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer s.doubting.Store(false)
		asked := time.Now().UnixNano()
		ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
		defer cancel()
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			_, _ = s.mcp.ListTools(ctx, nil)
		}()
		select {
		case <-answered:
		case <-ctx.Done():
		case <-s.wire.ended:
		}
		if ctx.Err() != nil && s.wire.heard.Load() < asked {
			s.wire.fail(fmt.Errorf("it hangs: nothing came from it for %v", s.timeout))
		}
	}()
}

// use is one use of a tool of the process.
type use struct {
	tool      string
	arguments any
	about     map[string]any // who calls and with what settings; nil tells nothing
	progress  func(part)     // nil: none is wanted
}

// aboutKey is where `_meta` of a call says what the call is about.
const aboutKey = "loquat"

// callTool calls a tool and returns its answer.
func (s *session) callTool(ctx context.Context, timeout time.Duration, u use) (*answer, error) {
	raw, err := s.ask(ctx, timeout, u.progress, func(ctx context.Context, c *call) error {
		params := &mcp.CallToolParams{Name: u.tool, Arguments: u.arguments}
		if u.about != nil {
			params.Meta = mcp.Meta{aboutKey: u.about}
		}
		if c.token != "" {
			params.SetProgressToken(c.token)
		}
		_, err := s.mcp.CallTool(ctx, params)
		return err
	})
	if err != nil {
		return nil, err
	}
	var a answer
	if err := json.Unmarshal(raw, &a); err != nil {
		return nil, fmt.Errorf("its answer cannot be read: %w", err)
	}
	if a.InputRequests != nil {
		return nil, errors.New("it asks for input, which Loquat does not give")
	}
	return &a, nil
}
