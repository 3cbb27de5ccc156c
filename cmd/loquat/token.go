package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"loquat"
	"loquat/internal/auth"
	"loquat/internal/client"
	"loquat/internal/config"
	"loquat/internal/store"
	"loquat/internal/tui"
)

// accessFlags choose whose tokens and devices are meant: those of a running server or of a
// data directory.
type accessFlags struct{ server, token, config, data string }

func (f *accessFlags) add(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&f.server, "server", "", "`URL` of a running server (default: the one that the configuration describes)")
	flags.StringVar(&f.token, "token", "", "access `token` of the server, of scope full")
	f.addConfig(flags)
}

// addConfig adds the flags that locate a server's data.
func (f *accessFlags) addConfig(flags *pflag.FlagSet) {
	flags.StringVar(&f.config, "config", "", "configuration `file` of the server (default: the one that serve would use)")
	flags.StringVar(&f.data, "data", "", "data `directory` of the server")
}

// configuration returns the configuration that serve would use with the same flags. It may refer to variables that
// only the server has, such as keys of backends, but not where it says how the server and its data are reached.
func (f *accessFlags) configuration() (*config.Config, error) {
	env := config.ProcessEnvironment()
	cfg := config.New(loquat.Object{}, env)
	if path := config.Find(f.config, env); path != "" {
		var problems []config.Problem
		if cfg, problems = config.Load(path, env); cfg != nil {
			problems = slices.DeleteFunc(problems, func(p config.Problem) bool {
				return !slices.ContainsFunc([]string{"server.", "store.", "assets."}, func(part string) bool { return strings.HasPrefix(p.Path, part) })
			})
		}
		if config.Failed(problems) {
			return nil, configError(problems)
		}
	}
	cfg.SetServer("", f.data)
	return cfg, nil
}

// dataDir returns the named data directory, or that of the configuration. If the sessions are
// not there, the error contains the remedy.
func (f *accessFlags) dataDir(remedy string) (string, error) {
	if f.data != "" {
		return f.data, nil
	}
	cfg, err := f.configuration()
	if err != nil {
		return "", err
	}
	return cfg.Server.DataDir, requireEmbedded(cfg, remedy)
}

// client returns a client of the named server, or of the server that the configuration
// describes.
func (f *accessFlags) client(cfg *config.Config) (*client.Client, error) {
	address, trusted := f.server, (*tls.Config)(nil)
	if address == "" {
		address = localURL(cfg.Server)
		if file := cfg.Server.TLS.CertFile; file != "" {
			var err error
			if trusted, err = trustOnly(file); err != nil {
				return nil, usageError{fmt.Errorf("server.tls.cert_file: %w; or name the server as its certificate does, with --server https://NAME", err)}
			}
		}
	}
	c, err := client.New(address, client.Options{Token: f.token, TLS: trusted})
	if err != nil {
		return nil, usageError{err}
	}
	return c, nil
}

// trustOnly accepts the certificate of a file, whoever issued it and whatever name it has: a server on this machine is
// called by its address.
func trustOnly(file string) (*tls.Config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	own, _ := pem.Decode(text)
	if own == nil {
		return nil, fmt.Errorf("%s has no certificate", file)
	}
	return &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(c tls.ConnectionState) error {
		if len(c.PeerCertificates) == 0 || !bytes.Equal(c.PeerCertificates[0].Raw, own.Bytes) {
			return fmt.Errorf("the server there has another certificate than %s", file)
		}
		return nil
	}}, nil
}

// localURL returns the URL at which a server is reached from its own machine.
func localURL(s config.Server) string {
	u := url.URL{Scheme: "http", Host: s.Listen}
	if s.TLS.CertFile != "" {
		u.Scheme = "https"
	}
	if host, port, err := net.SplitHostPort(s.Listen); err == nil {
		if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
			u.Host = net.JoinHostPort("127.0.0.1", port)
		}
	}
	return u.String()
}

