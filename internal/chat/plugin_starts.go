package chat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/plugin"
)

// await waits until the plugins that an agent enables have ended their first
// start. It fails when a required one does not run. The log and Plugins report others
// that do not run: the request starts without them.
func (s *pluginStarts) await(ctx context.Context, agentID string, log *slog.Logger) error {
	base, _, err := s.config.Now().Base(agentID)
	if err != nil {
		return err
	}
	enabled := slices.Concat(s.plugins.Core(base.String("provider")), s.plugins.Applications())
	if err := awaitFirstStarts(ctx, enabled, log); err != nil {
		return err
	}
	var absent []string
	for _, p := range enabled {
		process, ok := p.(plugin.Process)
		status := plugin.StatusOf(p)
		if !ok || status.State == plugin.StateRunning {
			continue
		}
		if !status.Required {
			absent = append(absent, fmt.Sprintf("%s (%s)", p.Name(), status.State))
			s.note(p.Name())
		} else if err := process.AwaitRunning(ctx); ctx.Err() != nil {
			return context.Cause(ctx)
		} else if err != nil {
			return missingPlugin(err)
		}
	}
	if len(absent) > 0 {
		log.Warn("request starts while plugins do not run", "plugins", strings.Join(absent, ", "))
	}
	return nil
}

// missingPlugin returns the error of a request whose required plugin does not run.
func missingPlugin(err error) error {
	why := err.Error()
	if e, ok := errors.AsType[*loquat.Error](err); ok {
		why = e.Detail
	}
	return loquat.Errorf(loquat.CodeUnavailable, "%s; required_plugins lists it, so nothing runs without it", why)
}

// awaitFirstStarts returns when the first start of each plugin has succeeded or failed.
func awaitFirstStarts(ctx context.Context, plugins []plugin.Plugin, log *slog.Logger) error {
	logged := false
	for _, p := range plugins {
		process, ok := p.(plugin.Process)
		if !ok || !plugin.InFirstStart(p) {
			continue
		}
		if !logged {
			log.Info("request waits for plugins that start", "plugin", p.Name())
			logged = true
		}
		select {
		case <-process.FirstStart():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// pluginStarts makes requests wait for plugins that start, and counts those that started
// while a plugin did not run.
type pluginStarts struct {
	config  *config.Live
	plugins *plugin.Registry

	mu     sync.Mutex
	counts map[string]int // by the name of the plugin
	last   map[string]time.Time
}

func (s *pluginStarts) note(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts == nil {
		s.counts, s.last = map[string]int{}, map[string]time.Time{}
	}
	s.counts[name]++
	s.last[name] = time.Now()
}

// problems reports how many requests a plugin has missed.
func (s *pluginStarts) problems(name string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.counts[name]
	if n == 0 {
		return nil
	}
	return []string{fmt.Sprintf("requests that started while it did not run: %d, the last at %s", n, s.last[name].UTC().Format(time.RFC3339))}
}
