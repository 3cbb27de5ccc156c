package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"loquat"
	"loquat/internal/config"
)

// completeCommand sets what shells complete for the arguments and flags of a command: files,
// directories, agents, or words. Everything else has no completion; cobra would offer files.
func completeCommand(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil && !cmd.HasSubCommands() {
		cmd.ValidArgsFunction = completionOf(argumentName(cmd))
	}
	for _, flags := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
		flags.VisitAll(func(f *pflag.Flag) {
			kind, _ := pflag.UnquoteUsage(f)
			if words := flagWords[f.Name]; words != "" {
				kind = words
			}
			// The error is that the flag has a completion already.
			_ = cmd.RegisterFlagCompletionFunc(f.Name, completionOf(kind))
		})
	}
}

// argumentName returns what the usage of a command calls its arguments, such as "FILE|DIR".
func argumentName(cmd *cobra.Command) string {
	words := strings.Fields(cmd.Use)
	return strings.ToLower(strings.Trim(words[len(words)-1], "[]."))
}

// flagWords has the values of flags that have few, or the kind of value that the usage does not name.
var flagWords = map[string]string{
	"agent":  "agent",
	"format": "json|markdown|html",
	"scope":  "full|read|session|user",
}

// completionOf returns the completion for a kind of value: file, directory, agent, or words between
// bars.
func completionOf(kind string) cobra.CompletionFunc {
	switch kind {
	case "file", "file|dir", "folder", "place":
		return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		}
	case "directory", "dir":
		return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		}
	case "agent":
		return completeAgents
	}
	if values := strings.Split(kind, "|"); len(values) > 1 {
		return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	}
	return cobra.NoFileCompletions
}

// completeAgents returns the agents of the configuration that the command would use.
func completeAgents(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	env, named := config.ProcessEnvironment(), ""
	if f := cmd.Flags().Lookup("config"); f != nil {
		named = f.Value.String()
	}
	cfg := config.New(loquat.Object{}, env)
	if path := config.Find(named, env); path != "" {
		if read, _ := config.Load(path, env); read != nil { // its problems are for config check
			cfg = read
		}
	}
	return cfg.Agents(), cobra.ShellCompDirectiveNoFileComp
}
