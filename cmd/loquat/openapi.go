package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"loquat/internal/httpapi"
)

func newOpenAPICommand() *cobra.Command {
	return &cobra.Command{
		Use:   "openapi",
		Short: "Print the OpenAPI document of the HTTP API",
		Long:  "Prints what a server of this version serves at /openapi.json, for generators of typed clients. It needs no server.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			document, err := httpapi.Document()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", document)
			return err
		},
	}
}
