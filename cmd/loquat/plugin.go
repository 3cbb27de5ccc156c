package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/mcphost"
	"loquat/internal/tui"
)

func newPluginCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plugin",
		Short: "List plugins, or check one",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPluginListCommand(), newPluginCheckCommand())
	return cmd
}

func newPluginListCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the plugins that a configuration loads",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg := config.New(loquat.Object{}, config.ProcessEnvironment())
			if path := config.Find(file, config.ProcessEnvironment()); path != "" {
				read, problems := config.Load(path, config.ProcessEnvironment())
				if read == nil {
					return configError(problems)
				}
				cfg = read
			}
			return listPlugins(cfg, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration `file` (default: the one that serve would use)")
	return cmd
}

// listPlugins prints one line per plugin, in the order in which they are loaded.
func listPlugins(cfg *config.Config, w io.Writer) error {
	quiet := slog.New(slog.DiscardHandler)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tKIND\tWHERE")
	wrong := 0
	for _, p := range withProcesses(cfg, chosen(cfg, compiledIn(cfg.Limits, quiet, nil)), mcphost.Options{Logger: quiet}) {
		where := "compiled in"
		if process, ok := p.(*mcphost.Plugin); ok {
			where = process.Dir()
			n := 0
			for _, f := range process.Faults() {
				n += f.Count()
			}
			if n > 0 {
				wrong++
				where += fmt.Sprintf(" (%d %s; see loquat plugin check)", n, plural(n, "problem"))
			}
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", tui.OneLine(p.Name()), tui.OneLine(p.Kind()), tui.OneLine(where))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if wrong > 0 {
		return fmt.Errorf("%d %s cannot be started", wrong, plural(wrong, "plugin"))
	}
	return nil
}

func newPluginCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check DIR",
		Short: "Start the plugin in a directory and report all its faults",
		Long: "Starts the plugin in a directory as the server would, and lists its tools. It calls the tools that Loquat\n" +
			"itself calls, with sample input, but runs no actions. It reports every fault and where it is. A warning is\n" +
			"about something that works but is probably a mistake; with warnings alone the exit code is 0.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			if info, err := os.Stat(dir); err != nil || !info.IsDir() {
				return usageError{fmt.Errorf("%s is not a directory; name the directory that holds plugin.json", args[0])}
			}
			cache, err := os.MkdirTemp("", "loquat-plugin-check-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(cache)
			var mu sync.Mutex
			var said []string
			report := mcphost.Check(cmd.Context(), dir, mcphost.Options{CacheDir: cache, Logger: newLogger(cmd.ErrOrStderr(), nil), OnLine: func(line string) {
				mu.Lock()
				defer mu.Unlock()
				said = append(said, line)
			}})
			mu.Lock()
			defer mu.Unlock()
			printReport(cmd.OutOrStdout(), report, said)
			if n := len(report.Faults); n > 0 {
				return errors.New(fmt.Sprint(n, " ", plural(n, "fault")))
			}
			return nil
		},
	}
}

// printReport prints the result of a check and the output of the plugin.
func printReport(w io.Writer, r mcphost.Report, said []string) {
	fmt.Fprintf(w, "plugin    %s\n", tui.OneLine(strings.TrimSpace(r.Name+" "+r.Version)))
	fmt.Fprintf(w, "kind      %s\n", tui.OneLine(r.Kind))
	if r.Command != "" {
		fmt.Fprintf(w, "command   %s\n", tui.OneLine(r.Command))
	}
	if r.Protocol != "" {
		fmt.Fprintf(w, "protocol  %s\n", tui.OneLine(r.Protocol))
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, t := range r.Tools {
		use := t.Use
		switch use {
		case "":
			use = "left out"
		case "model":
			use = "for models"
		}
		description, _, _ := strings.Cut(t.Description, "\n")
		fmt.Fprintf(table, "tool      %s\t%s\t%s\n", tui.OneLine(t.Name), use, tui.OneLine(description))
	}
	_ = table.Flush()
	for _, part := range []struct {
		name  string
		lines []string
	}{{"element", r.Elements}, {"said", said}, {"fault", r.Faults}, {"warning", r.Warnings}} {
		for _, line := range part.lines {
			fmt.Fprintf(w, "%-9s %s\n", part.name, tui.OneLine(line))
		}
	}
	if n := len(r.Warnings); n > 0 && len(r.Faults) == 0 {
		fmt.Fprintf(w, "ok, with %d %s\n", n, plural(n, "warning"))
	} else if len(r.Faults) == 0 {
		fmt.Fprintln(w, "ok")
	}
}