// hostPort returns the host and port of a URL.
func hostPort(u *url.URL) string { return net.JoinHostPort(u.Hostname(), u.Port()) }

// tokens are the tokens of a server, read over HTTP or from a data directory.
type tokens interface {
	MakeToken(ctx context.Context, t loquat.NewToken) (loquat.Token, error)
	Tokens(ctx context.Context) ([]loquat.Token, error)
	RevokeToken(ctx context.Context, id string) error
}

// tokensAt are tokens, and the place where they are valid.
type tokensAt struct {
	tokens
	place   string
	unaware string // URL of a server that answers where the configuration says, and uses other data; "" for none
	inUse   error  // why a server is asked that was not named; nil otherwise
}

// open returns the tokens of the named server. Without a named server it opens the data
// directory, or asks the server that uses it.
func (f *accessFlags) open(ctx context.Context) (tokensAt, func() error, error) {
	cfg, err := f.configuration()
	if err != nil {
		return tokensAt{}, nil, err
	}
	var inUse error
	if f.server == "" {
		keeper, done, err := openStored(ctx, cfg, slog.New(slog.DiscardHandler))
		if err == nil {
			return tokensAt{tokens: storedKeys{keeper}, place: storePlace(cfg), unaware: f.unaware(ctx, cfg)}, done, nil
		}
		if !errors.Is(err, store.ErrInUse) {
			return tokensAt{}, nil, err
		}
		inUse = err
	}
	c, err := f.client(cfg)
	if err != nil {
		return tokensAt{}, nil, err
	}
	return tokensAt{tokens: c, place: "the server at " + strings.TrimSuffix(c.URL(), "/"), inUse: inUse}, func() error { c.CloseIdleConnections(); return nil }, nil
}

// unaware returns the URL of a server that answers where the configuration says, although no server uses the data.
func (f *accessFlags) unaware(ctx context.Context, cfg *config.Config) string {
	if f.data != "" || cfg.Store.URL != "" { // the data were chosen; servers share a database
		return ""
	}
	u := localURL(cfg.Server)
	if askHealth(ctx, u+"/healthz", io.Discard) != nil {
		return ""
	}
	return u
}

// storedKeys are the tokens of a data directory. A user who can read the directory needs no
// token.
type storedKeys struct{ keeper *auth.Keeper }

func (s storedKeys) MakeToken(ctx context.Context, t loquat.NewToken) (loquat.Token, error) {
	made, secret, err := s.keeper.MakeToken(ctx, t)
	out := made.AsToken()
	out.Token = secret
	return out, err
}

func (s storedKeys) Tokens(context.Context) (out []loquat.Token, err error) {
	for _, key := range s.keeper.Tokens() {
		out = append(out, key.AsToken())
	}
	return out, nil
}

func (s storedKeys) RevokeToken(ctx context.Context, id string) error {
	return s.keeper.RevokeToken(ctx, id)
}

func newTokenCommand() *cobra.Command {
	var f accessFlags
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Create, list and revoke access tokens",
		Long: "Creates, lists and revokes access tokens of a running server, or of a data directory that no server uses.\n" +
			"Once there is a token, every call of the server needs one.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	f.add(cmd)
	cmd.AddCommand(newTokenNewCommand(&f), newTokenListCommand(&f), newTokenRevokeCommand(&f))
	return cmd
}

