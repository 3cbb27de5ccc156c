package store

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"loquat"
)

// metrics count what the committer does.
type metrics struct {
	updates prometheus.Histogram
	seconds prometheus.Histogram
}

func newMetrics() metrics {
	return metrics{
		updates: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "loquat_store_commit_updates", Help: "Changes that share a commit.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 10),
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "loquat_store_commit_seconds", Help: "Time of a commit, from the begin of its transaction until it is on disk.",
			Buckets: prometheus.ExponentialBuckets(0.00025, 2, 16),
		}),
	}
}

func (m metrics) committed(updates int, took time.Duration) {
	m.updates.Observe(float64(updates))
	m.seconds.Observe(took.Seconds())
}

// meteredDriver is a driver with metrics of its own.
type meteredDriver interface {
	Collectors() []prometheus.Collector
}

// Collectors returns the metrics of the store and of its driver.
func (s *Store) Collectors() []prometheus.Collector {
	all := []prometheus.Collector{s.metrics.updates, s.metrics.seconds}
	if s.Shared() {
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "loquat_store_tail_lag_events", Help: "Events of other nodes that this node knows of and does not show yet.",
		}, func() float64 { return float64(max(0, loquat.EventID(s.nodes.newest.Load())-s.Last())) }))
	}
	if d, ok := s.driver.(meteredDriver); ok {
		all = append(all, d.Collectors()...)
	}
	return all
}
