package main

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// envPrefix is the annotation of a command whose environment variables have another prefix
// than LOQUAT_. With LOQUAT_ they would clash with the server's variables.
const envPrefix = "env-prefix"

// bindEnv gives every flag of a command an environment variable: LOQUAT_LISTEN for --listen.
// The command line wins. An empty variable counts as unset.
func bindEnv(cmd *cobra.Command) {
	before := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		var err error
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			name := envName(cmd, f.Name)
			value := os.Getenv(name)
			if value == "" || f.Changed || err != nil || f.Name == "help" || f.Name == "version" {
				return
			}
			if fault := cmd.Flags().Set(f.Name, value); fault != nil {
				err = usageError{fmt.Errorf("%s: %w", name, fault)}
			}
		})
		if err == nil {
			if fault := cmd.ValidateFlagGroups(); fault != nil {
				err = usageError{fault}
			}
		}
		if err != nil || before == nil {
			return err
		}
		return before(cmd, args)
	}
}

func envName(cmd *cobra.Command, flag string) string {
	return cmp.Or(cmd.Annotations[envPrefix], "LOQUAT_") + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}
