package chat

import (
	"github.com/prometheus/client_golang/prometheus"

	"loquat"
	"loquat/internal/plugin"
)

// counts are the metrics of requests. Their labels come from the configuration, or are words of this program:
// clients can name models.
type counts struct{ tokens, cost, ended, retries *prometheus.CounterVec }

func newCounts() counts {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	c := counts{
		tokens:  counter("loquat_tokens_total", "Tokens that calls of backends have used, by what is known of them: reported or estimated.", "provider_id", "direction", "source"),
		cost:    counter("loquat_cost_total", "What calls of backends have cost, by the prices of the configuration.", "provider_id"),
		ended:   counter("loquat_requests_ended_total", "Requests that have ended, by how: completed, failed or cancelled.", "status"),
		retries: counter("loquat_retries_total", "Calls of backends that are made again, by why: rate_limit, status, timeout, or stream for a recovery.", "cause"),
	}
	for _, status := range []loquat.RequestStatus{loquat.StatusCompleted, loquat.StatusFailed, loquat.StatusCancelled} {
		c.ended.WithLabelValues(string(status))
	}
	for _, cause := range []string{loquat.CauseRateLimit, loquat.CauseStatus, loquat.CauseTimeout, loquat.CauseStream} {
		c.retries.WithLabelValues(cause)
	}
	return c
}

func (c counts) add(providerID string, u loquat.Usage) {
	for source, t := range map[string]loquat.Tokens{loquat.UsageReported: u.Reported, loquat.UsageEstimated: u.Estimated} {
		if t.All() > 0 {
			c.tokens.WithLabelValues(providerID, "input", source).Add(float64(t.Input))
			c.tokens.WithLabelValues(providerID, "output", source).Add(float64(t.Output))
		}
	}
	if u.Cost != nil && *u.Cost > 0 {
		c.cost.WithLabelValues(providerID).Add(*u.Cost)
	}
}

// Collectors returns the metrics of the service.
func (s *Service) Collectors() []prometheus.Collector {
	one := map[bool]float64{true: 1}
	out := []prometheus.Collector{
		s.counts.tokens, s.counts.cost, s.counts.ended, s.counts.retries,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "loquat_store_usable", Help: "1 while the store can be read and written."},
			func() float64 { return one[s.store.Healthy() == nil] }),
	}
	for _, p := range s.plugins.Plugins() {
		if _, ok := p.(plugin.Process); !ok {
			continue
		}
		out = append(out, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "loquat_plugin_running", Help: "1 while the plugin runs.", ConstLabels: prometheus.Labels{"plugin": p.Name()},
		}, func() float64 { return one[plugin.StatusOf(p).State == plugin.StateRunning] }))
	}
	return out
}
