// Package fullscreen is the terminal client that takes the whole screen.
//
// The model holds what the screen shows. Messages change it: keys, answers of the server, events of
// the log. It does no input and output itself: it returns commands (calls.go, feed.go), which call
// the server through the client package and bring the answers back as messages. The state of a
// session is a loquat.Fold. Texts of others pass tui.Clean before they reach the screen.
package fullscreen

import (
	"context"
	"errors"
	"io"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"

	"loquat/internal/client"
)

// Server is a server that the client may use.
type Server struct {
	Name   string // as it is shown
	Client *client.Client
}

// Options are what a user chose for the client.
type Options struct {
	Servers   []Server // at least one; the first is used at the start
	SessionID string   // a session to continue; empty for a new one
	AgentID   string   // of a new session; empty for the default
	Stream    bool     // ask for streamed replies
	Theme     string   // one of ThemeNames
	Getenv    func(string) string
	Environ   []string
	Input     io.Reader
	Output    io.Writer
}

// framesPerSecond bounds how often the terminal is written to.
const framesPerSecond = 15

// Result is where the user was at the end.
type Result struct {
	Server    string // the name of the server
	SessionID string // "" if no session was open
}

// Run shows the client until the user leaves it.
func Run(ctx context.Context, o Options) (Result, error) {
	ctx, cancel := context.WithCancel(ctx) // ends the calls that still run
	defer cancel()
	m, err := newModel(ctx, o)
	if err != nil {
		return Result{}, err
	}
	options := []tea.ProgramOption{
		tea.WithContext(ctx), tea.WithInput(o.Input), tea.WithOutput(o.Output), tea.WithEnvironment(o.Environ),
		tea.WithFPS(framesPerSecond), tea.WithoutSignalHandler(),
	}
	if m.theme.name == themeNone {
		options = append(options, tea.WithColorProfile(colorprofile.ASCII))
	}
	_, err = tea.NewProgram(m, options...).Run()
	m.feed.stop()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		err = nil // it was asked to end
	}
	r := Result{Server: m.server.Name}
	if m.session != nil {
		r.SessionID = m.session.id
	}
	return r, err
}