func newTokenNewCommand(f *accessFlags) *cobra.Command {
	var t loquat.NewToken
	var lifetime time.Duration
	cmd := &cobra.Command{
		Use:     "new NAME",
		Short:   "Create a token and print it; it cannot be printed again",
		Example: "  loquat token new laptop\n  loquat token new wallboard --scope read --expires 720h",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t.Name = args[0]
			if lifetime < 0 || lifetime > 0 && lifetime < time.Second {
				return usageError{errors.New("--expires must be at least 1s")}
			}
			for scope, id := range map[string]string{"session": t.SessionID, "user": t.User} {
				if (t.Scope == scope) != (id != "") {
					return usageError{fmt.Errorf("--scope %s and --%s belong together; give both or none", scope, scope)}
				}
			}
			if lifetime > 0 {
				t.ExpiresInSeconds = new(int(lifetime / time.Second))
			}
			return f.with(cmd.Context(), func(k tokensAt) error { return makeToken(cmd.Context(), k, t, cmd.OutOrStdout(), cmd.ErrOrStderr()) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&t.Scope, "scope", "full", "what the token may do: `full`, read, session or user")
	flags.StringVar(&t.SessionID, "session", "", "the `id` of the session that a token of scope session may use")
	flags.StringVar(&t.User, "user", "", "the `user` whose sessions a token of scope user may use")
	flags.StringVar(&t.Role, "role", "", "a `role` of server.roles, which says what the token may use, and how much")
	flags.DurationVar(&lifetime, "expires", 0, "how long the token is valid, such as 720h (default: until it is revoked)")
	return cmd
}

// with calls run with the chosen tokens.
func (f *accessFlags) with(ctx context.Context, run func(tokensAt) error) error {
	k, done, err := f.open(ctx)
	if err != nil {
		return err
	}
	err = run(k)
	if k.inUse != nil && loquat.CodeOf(err) == loquat.CodeUnavailable {
		err = fmt.Errorf("%w; it was asked because %w", err, k.inUse)
	}
	return errors.Join(err, done())
}

func makeToken(ctx context.Context, k tokensAt, t loquat.NewToken, stdout, stderr io.Writer) error {
	before, err := k.Tokens(ctx)
	if err != nil {
		return err
	}
	made, err := k.MakeToken(ctx, t)
	if err != nil {
		return err
	}
	fmt.Fprintf(stderr, "token %s, %q, scope %s, for %s; it is not kept and cannot be shown again:\n", tui.OneLine(made.TokenID), made.Name, tui.OneLine(made.Scope), k.place)
	if _, err := fmt.Fprintln(stdout, tui.OneLine(made.Token)); err != nil {
		return err
	}
	if len(before) == 0 {
		fmt.Fprintln(stderr, "this is the first token there: from now on every call needs one")
	}
	if k.unaware != "" {
		fmt.Fprintf(stderr, "the server at %s uses other data and does not know this token; to make one there, add --server %[1]s\n", k.unaware)
	}
	return nil
}

func newTokenListCommand(f *accessFlags) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the tokens, without their secrets",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.with(cmd.Context(), func(k tokensAt) error {
				list, err := k.Tokens(cmd.Context())
				if err != nil {
					return err
				}
				if asJSON {
					return json.NewEncoder(cmd.OutOrStdout()).Encode(list)
				}
				return printTokens(cmd.OutOrStdout(), list)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the tokens as JSON")
	return cmd
}

func printTokens(w io.Writer, list []loquat.Token) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tNAME\tSCOPE\tMADE\tEXPIRES\tLAST USED")
	for _, t := range list {
		scope := t.Scope
		if t.SessionID != "" {
			scope += " " + t.SessionID
		}
		if t.User != "" {
			scope += " " + t.User
		}
		made := t.Source
		if t.CreatedAt != nil {
			made = t.CreatedAt.Format(time.DateOnly)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", tui.OneLine(t.TokenID), tui.OneLine(t.Name), tui.OneLine(scope), tui.OneLine(made), dayOr(t.ExpiresAt, "never"), orDash(t.LastUsedOn))
	}
	return table.Flush()
}

func dayOr(t *time.Time, otherwise string) string {
	if t == nil {
		return otherwise
	}
	return t.Format(time.DateOnly)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func newTokenRevokeCommand(f *accessFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke ID",
		Short: "Revoke a token at once",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.with(cmd.Context(), func(k tokensAt) error { return k.RevokeToken(cmd.Context(), args[0]) })
		},
	}
}
