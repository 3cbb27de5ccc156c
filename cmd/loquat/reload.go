package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"loquat"
	"loquat/internal/auth"
	"loquat/internal/config"
	"loquat/internal/jwt"
	"loquat/internal/plugin"
	"loquat/internal/tui"
)

// maxChanges is how many changed keys the answer to a reload lists.
const maxChanges = 100

// configuration is the configuration of a server, and what a reload of it needs.
type configuration struct {
	opts     serveOptions
	file     string // "" if there is none
	live     *config.Live
	compiled []plugin.Plugin
	issuers  *jwt.Verifier
	usable   prometheus.Gauge // 1 unless the last reload failed

	reloading sync.Mutex
	read      *config.Config // the file as it was read last, also with what needs a restart
}

// use begins with the configuration of a start.
func (c *configuration) use(cfg *config.Config) {
	c.live, c.read, c.issuers = config.NewLive(cfg), cfg, configIssuers(cfg)
	c.usable = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "loquat_config_last_reload_successful", Help: "1 unless the configuration file could not be used at the last reload.",
	})
	c.usable.Set(1)
}

// access returns what a configuration says about access.
func (c *configuration) access(cfg *config.Config) auth.Configured {
	return auth.Configured{
		Tokens: configTokens(cfg), JWT: c.issuers, Roles: slices.Sorted(maps.Keys(cfg.Server.Roles)),
		Exposed: !c.opts.insecure && isReached(cfg.Server),
	}
}

// reload takes up the configuration file as it is now. What runs goes on, with the settings with which it
// began. If the file cannot be used, nothing changes.
func (s *server) reload(ctx context.Context) (loquat.ConfigReload, error) {
	c := &s.config
	c.reloading.Lock()
	defer c.reloading.Unlock()
	out, err := s.takeUp(ctx)
	if err != nil {
		if loquat.CodeOf(err) == loquat.CodeInvalid { // else the file may be fine, and the next start too
			c.usable.Set(0)
		}
		s.log.Error("the configuration was not reloaded", "error", err)
		if e, ok := errors.AsType[*loquat.Error](err); ok {
			for _, f := range e.Fields {
				s.log.Error("configuration", "at", f.Location, "problem", f.Message)
			}
		}
		return out, err
	}
	c.usable.Set(1)
	s.logReload(out)
	return out, nil
}

// logReload says in the log what a reload has changed.
func (s *server) logReload(done loquat.ConfigReload) {
	for _, w := range done.Warnings {
		s.log.Warn("configuration", "at", w.Location, "problem", w.Message)
	}
	var now, later []string
	for _, change := range done.Changed {
		if change.Restart {
			later = append(later, change.Key)
		} else {
			now = append(now, change.Key)
		}
	}
	changed := strings.Join(now, " ")
	if done.More > 0 {
		changed += fmt.Sprintf(" and %d more", done.More)
	}
	s.log.Info("the configuration was reloaded", "changed", cmp.Or(changed, "nothing"))
	if len(later) > 0 {
		s.log.Warn("changes of the configuration need a restart", "keys", strings.Join(later, " "))
	}
}

func (s *server) takeUp(ctx context.Context) (out loquat.ConfigReload, err error) {
	c := &s.config
	if c.file == "" {
		return out, loquat.Errorf(loquat.CodeConflict, "the server was started without a configuration file, so it has none to reload; write one and start the server again")
	}
	env := config.ProcessEnvironment()
	next, problems, err := s.readFile(env)
	if err != nil {
		return out, unusable(problems)
	}
	using := c.live.Now()
	reloaded := using.Reloaded(next, env)
	problems = config.InOrder(problems, next.Check(s.factsOf(next)), startProblems(next, chosen(next, c.compiled)))
	if !config.Failed(problems) { // with the keys that need a restart as they are, other keys may be wrong
		problems = config.InOrder(problems, faultsOf(reloaded.Check(s.factsOf(reloaded))))
	}
	if !config.Failed(problems) && s.opens(reloaded.Server) {
		problems = append(problems, config.Problem{Path: "server.auth_tokens", Message: "without a token, everyone who reaches server.public_url would have full access; make one with `loquat token new NAME` first, or restart the server if the proxy restricts access"})
	}
	if config.Failed(problems) {
		return out, unusable(problems)
	}
	owners := s.factsOf(next).Owners
	s.secrets.Add(next.Secrets(owners...))
	if err := s.chat.AuditConfig(context.WithoutCancel(ctx), c.read.Changes(next, owners...)); err != nil {
		return out, err
	}
	if !reflect.DeepEqual(using.Server.JWT, reloaded.Server.JWT) { // otherwise the keys of the issuers need not be fetched again
		c.issuers = configIssuers(reloaded)
	}
	c.read = next
	c.live.Set(reloaded)
	s.access.Reconfigure(c.access(reloaded))
	s.store.SetRetention(reloaded.Events.Retention)
	s.chat.Reconfigure()
	return answerOf(using.Changes(next), problems), nil
}

