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

	"loquat/internal/trace"
)

// minListTimeout is how long a process may take at least to list its tools after it has started, however long that took.
var minListTimeout = 10 * time.Second

// legacyVersion is requested if the process died when asked for its protocol version.
const legacyVersion = "2025-11-25"

// errNoVersion reports that the process died when asked for its protocol version.
var errNoVersion = errors.New("it ended when asked for its protocol version")

// errStopped is the reason when Loquat stops the process.
var errStopped = errors.New("it was stopped")

// session is one run of a plugin's process, from its start to its end.
type session struct {
	proc    *process
	wire    *wire
	mcp     *mcp.ClientSession
	timeout time.Duration // of a call
	changed chan struct{} // signalled when the tools may have changed
	said    chan struct{} // closed when its standard error has ended, last being set
	last    string        // line of its standard error

	tokens        atomic.Int64
	checkingAlive atomic.Bool
}

// open starts a process and does the MCP handshake.
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
	ctx, cancel := context.WithTimeoutCause(ctx, m.startTimeout(), fmt.Errorf("it did not answer within %v of its start; set start_timeout_seconds higher if it needs longer", m.startTimeout()))
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
		if !legacy && s.wire.probePending() {
			err = errors.Join(errNoVersion, err)
		}
		return nil, err
	}
	return s, nil
}

// reason returns why the connection or process ended, nil if both still run. It waits
// briefly for the details.
func (s *session) reason() error {
	select {
	case <-s.wire.ended:
	case <-s.proc.exited:
		// Read the rest of its output first.
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

// end describes how the process ended, with its last line of standard error.
func (s *session) end() error {
	select {
	case <-s.said:
	case <-time.After(patience): // a child still holds its standard error
		return errors.New(s.proc.end())
	}
	if s.last == "" {
		return errors.New(s.proc.end())
	}
	return fmt.Errorf("%s; its last line on standard error: %s", s.proc.end(), s.last)
}

// await waits for the end of the process and returns the reason.
func (s *session) await(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.wire.ended:
	case <-s.proc.exited:
	}
	return s.reason()
}

// stop ends the process gracefully.
func (s *session) stop() {
	s.proc.stop()
	s.close()
}

// close kills the process and closes its connection.
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

// checkAlive checks after a call timed out whether the process still sends anything. If
// nothing arrives for the timeout of a call, checkAlive ends the connection.
func (s *session) checkAlive() {
	if !s.checkingAlive.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer s.checkingAlive.Store(false)
		asked := time.Now().UnixNano()
		ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
		defer cancel()
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			c := newCall("") // the SDK would cache the tools of an answer that it gets itself
			defer s.wire.forget(c)
			_, _ = s.mcp.ListTools(context.WithValue(ctx, callKey{}, c), nil)
		}()
		select {
		case <-answered:
		case <-ctx.Done():
		case <-s.wire.ended:
		}
		if ctx.Err() != nil && s.wire.lastRead.Load() < asked {
			s.wire.fail(fmt.Errorf("it hangs: nothing came from it for %v", s.timeout))
		}
	}()
}

// use describes a call of one of the process's tools.
type use struct {
	tool      string
	arguments any
	about     map[string]any // session, request and settings, sent as _meta; nil sends none
	progress  func(part)     // nil means that no progress is requested
}

// aboutKey is the key in a call's `_meta` for the session, request and settings.
const aboutKey = "loquat"

// callTool calls a tool and returns its answer.
func (s *session) callTool(ctx context.Context, timeout time.Duration, u use) (*answer, error) {
	raw, err := s.ask(ctx, timeout, u.progress, func(ctx context.Context, c *call) error {
		params := &mcp.CallToolParams{Name: u.tool, Arguments: u.arguments}
		if u.about != nil {
			params.Meta = mcp.Meta{aboutKey: u.about}
		}
		for name, value := range trace.Names(ctx) { // as MCP servers that trace expect it
			if params.Meta == nil {
				params.Meta = mcp.Meta{}
			}
			params.Meta[name] = value
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
		return nil, fmt.Errorf("its answer is not valid: %w", err)
	}
	if a.InputRequests != nil {
		return nil, errors.New("it asks for input, which Loquat does not give")
	}
	return &a, nil
}
