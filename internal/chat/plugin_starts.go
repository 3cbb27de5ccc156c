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
	"loquat/internal/plugin"
)

// awaitPlugins waits until the plugins that an agent enables have ended their first
// start. It fails when a required one does not run. The log and Plugins report others
// that do not run: the request starts without them.
func (s *Service) awaitPlugins(ctx context.Context, agentID string, log *slog.Logger) error {
	base, _, err := s.config.Base(agentID)
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
			s.absences.note(p.Name())
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

// awaitFirstStarts returns when the first start of each plugin has come to an end.
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

// absences counts the requests that started while a plugin did not run.
type absences struct {
	mu     sync.Mutex
	counts map[string]int // by the name of the plugin
	last   map[string]time.Time
}

func (a *absences) note(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.counts == nil {
		a.counts, a.last = map[string]int{}, map[string]time.Time{}
	}
	a.counts[name]++
	a.last[name] = time.Now()
}

// problems reports how many requests a plugin has missed.
func (a *absences) problems(name string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.counts[name]
	if n == 0 {
		return nil
	}
	return []string{fmt.Sprintf("requests that started while it did not run: %d, the last at %s", n, a.last[name].UTC().Format(time.RFC3339))}
}
