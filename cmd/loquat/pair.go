package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"loquat"
	"loquat/internal/auth"
	"loquat/internal/config"
	"loquat/internal/tui"
)

// pairFlags are the flags of `loquat pair`.
type pairFlags struct {
	accessFlags
	device loquat.NewPairing
	json   bool
}

func newPairCommand() *cobra.Command {
	var f pairFlags
	cmd := &cobra.Command{
		Use:   "pair",
		Short: "Show a code that gives a phone or another device access",
		Long: "Creates a pairing code on a running server. It shows the code, the URL at which a device claims it and, at\n" +
			"a terminal, a QR code of both. A code is valid for five minutes and one device.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&f.device.Scope, "scope", "", "what the device may do: read, full or `user` (default: read; with --user, or a token of scope user, user)")
	cmd.Flags().StringVar(&f.device.Role, "role", "", "a `role` of server.roles, which says what the device may use")
	cmd.Flags().StringVar(&f.device.User, "user", "", "the `user` whose sessions a device of scope user may use")
	cmd.Flags().BoolVar(&f.json, "json", false, "print the code as JSON")
	return cmd
}

func (f *pairFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	cfg, err := f.configuration()
	if err != nil {
		return err
	}
	c, err := f.client(cfg)
	if err != nil {
		return err
	}
	defer c.CloseIdleConnections()
	if f.device.User != "" && f.device.Scope == "" {
		f.device.Scope = auth.User
	}
	p, err := c.Pair(ctx, f.device)
	if err != nil {
		return err
	}
	if f.json {
		return json.NewEncoder(stdout).Encode(p)
	}
	fmt.Fprintf(stdout, "code: %s\nurl: %s\nexpires: %s\n", tui.OneLine(p.Code), tui.OneLine(p.URL), p.ExpiresAt.Local().Format(time.DateTime))
	if look := tui.Detect(stdout, os.Getenv); look.Terminal {
		code, err := tui.QR(pairLink(p), look)
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "\n%s", code)
	}
	if f.device.Scope == "" {
		fmt.Fprintln(stderr, "a device with this code may only read, unless the token of this command is of scope user; with --scope full it may write, too")
	}
	if u, err := url.Parse(p.URL); err == nil && config.IsLoopback(hostPort(u)) {
		fmt.Fprintln(stderr, "only this machine can reach that URL; set server.public_url for others")
	}
	return nil
}

// pairLink returns the URL of the page that claims the code. The code follows #, so it is
// neither sent to the server nor written to access logs.
func pairLink(p loquat.Pairing) string { return strings.TrimRight(p.URL, "/") + "/#pair=" + p.Code }
