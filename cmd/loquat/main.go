// Command loquat keeps chat sessions durable, runs their requests against any
// backend with a chat-completions HTTP API, and lets clients follow.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"loquat"
	"loquat/internal/nearest"
	"loquat/internal/store"
	"loquat/internal/tui"
)

// The exit codes.
const (
	exitOK      = 0
	exitFailure = 1 // something failed while running
	exitUsage   = 2 // wrong usage or configuration
)

// usageError reports wrong usage or configuration: exit code 2.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// doubled is how long after a signal the same one may come again from a parent that forwards what the terminal has
// sent already.
const doubled = time.Second

func main() { os.Exit(mainExitCode()) }

func mainExitCode() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() { time.AfterFunc(doubled, stop) }) // then a further signal ends the process at once
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(os.Stderr, "loquat:", printable(err))
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	return exitFailure
}

// printable returns the text of an error in a form that is safe on a terminal. The error may
// quote text of others.
func printable(err error) string {
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		lines[i] = loquat.Clip(line, loquat.MaxDetail)
	}
	return tui.Clean(strings.Join(lines, "\n"))
}

// run runs a command line. It does not use the arguments, the streams or the exit code of the
// process.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	root := &cobra.Command{
		Use:           "loquat",
		Short:         "A self-hosted chat session service in one binary",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetArgs(args)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w; %s --help lists the flags", err, cmd.CommandPath())}
	})
	root.Version = thisBuild().String()
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddCommand(commands()...)
	root.SetHelpCommand(newHelpCommand())
	prepare(root)
	cmd, err := root.ExecuteContextC(ctx)
	return advised(cmd, err)
}

// notOwner says what to do about files that the user of a command may not use.
const notOwner = "run this as the user to whom the files belong, or give them to this user: chown -R"

// advised adds to an error the flag that fixes it, if the command has one, or what to do about files.
func advised(cmd *cobra.Command, err error) error {
	wants := func(flag string) bool {
		f := cmd.Flags().Lookup(flag)
		return f != nil && f.Value.String() == ""
	}
	switch {
	case errors.Is(err, store.ErrInUse) && wants("server"):
		return fmt.Errorf("%w; or name the server that uses it with --server", err)
	case loquat.CodeOf(err) == loquat.CodeUnauthorized && wants("token"):
		return fmt.Errorf("%w; give it with --token or %s", err, envName(cmd, "token"))
	case loquat.CodeOf(err) == loquat.CodeUnavailable && wants("server"):
		if wants("config") {
			return fmt.Errorf("%w; --server names another, and --config one by its configuration", err)
		}
		return fmt.Errorf("%w; --server names another", err)
	case errors.Is(err, fs.ErrPermission) && !strings.Contains(err.Error(), "chown"):
		return fmt.Errorf("%w; %s", err, notOwner)
	}
	return err
}

// commands returns the subcommands. Each is in the file of its name.
func commands() []*cobra.Command {
	return []*cobra.Command{
		newBackendCommand(),
		newBackupCommand(),
		newCheckCommand(),
		newMigrateCommand(),
		newUpgradeCommand(),
		newHealthCommand(),
		newManCommand(),
		newBridgeCommand(),
		newConfigCommand(),
		newGuardCommand(),
		newRestoreCommand(),
		newServeCommand(),
		newChatCommand(),
		newExportCommand(),
		newImportCommand(),
		newEventsCommand(),
		newOpenAPICommand(),
		newPairCommand(),
		newTokenCommand(),
		newPluginCommand(),
		newVersionCommand(),
	}
}

// prepare gives every command what all commands share: environment variables and completion for its flags,
// and exit code exitUsage for wrong arguments and flags.
func prepare(cmd *cobra.Command) {
	bindEnv(cmd)
	completeCommand(cmd)
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if _, explained := errors.AsType[usageError](err); err == nil || explained {
				return err
			}
			return argumentsError(cmd, args)
		}
	}
	for _, sub := range cmd.Commands() {
		prepare(sub)
	}
}

// argumentsError reports a wrong number of arguments and shows the usage.
func argumentsError(cmd *cobra.Command, args []string) error {
	if !cmd.HasAvailableSubCommands() {
		return usageError{fmt.Errorf("%d %s given; usage: %s", len(args), plural(len(args), "argument"), cmd.UseLine())}
	}
	var known []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			known = append(known, sub.Name())
		}
	}
	return usageError{fmt.Errorf("%s has no command %q%s; see '%[1]s --help'", cmd.CommandPath(), args[0], nearest.Hint(args[0], 2, known...))}
}

// newHelpCommand returns a help command that fails for unknown commands.
func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show what a command does and its flags",
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return argumentsError(found, rest)
			}
			return found.Help()
		},
	}
}
