package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"loquat/internal/backend"
)

// backendFlags are the flags of `loquat backend`.
type backendFlags struct {
	listen, replay, script, reframe string
	rate                            float64
	faults                          []string
}

func newBackendCommand() *cobra.Command {
	var f backendFlags
	cmd := &cobra.Command{
		Use:         "backend",
		Annotations: map[string]string{envPrefix: "LOQUAT_BACKEND_"},
		Short:       "Run a scripted chat-completions backend, for trials, demos and tests",
		Long: "Runs a chat-completions backend that needs neither a key nor a model. It has built-in models,\n" +
			"replays recorded streams, and fails when a request says so. Its base URL is http://HOST:PORT/v1.",
		Example: strings.Join([]string{
			"  loquat backend --listen 127.0.0.1:8788",
			"  loquat backend --fault status=503,times=2 --fault drop_after=5,times=1",
			"  loquat backend --replay recordings/ --reframe crlf,bytes",
		}, "\n"),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := f.options(cmd)
			if err != nil {
				return usageError{err}
			}
			opts.Logger = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			b, err := backend.New(opts)
			if err != nil {
				return usageError{err}
			}
			if _, _, err := net.SplitHostPort(f.listen); err != nil {
				return usageError{fmt.Errorf("--listen is %q, which is not an address; must be HOST:PORT, such as 127.0.0.1:8788", f.listen)}
			}
			ln, err := net.Listen("tcp", f.listen)
			if err != nil {
				return fmt.Errorf("listen on %s (--listen chooses another address): %w", f.listen, err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "listening on http://%s\n", ln.Addr())
			return b.Serve(cmd.Context(), ln)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8788", "`address` to listen on; port 0 picks a free one")
	flags.StringVar(&f.replay, "replay", "", "answer with this recording (.sse or .json), or from this `folder` by model name")
	flags.StringVar(&f.script, "script", "", "`file` with a script for all requests; a request's own script overrides it")
	flags.StringVar(&f.reframe, "reframe", "", "`list` of changes to the framing: crlf, nospace, bytes, comments, nonewline")
	flags.Float64Var(&f.rate, "rate", 0, "chunks per second; 0 is as fast as possible (default: the model's own pace)")
	flags.StringArrayVar(&f.faults, "fault", nil, "`fault` such as status=503,times=2; repeat it for a sequence")
	return cmd
}

// options returns the options of backend.New for the flags.
func (f *backendFlags) options(cmd *cobra.Command) (backend.Options, error) {
	var opts backend.Options
	var layers []json.RawMessage
	if f.script != "" {
		script, err := os.ReadFile(f.script)
		if err != nil {
			return opts, fmt.Errorf("--script: %w", err)
		}
		layers = append(layers, script)
	}
	flags := map[string]any{}
	if cmd.Flags().Changed("rate") {
		flags["rate"] = f.rate
	}
	if f.reframe != "" {
		reframe, err := backend.ParseReframe(f.reframe)
		if err != nil {
			return opts, fmt.Errorf("--reframe: %w", err)
		}
		flags["reframe"] = reframe
	}
	if len(flags) > 0 {
		layer, err := json.Marshal(flags)
		if err != nil {
			return opts, fmt.Errorf("--rate: %w", err) // such as NaN
		}
		layers = append(layers, layer)
	}
	if len(f.faults) > 0 {
		faults, err := backend.ParseFaults(f.faults)
		if err != nil {
			return opts, fmt.Errorf("--fault: %w", err)
		}
		layers = append(layers, faults)
	}
	script, err := backend.Overlay(layers...)
	if err != nil {
		return opts, fmt.Errorf("--script %s: %w", f.script, err)
	}
	opts.Script = script
	if f.replay != "" {
		opts.Replay, err = backend.OpenReplay(f.replay)
		if err != nil {
			return opts, fmt.Errorf("--replay: %w", err)
		}
	}
	return opts, nil
}
