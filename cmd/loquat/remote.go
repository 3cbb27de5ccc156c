package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"loquat/internal/client"
)

// remoteFlags choose the server of a client command: a running server, or one that the command
// starts in its own process.
type remoteFlags struct {
	server, token string
	local         serveOptions
	verbose       bool
}

func (f *remoteFlags) add(cmd *cobra.Command) {
	args := cmd.Args
	cmd.Args = func(cmd *cobra.Command, given []string) error {
		if err := args(cmd, given); err != nil {
			return err
		}
		return contradiction(cmd)
	}
	flags := cmd.Flags()
	flags.StringVar(&f.server, "server", "", "`URL` of a running server (default: start one in this process)")
	flags.StringVar(&f.token, "token", "", "access `token` of the server at --server")
	flags.StringVar(&f.local.config, "config", "", "configuration `file` of a server started here")
	flags.StringVar(&f.local.data, "data", "", "data `directory` of a server started here")
	flags.BoolVar(&f.local.demo, "demo", false, "let a server started here use the scripted backend")
	flags.BoolVar(&f.verbose, "verbose", false, "show the log of a server started here")
}

// contradiction returns an error if a flag on the command line would have no effect.
// Environment variables are ignored, because they may be meant for other commands.
func contradiction(cmd *cobra.Command) error {
	flags := cmd.Flags()
	remote := flags.Changed("server") || os.Getenv(envName(cmd, "server")) != ""
	for _, name := range []string{"config", "data", "demo", "verbose"} {
		if remote && flags.Changed(name) {
			return usageError{fmt.Errorf("--%s is for a server that is started here, and --server (or %s) names one that runs: leave one of them out", name, envName(cmd, "server"))}
		}
	}
	if !remote && flags.Changed("token") {
		return usageError{errors.New("--token is for a server that runs: name it with --server; one that is started here needs none")}
	}
	return nil
}

// connect returns a client and the function that closes it. ctx must outlive both.
func (f *remoteFlags) connect(ctx context.Context, stderr io.Writer, o client.Options) (*client.Client, func(), error) {
	url, token, stop := f.server, f.token, func() {}
	if url == "" {
		local := f.local
		local.listen, local.private = "127.0.0.1:0", true
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
