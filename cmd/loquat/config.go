package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"loquat/internal/config"
	"loquat/internal/mcphost"
	"loquat/internal/plugin"
	"loquat/internal/tui"
)

func newConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check, show and reload the configuration",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newConfigCheckCommand(), newConfigShowCommand(), newConfigReloadCommand())
	return cmd
}

func newConfigCheckCommand() *cobra.Command {
	var file string
	var insecure, debugInsecure bool
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Report all errors of a configuration",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && file != "" && file != os.Getenv(envName(cmd, "config")) { // an argument overrides the variable
				return usageError{errors.New("the file is given twice, as an argument and with --config; leave one of them out")}
			}
			if len(args) == 1 {
				file = args[0]
			}
			path, err := configFile(file)
			if err != nil {
				return err
			}
			_, problems, _ := readConfig(path, insecure, debugInsecure)
			errorCount := 0
			for _, p := range problems {
				if p.Warning {
					fmt.Fprintln(cmd.OutOrStdout(), "warning:", tui.Clean(p.String()))
					continue
				}
				errorCount += p.Count()
				fmt.Fprintln(cmd.OutOrStdout(), tui.Clean(p.String()))
			}
			if errorCount > 0 {
				return usageError{fmt.Errorf("%s cannot be used: %d %s", path, errorCount, plural(errorCount, "problem"))}
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: ok\n", tui.Clean(path))
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&file, "config", "", "configuration `file` (default: the one that serve would use)")
	flags.BoolVar(&insecure, "insecure", false, "check for serve --insecure")
	flags.BoolVar(&debugInsecure, "debug-insecure", false, "check for serve --debug-insecure")
	return cmd
}

func newConfigShowCommand() *cobra.Command {
	var file, listen, data string
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print the effective configuration without secrets",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, err := configFile(file)
			if err != nil {
				return err
			}
			cfg, problems, facts := readConfig(path, true, true)
			if config.Failed(problems) {
				return configError(problems)
			}
			cfg.SetServer(listen, data)
			out := json.NewEncoder(cmd.OutOrStdout())
			out.SetEscapeHTML(false)
			out.SetIndent("", "  ")
			return out.Encode(map[string]json.RawMessage(cfg.Redacted(facts.Owners...)))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&file, "config", "", "configuration `file` (default: the one that serve would use)")
	flags.StringVar(&listen, "listen", "", "show the configuration of serve --listen `address`")
	flags.StringVar(&data, "data", "", "show the configuration of serve --data `directory`")
	return cmd
}

// configFile returns the named file, or the file that serve would use.
func configFile(named string) (string, error) {
	path := config.Find(named, config.ProcessEnvironment())
	if path == "" {
		return "", usageError{errors.New("there is no configuration file; write loquat.json here, or name one with --config")}
	}
	return path, nil
}

// readConfig reads a file and returns all its problems. The Config is nil if the file cannot
// be parsed as a configuration.
func readConfig(path string, insecure, debugInsecure bool) (*config.Config, []config.Problem, config.Loaded) {
	cfg, problems := config.Load(path, config.ProcessEnvironment())
	if cfg == nil {
		return nil, problems, config.Loaded{}
	}
	compiled := compiledIn(cfg.Limits, slog.New(slog.DiscardHandler), nil)
	stored, err := storedTokens(context.Background(), cfg, insecure, slog.New(slog.DiscardHandler))
	if err != nil {
		problems = append(problems, config.Problem{Path: "server.listen", Warning: true, Message: "others can reach the server, and whether its store has tokens cannot be read: " + err.Error()})
	}
	plugins := chosen(cfg, compiled)
	facts := loaded(compiled, plugins, insecure || stored || err != nil)
	facts.DebugInsecure = debugInsecure
	return cfg, config.InOrder(problems, cfg.Check(facts), startProblems(cfg, plugins), manifestProblems(cfg)), facts
}

// startProblems returns what keeps a server from starting although each key is valid: two
// plugins with one name, or a certificate that cannot be loaded.
func startProblems(cfg *config.Config, plugins []plugin.Plugin) (problems []config.Problem) {
	quiet := slog.New(slog.DiscardHandler)
	if _, err := plugin.NewRegistry(withProcesses(cfg, plugins, mcphost.Options{Logger: quiet})...); err != nil {
		problems = append(problems, config.Problem{Path: "plugins", Message: err.Error() + "; each name may be listed once"})
	}
	if files := cfg.Server.TLS; files.CertFile != "" && files.KeyFile != "" {
		if _, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile); err != nil {
			problems = append(problems, config.Problem{Path: "server.tls", Message: "cannot be used: " + err.Error()})
		}
	}
	return problems
}

// manifestProblems returns the faults of plugin directories. They are warnings, because the
// server starts without these plugins.
func manifestProblems(cfg *config.Config) []config.Problem {
	var problems []config.Problem
	for i, entry := range cfg.Plugins {
		dir, ok := strings.CutPrefix(entry, "path:")
		if !ok || !filepath.IsAbs(dir) {
			continue
		}
		_, faults := mcphost.ReadManifest(dir)
		for _, f := range faults {
			f.Message, f.Path, f.Warning = f.String(), fmt.Sprintf("plugins[%d]", i), true
			problems = append(problems, f)
		}
	}
	return problems
}

func plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}
