package bridge

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Register shows in a registry what the hub serves.
func (h *Hub) Register(registry prometheus.Registerer) error {
	if err := h.registerServers(registry); err != nil {
		return err
	}
	return register(registry,
		gauge("loquat_bridge_sockets", "Sockets that are open, of apps and of servers.", func() float64 { return float64(h.Sockets()) }),
		gauge("loquat_bridge_apps", "Apps that follow the events.", func() float64 { joined, _ := h.apps(); return float64(joined) }),
		gauge("loquat_bridge_apps_behind", "Those of them that read from the log what they have missed.", func() float64 { _, behind := h.apps(); return float64(behind) }),
	)
}

// registerServers shows which of the servers elsewhere are there.
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

// apps counts the apps, and those that are not live.
func (h *Hub) apps() (joined, behind int) {
	for _, r := range h.rooms {
		all, late := r.count()
		joined, behind = joined+all, behind+late
	}
	return joined, behind
}

func (r *room) count() (joined, behind int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for a := range r.apps {
		if !a.live {
			behind++
		}
	}
	return len(r.apps), behind
}

// Register shows in a registry how the forwarder gets on.
func (f *Forwarder) Register(registry prometheus.Registerer) error {
	return register(registry,
		gauge("loquat_bridge_connected", "1 while the bridge takes events.", func() float64 { return flag(f.Connected()) }),
		gauge("loquat_bridge_acknowledged_event", "The last event that the bridge is known to have, 0 before the first connection.", func() float64 { return float64(f.Acknowledged()) }),
		gauge("loquat_bridge_lag_events", "Events that the bridge is not known to have; all of them before the first connection.", func() float64 {
			return float64(max(0, f.opts.Log.Latest()-f.Acknowledged()))
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
