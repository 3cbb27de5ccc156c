//go:build unix

package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"loquat/internal/store"
	"loquat/internal/store/postgres/pgtest"
)

// values returns the metrics of a store: counters and gauges by their value, histograms by the
// number of observations, and a label after the name.
func values(t *testing.T, s *store.Store) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	for _, c := range s.Collectors() {
		if err := registry.Register(c); err != nil {
			t.Fatal(err)
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, family := range families {
		for _, m := range family.Metric {
			name := family.GetName()
			for _, label := range m.Label {
				name += " " + label.GetValue()
			}
			out[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}

// Each metric moves when what it counts happens, and only then.
func TestMetrics(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	name, url := server.Database(t)
	const lease = 2 * time.Second
	s := openNodes(t, url, 2, lease)
	sessions := 0
	publish := func() {
		t.Helper()
		sessions++
		if err := create(t.Context(), s[0], fmt.Sprint("session-", sessions)); err != nil {
			t.Fatal(err)
		}
	}
	sql := func(statement string) {
		t.Helper()
		if err := server.Exec(name, statement); err != nil {
			t.Fatal(err)
		}
	}
	want := func(metric string, least float64) {
		t.Helper()
		eventually(t, metric, func() bool { return values(t, s[0])[metric] >= least })
	}
	publish()
	before := values(t, s[0])
	for _, metric := range []string{"loquat_store_takeovers_total", "loquat_store_fenced_writes_total", "loquat_store_reconnects_total writer", "loquat_store_reconnects_total notifications", "loquat_store_tail_lag_events"} {
		if n, ok := before[metric]; !ok || n != 0 {
			t.Errorf("%s is %v at first, %v", metric, n, ok)
		}
	}
	if age := before["loquat_store_lease_age_seconds"]; age < 0 || age > lease.Seconds() {
		t.Errorf("the lease is %v s old", age)
	}
	want("loquat_store_commit_updates", 1)
	want("loquat_store_commit_seconds", 1)
	eventually(t, "a notification comes back", func() bool { publish(); return values(t, s[0])["loquat_store_notify_lag_seconds"] >= 1 })

	sql(`INSERT INTO nodes (owner, epoch, node_id, name, version, started_at, seen_at, lease_until) VALUES ('dead', 0, 'dead', 'dead', '', now(), now(), now() - interval '1 s')`)
	eventually(t, "one of both takes over", func() bool {
		return values(t, s[0])["loquat_store_takeovers_total"]+values(t, s[1])["loquat_store_takeovers_total"] == 1
	})
	eventually(t, "a write is fenced", func() bool { // unless the heartbeat noticed before
		sql(`UPDATE nodes SET ended_at = now() WHERE owner = '` + s[0].Owner() + `'`)
		publish()
		return values(t, s[0])["loquat_store_fenced_writes_total"] >= 1
	})
	sql(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	want("loquat_store_reconnects_total notifications", 1)
	eventually(t, "the writer connects again", func() bool {
		sessions++
		_ = create(t.Context(), s[0], fmt.Sprint("session-", sessions))
		return values(t, s[0])["loquat_store_reconnects_total writer"] >= 1
	})
}
