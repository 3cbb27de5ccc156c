package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/headroom"
	"loquat/internal/store"
	"loquat/internal/store/datadir"
	"loquat/internal/store/postgres"
	"loquat/internal/store/sqlite"
	"loquat/internal/tui"
)

func newUpgradeCommand() *cobra.Command {
	var f accessFlags
	var check bool
	cmd := &cobra.Command{
		Use:   "upgrade --check [FILE|DIR]",
		Short: "Say what the next start of this program changes",
		Long: "Says whether this program accepts a configuration FILE and can open its data, and what its next start changes:\n" +
			"the schema of the data, for which programs, and how much room that needs. It changes nothing. A server, also one\n" +
			"of another version, may run meanwhile. DIR is a data directory without a configuration.",
		Example: "  loquat upgrade --check /etc/loquat/loquat.json\n  loquat upgrade --check /mnt/backup/loquat-monday",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !check {
				return usageError{errors.New("a server upgrades its data itself when it starts; --check says what that would change")}
			}
			alone := false
			if len(args) == 1 {
				info, err := os.Stat(args[0])
				switch {
				case err != nil:
					return usageError{err}
				case info.IsDir():
					f.data, alone = args[0], true
				default:
					f.config = args[0]
				}
			}
			u := upgradeCheck{out: cmd.OutOrStdout(), alone: alone}
			return u.run(cmd.Context(), f)
		},
	}
	f.addConfig(cmd.Flags())
	cmd.Flags().BoolVar(&check, "check", false, "say what an upgrade changes, and change nothing")
	return cmd
}

// upgradeCheck prints what an upgrade changes, a line for each fact, and counts what prevents it.
type upgradeCheck struct {
	out      io.Writer
	alone    bool // a directory was named, which needs no configuration
	problems int
}

func (c *upgradeCheck) say(about, format string, args ...any) {
	fmt.Fprintf(c.out, "%s: %s\n", about, tui.OneLine(fmt.Sprintf(format, args...)))
}

func (c *upgradeCheck) problem(about, format string, args ...any) {
	c.problems++
	c.say(about, "problem: "+format, args...)
}

func (c *upgradeCheck) run(ctx context.Context, f accessFlags) error {
	c.say("program", "%s", thisBuild())
	cfg := c.configuration(f)
	unusable := c.problems > 0
	switch {
	case cfg == nil:
	case cfg.Store.URL != "":
		c.database(ctx, cfg)
	default:
		c.directory(ctx, cfg.Server.DataDir)
	}
	if c.problems == 0 {
		return nil
	}
	err := fmt.Errorf("this program cannot take over: %d %s", c.problems, plural(c.problems, "problem"))
	if unusable {
		return usageError{err}
	}
	return err
}

// configuration checks the configuration that serve would use, and returns it.
func (c *upgradeCheck) configuration(f accessFlags) *config.Config {
	env := config.ProcessEnvironment()
	cfg := config.New(loquat.Object{}, env)
	path := config.Find(f.config, env)
	if path == "" || c.alone {
		cfg.SetServer("", f.data)
		return cfg
	}
	// Whether others may reach the server is not asked here: that would read its tokens.
	cfg, problems, _ := readConfig(path, true, true)
	for _, p := range problems {
		if p.Warning {
			c.say("configuration", "warning: %s", p)
			continue
		}
		c.problem("configuration", "%s", p)
		c.problems += p.Count() - 1
	}
	if c.problems == 0 {
		c.say("configuration", "%s is accepted", path)
	}
	if cfg != nil {
		cfg.SetServer("", f.data)
	}
	return cfg
}

// unreadable reports that the data cannot be opened.
func (c *upgradeCheck) unreadable(err error) {
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w; %s", err, notOwner)
	}
	c.problem("data", "%v", err)
}

// directory checks a data directory, and the room on its disk.
func (c *upgradeCheck) directory(ctx context.Context, dir string) {
	if _, err := os.ReadDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.unreadable(err)
		return
	}
	if !sqlite.Exists(dir) {
		c.say("data", "%s has no data yet; the first start creates the database", dir)
		return
	}
	u, err := sqlite.PlanUpgrade(ctx, dir, slog.New(slog.DiscardHandler))
	if err != nil {
		c.unreadable(err)
		return
	}
	c.plan(dir, u, "loquat backup, with the program that made it, is the way back")
	free, _, err := headroom.FreeDisk(dir)
	need := int64(0)
	if len(u.Tables) > 0 { // the write-ahead log gets what changes, at most everything
		need = u.Size
	}
	switch {
	case err != nil:
		c.say("disk", "the room for it is not known: %v", err)
	case need == 0:
	case free < need:
		c.problem("disk", "the upgrade needs up to %s, and %s are free; make room first", mebibytes(need), mebibytes(free))
	default:
		c.say("disk", "the upgrade needs up to %s, and %s are free", mebibytes(need), mebibytes(free))
	}
}

// database checks a PostgreSQL database.
func (c *upgradeCheck) database(ctx context.Context, cfg *config.Config) {
	opts := postgres.Options{URL: cfg.Store.URL, Logger: slog.New(slog.DiscardHandler)}
	if _, err := os.Stat(filepath.Join(cfg.Server.DataDir, datadir.NodeName)); err == nil {
		opts.Node, _ = datadir.NodeID(cfg.Server.DataDir) // without it this node counts as another one
	}
	place := postgres.Masked(cfg.Store.URL)
	m, _, err := postgres.Peek(ctx, opts)
	if err == nil {
		err = m.Usable()
	}
	var u store.Upgrade
	if err == nil {
		u, err = postgres.PlanUpgrade(ctx, opts)
	}
	if err != nil {
		c.unreadable(err)
		return
	}
	c.plan(place, u, "a backup of the database is the way back")
}

// plan prints what an upgrade changes in the data.
func (c *upgradeCheck) plan(place string, u store.Upgrade, backup string) {
	switch {
	case u.From == 0:
		c.say("data", "%s has no tables yet; the next start makes schema %d", place, u.To)
	case u.From == u.To:
		c.say("data", "%s has schema %d, which this program uses: the next start changes nothing in it", place, u.From)
	case u.From > u.To:
		c.say("data", "%s has schema %d of a newer program; this program knows %d and can use it", place, u.From, u.To)
	default:
		c.say("data", "%s has schema %d; the next start changes it to %d", place, u.From, u.To)
		if len(u.Tables) > 0 {
			c.say("time", "the change goes through the whole %s %s, in a database of %s; the server listens when it is done", plural(len(u.Tables), "table"), strings.Join(u.Tables, ", "), mebibytes(u.Size))
		} else {
			c.say("time", "the change takes a moment, however large the data is")
		}
	}
	switch {
	case u.Closed():
		c.say("way back", "closed: afterwards only programs that know schema %d or newer can open the data; %s", u.Least, backup)
	case u.From > 0:
		c.say("way back", "open: the program that used the data until now can open it again")
	}
	switch {
	case u.InUse && u.From < u.To:
		c.say("server", "a server uses the data now; the change is made when a server of this version starts")
	case u.InUse:
		c.say("server", "a server uses the data now")
	default:
		c.say("server", "no server uses the data now")
	}
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
