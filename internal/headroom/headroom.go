// Package headroom says whether a server has room for another request: so few that run, so much free memory, and so much free
// space on the disk that the requests that run can end well.
//
// It refuses only what begins. What it measures is at most a quarter of a second old, so bursts may exceed a limit a little.
package headroom

import (
	"fmt"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"loquat"
)

const (
	measureEvery = 250 * time.Millisecond
	memoryShare  = 0.85 // of the memory limit, above which live objects leave no room
	retryAfter   = 5    // seconds

	defaultFree  = 128 << 20
	defaultShare = 20 // the part of a small disk: one in 20
)

// The limits, as metrics name them.
const (
	limitRunning = "running_requests"
	limitMemory  = "memory"
	limitDisk    = "disk"
)

// Limits say what a server needs.
type Limits struct {
	MaxRunning  int   // requests that run
	MinFreeDisk int64 // bytes; 0: the disk does not count; less: 128 MiB, or 5 % of a smaller disk
}

// Options configure a Headroom.
type Options struct {
	Limits func() Limits // those that count now
	Dir    string

	FreeDisk func(dir string) (free, size int64, err error) // nil: asks the operating system
}

// Headroom measures and refuses. A nil Headroom has room for everything.
type Headroom struct {
	opts    Options
	limit   float64 // bytes of memory; +Inf without a limit
	refused *prometheus.CounterVec

	mu       sync.Mutex
	measured time.Time
	live     float64 // bytes of live objects
	disk     int64   // free bytes; -1: not known
	floor    int64   // bytes that have to be free
}

// New returns a Headroom. The memory limit is that of the Go runtime, which GOMEMLIMIT sets.
func New(opts Options) *Headroom {
	if opts.FreeDisk == nil {
		opts.FreeDisk = FreeDisk
	}
	h := &Headroom{opts: opts, limit: math.Inf(1), disk: -1, refused: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "loquat_headroom_refused_total", Help: "Requests, uploads and imports that were refused to protect the server.",
	}, []string{"limit"})}
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		h.limit = float64(limit)
	}
	for _, name := range []string{limitRunning, limitMemory, limitDisk} {
		h.refused.WithLabelValues(name)
	}
	return h
}

// ForRequest returns an error if there is no room for another request beside those that run.
func (h *Headroom) ForRequest(running int) error {
	if err := h.ForRunning(running); err != nil {
		return err
	}
	return h.ForData()
}

// ForRunning returns an error if as many requests run as may run.
func (h *Headroom) ForRunning(running int) error {
	if h == nil || running < h.opts.Limits().MaxRunning {
		return nil
	}
	return h.refuse(limitRunning, "%d requests run on this server, which is limits.max_running_requests; try again in a moment", running)
}

// ForData returns an error if there is no room for more data.
func (h *Headroom) ForData() error {
	if h == nil {
		return nil
	}
	live, disk, floor := h.measure()
	switch {
	case live > memoryShare*h.limit:
		return h.refuse(limitMemory, "the server's memory is nearly used up (GOMEMLIMIT); try again in a moment")
	case disk >= 0 && disk < floor:
		return h.refuse(limitDisk, "the server's disk is nearly full: less than limits.min_free_disk_bytes are free; nothing can begin until there is room")
	}
	return nil
}

func (h *Headroom) refuse(limit, format string, args ...any) error {
	h.refused.WithLabelValues(limit).Inc()
	return &loquat.Error{Code: loquat.CodeUnavailable, Detail: fmt.Sprintf(format, args...), RetryAfter: retryAfter}
}

// measure returns the bytes of live objects, and those that are free on the disk and that have to be.
func (h *Headroom) measure() (live float64, disk, floor int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.measured) < measureEvery {
		return h.live, h.disk, h.floor
	}
	h.measured = time.Now()
	if !math.IsInf(h.limit, 1) {
		sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(sample)
		h.live = float64(sample[0].Value.Uint64())
	}
	h.disk, h.floor = -1, h.opts.Limits().MinFreeDisk
	if free, size, err := h.opts.FreeDisk(h.opts.Dir); err == nil { // else the system cannot say
		h.disk = free
		if h.floor < 0 {
			h.floor = min(defaultFree, size/defaultShare)
		}
	}
	return h.live, h.disk, h.floor
}

// freeDisk returns the free bytes of the disk; NaN if the system cannot say.
func (h *Headroom) freeDisk() float64 {
	_, disk, _ := h.measure()
	if disk < 0 {
		return math.NaN()
	}
	return float64(disk)
}

// Collectors returns metrics for Prometheus.
func (h *Headroom) Collectors() []prometheus.Collector {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	out := []prometheus.Collector{
		h.refused,
		gauge("loquat_requests_running_max", "limits.max_running_requests.", func() float64 { return float64(h.opts.Limits().MaxRunning) }),
		gauge("loquat_disk_free_bytes", "Free space in the data directory.", h.freeDisk),
		gauge("loquat_disk_free_min_bytes", "limits.min_free_disk_bytes.", func() float64 { _, _, floor := h.measure(); return float64(floor) }),
	}
	if !math.IsInf(h.limit, 1) {
		out = append(out,
			gauge("loquat_memory_live_bytes", "Memory of objects that were in use when the collector last ran.", func() float64 { live, _, _ := h.measure(); return live }),
			gauge("loquat_memory_live_max_bytes", "From how many live bytes on nothing begins: 85 % of GOMEMLIMIT.", func() float64 { return memoryShare * h.limit }))
	}
	return out
}
