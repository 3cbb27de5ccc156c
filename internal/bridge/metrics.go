package bridge

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Register registers the hub's metrics.
func (h *Hub) Register(registry prometheus.Registerer) error {
	if err := h.registerServers(registry); err != nil {
		return err
	}
	return register(registry,
		gauge("loquat_bridge_sockets", "Sockets that are open, of apps and of servers.", func() float64 { return float64(h.Sockets()) }),
		gauge("loquat_bridge_apps", "Apps that follow the events.", func() float64 { joined, _ := h.apps(); return float64(joined) }),
		gauge("loquat_bridge_apps_behind", "Apps that lag and read the events that they missed from the log.", func() float64 { _, behind := h.apps(); return float64(behind) }),
	)
}

// registerServers registers a gauge for each remote server.
func (h *Hub) registerServers(registry prometheus.Registerer) error {
	for id, r := range h.remotes {
		err := register(registry, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "loquat_bridge_server_connected", Help: "1 while the server is connected to this bridge.", ConstLabels: prometheus.Labels{"server_id": id},
		}, func() float64 { return flag(r.connected()) }))
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *remote) connected() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.joined != nil
}

func flag(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

// apps counts all joined apps and those that are not live.
func (h *Hub) apps() (joined, behind int) {
	for _, r := range h.broadcasters {
		all, late := r.count()
		joined, behind = joined+all, behind+late
	}
	return joined, behind
}

func (b *broadcaster) count() (joined, behind int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for a := range b.apps {
		if !a.live {
			behind++
		}
	}
	return len(b.apps), behind
}

// Register registers the forwarder's metrics.
func (f *Forwarder) Register(registry prometheus.Registerer) error {
	return register(registry,
		gauge("loquat_bridge_connected", "1 while this server is connected to its bridge.", func() float64 { return flag(f.Connected()) }),
		gauge("loquat_bridge_acknowledged_event", "The last event that the bridge acknowledged, 0 before the first connection.", func() float64 { return float64(f.acknowledged()) }),
		gauge("loquat_bridge_lag_events", "Events that the bridge has not acknowledged; all events before the first connection, 0 on a node that does not forward.", func() float64 {
			if !f.leading.Load() {
				return 0
			}
			return float64(max(0, f.opts.Log.Latest()-f.acknowledged()))
		}),
	)
}

func gauge(name, help string, value func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
}

func register(registry prometheus.Registerer, all ...prometheus.Collector) error {
	for _, c := range all {
		if err := registry.Register(c); err != nil {
			return fmt.Errorf("register the bridge's metrics: %w", err)
		}
	}
	return nil
}
