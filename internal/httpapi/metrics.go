package httpapi

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"loquat/internal/chat"
)

// metrics count what the API does. Labels take their values from the table of
// routes, never from a client.
type metrics struct {
	answers *prometheus.CounterVec
	latency *prometheus.HistogramVec
	streams prometheus.Gauge
	handler http.Handler
}

func newMetrics(registry *prometheus.Registry, service *chat.Service, limits *inflightLimits) (*metrics, error) {
	if registry == nil {
		registry = prometheus.NewRegistry()
	}
	m := &metrics{
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "loquat_http_answers_total", Help: "Answers by route and status.",
		}, []string{"method", "route", "status"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "loquat_http_answer_seconds", Help: "Time until an answer began; long polls wait on purpose.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 10),
		}, []string{"method", "route"}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "loquat_http_streams", Help: "Event streams that are open.",
		}),
		handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
	}
	running := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "loquat_requests_running", Help: "Requests that run in this process.",
	}, func() float64 { return float64(service.Requests.Running()) })
	followers := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "loquat_http_followers", Help: "Event streams, polls and relayed requests.",
	}, func() float64 { return float64(limits.following()) })
	most := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "loquat_http_followers_max", Help: "limits.max_followers.",
	}, func() float64 { return float64(limits.limits().MaxFollowers) })
	own := []prometheus.Collector{m.answers, m.latency, m.streams, running, followers, most}
	if err := register(registry, append(own, service.Collectors()...)...); err != nil {
		return nil, err
	}
	return m, registerProcess(registry)
}

// registerProcess adds the metrics of the process itself.
func registerProcess(registry *prometheus.Registry) error {
	return register(registry, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}

func register(registry *prometheus.Registry, all ...prometheus.Collector) error {
	for _, c := range all {
		if err := registry.Register(c); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	return nil
}

func (m *metrics) observe(w *responseWriter) {
	method, path := w.method, "none"
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		method = "other"
	}
	if w.route != nil {
		path = w.route.Path
	} else if w.file != "" {
		path = w.file
	}
	status := "none" // the client disconnected
	if w.status != 0 {
		status = strconv.Itoa(w.status)
		m.latency.WithLabelValues(method, path).Observe(w.first.Seconds())
	}
	m.answers.WithLabelValues(method, path, status).Inc()
}
