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
		Long: "Prints the OpenAPI document of the server's own routes, for generators of typed clients. It needs no server. What a\n" +
			"server serves at /openapi.json also has the routes of OpenAI's API (/v1/...) and of the bridge.",
		Args: cobra.NoArgs,
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
