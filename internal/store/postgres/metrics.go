package postgres

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics count what happens between this node, the database and the other nodes.
type metrics struct {
	takeovers, fenced prometheus.Counter
	writer, listener  prometheus.Counter // reconnects
	reconnects        *prometheus.CounterVec
	notifyLag         prometheus.Histogram
	sent              atomic.Pointer[sentNotice]
}

// sentNotice is the newest notification of this node.
type sentNotice struct {
	text string
	at   time.Time
}

func newMetrics() *metrics {
	m := &metrics{
		takeovers: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "loquat_store_takeovers_total", Help: "Nodes whose lease ran out and whose requests this node released to all others.",
		}),
		fenced: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "loquat_store_fenced_writes_total", Help: "Transactions that wrote nothing at first, because other nodes had ended the lease of this node.",
		}),
		reconnects: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "loquat_store_reconnects_total", Help: "Connections to the database that replaced a broken one: of the writer, and for notifications.",
		}, []string{"connection"}),
		notifyLag: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "loquat_store_notify_lag_seconds", Help: "Time from the COMMIT of this node until its own notification comes back. Other nodes get it at the same time.",
			Buckets: prometheus.ExponentialBuckets(0.00025, 2, 16),
		}),
	}
	m.writer, m.listener = m.reconnects.WithLabelValues("writer"), m.reconnects.WithLabelValues("notifications")
	return m
}

// sending records a notification that the next COMMIT sends.
func (m *metrics) sending(text string) { m.sent.Store(&sentNotice{text, time.Now()}) }

// received records a notification of any node.
func (m *metrics) received(text string) {
	if sent := m.sent.Load(); sent != nil && sent.text == text && m.sent.CompareAndSwap(sent, nil) {
		m.notifyLag.Observe(time.Since(sent.at).Seconds())
	}
}

// Collectors returns the metrics of the driver.
func (db *DB) Collectors() []prometheus.Collector {
	m := db.metrics
	age := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "loquat_store_lease_age_seconds", Help: "Time since this node last renewed its lease. It stops its requests before the lease of 10 seconds ends.",
	}, func() float64 {
		return (time.Since(db.started) - time.Duration(db.hold.Load().renewed.Load())).Seconds()
	})
	return []prometheus.Collector{age, m.takeovers, m.fenced, m.reconnects, m.notifyLag}
}
