package bridge

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"loquat/internal/phx"
)

// figures returns the values of a registry's metrics.
func figures(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		all[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
	}
	return all
}

func TestMetricsOfHub(t *testing.T) {
	r := newRig(t, phx.Limits{}, nil)
	registry := prometheus.NewRegistry()
	if err := r.hub.Register(registry); err != nil {
		t.Fatal(err)
	}
	r.log.partial("one", "a")
	r.log.partial("one", "b")
	call(t, r.url) // joins nothing
	live, behind := call(t, r.url), call(t, r.url)
	live.join(rigTopic, map[string]any{"token": "good"})
	release := r.log.holdBack()
	behind.join(rigTopic, map[string]any{"token": "good", "since_id": "0000000000000001"})
	until(t, "one of two apps is behind", func() bool {
		got := figures(t, registry)
		return got["loquat_bridge_sockets"] == 3 && got["loquat_bridge_apps"] == 2 && got["loquat_bridge_apps_behind"] == 1
	})
	release()
	until(t, "none is behind", func() bool { return figures(t, registry)["loquat_bridge_apps_behind"] == 0 })
}

func TestMetricsOfForwarder(t *testing.T) {
	o := newRemoteServer()
	_, url := newBridge(t, History{})
	f := o.forward(t, url, "server-token")
	registry := prometheus.NewRegistry()
	if err := f.Register(registry); err != nil {
		t.Fatal(err)
	}
	holds := func(connected, acknowledged, lag float64) func() bool {
		return func() bool {
			got := figures(t, registry)
			return got["loquat_bridge_connected"] == connected && got["loquat_bridge_acknowledged_event"] == acknowledged && got["loquat_bridge_lag_events"] == lag
		}
	}
	until(t, "it is connected", holds(1, 0, 0))
	o.log.partial("one", "a")
	until(t, "the event is acknowledged", holds(1, 1, 0))
	f.Close()
	o.log.partial("one", "b")
	until(t, "an event waits for the bridge", holds(0, 1, 1))
}
