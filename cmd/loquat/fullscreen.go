package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"loquat/internal/client"
	"loquat/internal/tui/fullscreen"
)

// repeated is a flag that may be given several times. The first value is also that of a plain flag.
type repeated struct {
	of   *string
	more []string
}

// Set takes one more value.
func (r *repeated) Set(value string) error {
	if len(r.more) == 0 {
		*r.of = value
	}
	r.more = append(r.more, value)
	return nil
}

func (r *repeated) String() string {
	if r.of == nil {
		return ""
	}
	return *r.of
}

// Type returns the word that the help shows.
func (r *repeated) Type() string { return "string" }

// takesScreen reports whether w is a terminal that programs can take over.
func takesScreen(w io.Writer, name string) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && name != "" && name != "dumb"
}

// runFullscreen chats on the whole screen. ctx ends with SIGTERM, and outer does not.
func (f *chatFlags) runFullscreen(ctx, outer context.Context, cmd *cobra.Command) error {
	servers, closeAll, err := f.connectAll(outer, cmd)
	if err != nil {
		return err
	}
	defer closeAll()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50) // people leave it open for days; the default would double its memory for little time
	}
	result, err := fullscreen.Run(ctx, fullscreen.Options{
		Servers: servers, SessionID: f.session, AgentID: f.agent, Stream: !f.noStream, Theme: f.theme,
		Getenv: os.Getenv, Environ: os.Environ(), Input: cmd.InOrStdin(), Output: cmd.OutOrStdout(),
	})
	if result.SessionID != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), "continue with: "+f.hint(cmd, result.Server, result.SessionID))
	}
	return err
}

// connectAll returns clients of all servers, and the function that closes them.
func (f *chatFlags) connectAll(ctx context.Context, cmd *cobra.Command) ([]fullscreen.Server, func(), error) {
	first, closeFirst, err := f.connect(ctx, cmd.ErrOrStderr(), client.Options{})
	if err != nil {
		return nil, nil, err
	}
	servers, name := []fullscreen.Server{}, f.server
	if name == "" {
		name = "this computer"
	}
	servers = append(servers, fullscreen.Server{Name: name, Client: first})
	for i := 1; i < len(f.servers.more); i++ {
		token := "" // that of another server must not reach this one
		if i < len(f.tokens.more) {
			token = f.tokens.more[i]
		}
		c, err := client.New(f.servers.more[i], client.Options{Token: token})
		if err != nil {
			closeFirst()
			return nil, nil, usageError{err}
		}
		servers = append(servers, fullscreen.Server{Name: f.servers.more[i], Client: c})
	}
	return servers, func() {
		for _, s := range servers[1:] {
			s.Client.CloseIdleConnections()
		}
		closeFirst()
	}, nil
}
