package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/tui"
)

// healthTimeout is how long the server may take to answer.
const healthTimeout = 5 * time.Second

func newHealthCommand() *cobra.Command {
	var f accessFlags
	var listen string
	var ready bool
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask the server on this machine whether it answers",
		Long: "Asks the server on this machine for /healthz, and exits with 1 if it does not answer. It finds the server as\n" +
			"serve does, by --config and --listen. It is the health check of containers, which have no curl.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, unusable := f.configuration()
			if unusable != nil { // a server that runs goes on with the one that it has
				cfg = config.New(loquat.Object{}, config.ProcessEnvironment())
			}
			cfg.SetServer(listen, "")
			path := "/healthz"
			if ready {
				path = "/readyz"
			}
			url := localURL(cfg.Server) + path
			err := askHealth(cmd.Context(), url, cmd.OutOrStdout())
			if unusable != nil && errors.Is(err, errNotOK) { // a server whose certificate is in the unusable file answers HTTP with 400
				err = askHealth(cmd.Context(), strings.Replace(url, "http:", "https:", 1), cmd.OutOrStdout())
			}
			if err != nil {
				return cmp.Or(unusable, err)
			}
			if unusable != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: the server runs, and would not start again: %s\n", printable(unusable))
			}
			return nil
		},
	}
	addListenFlags(cmd.Flags(), &f.config, &listen)
	cmd.Flags().BoolVar(&ready, "ready", false, "ask for /readyz: whether the server can take requests")
	return cmd
}

// errNotOK reports that a server answers with another status than 200.
var errNotOK = errors.New("the server is not healthy")

// askHealth prints the answer of a URL. If the status of the answer is not 200, the error is errNotOK.
func askHealth(ctx context.Context, url string, stdout io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return usageError{err}
	}
	// The certificate names the server as others reach it, not this machine. Nothing secret is sent.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("the server does not answer: %w; start it, or name its configuration with --config, or its address with --listen", err)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return fmt.Errorf("the server does not answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: %s is %s: %s", errNotOK, url, resp.Status, tui.OneLine(string(body)))
	}
	_, err = fmt.Fprintln(stdout, tui.OneLine(strings.TrimSpace(string(body))))
	return err
}