// opens reports whether a server that asks for tokens would ask for none, while others reach it through a proxy.
func (s *server) opens(next config.Server) bool {
	return !s.config.opts.insecure && isReached(next) && s.access.Closed() && !next.Closed() && !s.access.Stores()
}

// factsOf returns what the check of a configuration needs to know.
func (s *server) factsOf(cfg *config.Config) config.Loaded {
	facts := loaded(s.config.compiled, chosen(cfg, s.config.compiled), s.config.opts.insecure || s.access.Stores())
	facts.DebugInsecure = s.config.opts.debugInsecure
	return facts
}

// faultsOf leaves out warnings.
func faultsOf(problems []config.Problem) []config.Problem {
	return slices.DeleteFunc(problems, func(p config.Problem) bool { return p.Warning })
}

// unusable returns the error of a reload.
func unusable(problems []config.Problem) error {
	return &loquat.Error{Code: loquat.CodeInvalid, Detail: "the configuration cannot be used; the server goes on with the one that it has", Fields: fieldsOf(faultsOf(problems))}
}

func fieldsOf(problems []config.Problem) (out []loquat.FieldError) {
	for _, p := range problems {
		out = append(out, loquat.FieldError{Location: p.Path, Message: p.Message})
	}
	return out
}

// answerOf returns the answer to a reload.
func answerOf(changes []config.Change, problems []config.Problem) loquat.ConfigReload {
	out := loquat.ConfigReload{Changed: []loquat.ConfigChange{}, Warnings: fieldsOf(problems)}
	for _, change := range changes[:min(len(changes), maxChanges)] {
		out.Changed = append(out.Changed, loquat.ConfigChange{Key: loquat.Clip(change.Key, loquat.Excerpt), Restart: change.Restart})
	}
	out.More = len(changes) - len(out.Changed)
	return out
}

func newConfigReloadCommand() *cobra.Command {
	var f accessFlags
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Let a running server take up its changed configuration file",
		Long: "Lets a running server read its configuration file again, as SIGHUP does, and prints which keys have changed.\n" +
			"No stream and no request ends. If the file cannot be used, the server goes on with what it has.",
		Example: "  loquat config reload\n  loquat config reload --server https://chat.example.org",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := f.configuration()
			if err != nil && f.server == "" {
				return err
			}
			c, err := f.client(cfg)
			if err != nil {
				return err
			}
			defer c.CloseIdleConnections()
			done, err := c.ReloadConfig(cmd.Context())
			if e, ok := errors.AsType[*loquat.Error](err); ok {
				for _, f := range e.Fields {
					fmt.Fprintln(cmd.OutOrStdout(), tui.OneLine(f.Location+": "+f.Message))
				}
			}
			if err != nil {
				return err
			}
			printReload(cmd.OutOrStdout(), done)
			return nil
		},
	}
	f.add(cmd)
	return cmd
}

// printReload prints a line for each key that has changed.
func printReload(out io.Writer, done loquat.ConfigReload) {
	for _, w := range done.Warnings {
		fmt.Fprintln(out, "warning:", tui.OneLine(w.Location+": "+w.Message))
	}
	for _, change := range done.Changed {
		when := ""
		if change.Restart {
			when = ": needs a restart"
		}
		fmt.Fprintln(out, tui.OneLine(change.Key)+when)
	}
	if done.More > 0 {
		fmt.Fprintf(out, "and %d more\n", done.More)
	}
	if len(done.Changed) == 0 {
		fmt.Fprintln(out, "nothing has changed")
	}
}
