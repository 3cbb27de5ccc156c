package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"loquat/internal/client"
)

// remoteFlags say which server a client command speaks to: one that runs
// elsewhere, or one that the command starts within its own process.
type remoteFlags struct {
	server, token string
	local         serveOptions
	verbose       bool
}

func (f *remoteFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.server, "server", "", "`URL` of a running server (default: start one in this process)")
	flags.StringVar(&f.token, "token", "", "access `token` of the server at --server")
	flags.StringVar(&f.local.config, "config", "", "configuration `file` of a server started here")
	flags.StringVar(&f.local.data, "data", "", "data `directory` of a server started here")
	flags.BoolVar(&f.local.demo, "demo", false, "let a server started here use the scripted backend")
	flags.BoolVar(&f.verbose, "verbose", false, "show the log of a server started here")
}

// connect returns a client and what ends it. ctx has to outlive both.
func (f *remoteFlags) connect(ctx context.Context, stderr io.Writer, o client.Options) (*client.Client, func(), error) {
	url, token, stop := f.server, f.token, func() {}
	if url == "" {
		local := f.local
		local.listen = "127.0.0.1:0"
		log := io.Discard
		if f.verbose {
			log = stderr
		}
		s, err := newServer(ctx, local, log)
		if err != nil {
			return nil, nil, err
		}
		url, token, stop = s.url, s.access.Own(), s.stop
	}
	o.Token = token
	c, err := client.New(url, o)
	if err != nil {
		stop()
		return nil, nil, usageError{err}
	}
	return c, func() { c.CloseIdleConnections(); stop() }, nil
}
