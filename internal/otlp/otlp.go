// Package otlp sends spans, and if wanted metrics, to an OpenTelemetry collector, by OTLP over HTTP or gRPC.
//
// A collector that is away costs nothing but the spans: they wait in memory, at most 2,048 of them, and are then dropped.
// Failures are logged once in a while.
package otlp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"loquat/internal/config"
	"loquat/internal/loglimit"
	"loquat/internal/trace"
)

// Options configure a Sender.
type Options struct {
	Config   config.Telemetry
	Version  string              // of the program
	Node     string              // the id of this process among those of one service
	Registry prometheus.Gatherer // the metrics to send; nil: none
	Logger   *slog.Logger
}

// signal is a kind of data that a collector takes, as the names of OpenTelemetry's environment variables have it.
type signal string

const (
	traces  signal = "TRACES"
	metrics signal = "METRICS"
)

// env returns the value of a variable of the exporters for the signal, or of that for all signals, or "".
func (s signal) env(name string) string {
	const prefix = "OTEL_EXPORTER_OTLP_"
	return cmp.Or(os.Getenv(prefix+string(s)+"_"+name), os.Getenv(prefix+name))
}

// collector returns the configuration with the protocol for the signal, and whether the configuration or the environment
// names a collector for the signal.
func (s signal) collector(c config.Telemetry) (config.Telemetry, bool) {
	if c.Endpoint != "" {
		return c, true
	}
	c.Headers = nil // they are for the collector of the configuration
	if s.env("PROTOCOL") == config.ProtocolGRPC {
		c.Protocol = config.ProtocolGRPC
	}
	return c, s.env("ENDPOINT") != ""
}

// flushTime is how long Close waits for the last spans.
const flushTime = 3 * time.Second

// Sender sends spans and metrics. A nil Sender sends nothing.
type Sender struct {
	tracer   *trace.Tracer         // nil if spans are not sent
	spans    *sdk.TracerProvider   // the same
	metrics  *metric.MeterProvider // nil if metrics are not sent
	failures *loglimit.Logger
}

// Start returns a Sender, or nil if neither the configuration nor the environment names a collector for what is to be sent.
func Start(ctx context.Context, opts Options) (*Sender, error) {
	forSpans, sendsSpans := traces.collector(opts.Config)
	forMetrics, sendsMetrics := metrics.collector(opts.Config)
	sendsMetrics = sendsMetrics && opts.Config.Metrics && opts.Registry != nil
	if !sendsSpans && !sendsMetrics {
		return nil, nil
	}
	s := &Sender{failures: loglimit.New(opts.Logger)}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		s.failures.Log(slog.LevelWarn, "spans or metrics could not be sent to the collector", "error", err)
	}))
	what, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "loquat"), attribute.String("service.version", opts.Version),
		attribute.String("service.instance.id", opts.Node)), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err == nil && sendsSpans {
		err = s.sendSpans(ctx, forSpans, what)
	}
	if err == nil && sendsMetrics {
		err = s.sendMetrics(ctx, forMetrics, opts.Registry, what)
	}
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", errors.Join(err, s.shutdown(ctx)))
	}
	return s, nil
}

// sendSpans sends the spans of the tracer.
func (s *Sender) sendSpans(ctx context.Context, c config.Telemetry, what *resource.Resource) error {
	exporter, err := spanExporter(ctx, c)
	if err != nil {
		return err
	}
	s.spans = sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(what), sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(c.SampleRatio))))
	s.tracer = trace.New(s.spans, c.Content)
	return nil
}

// sendMetrics sends the metrics of a registry, every minute.
func (s *Sender) sendMetrics(ctx context.Context, c config.Telemetry, registry prometheus.Gatherer, what *resource.Resource) error {
	exporter, err := metricExporter(ctx, c)
	if err != nil {
		return err
	}
	producer := bridge.NewMetricProducer(bridge.WithGatherer(registry))
	s.metrics = metric.NewMeterProvider(metric.WithResource(what), metric.WithReader(metric.NewPeriodicReader(exporter, metric.WithProducer(producer))))
	return nil
}

// Tracer returns what makes spans, nil for a nil Sender and for one that sends metrics alone.
func (s *Sender) Tracer() *trace.Tracer {
	if s == nil {
		return nil
	}
	return s.tracer
}

// Close sends what is left and ends.
func (s *Sender) Close() {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	if err := s.shutdown(ctx); err != nil {
		s.failures.Log(slog.LevelWarn, "the last spans or metrics could not be sent to the collector", "error", err)
	}
	s.failures.Flush()
}

func (s *Sender) shutdown(ctx context.Context) (err error) {
	if s.spans != nil {
		err = s.spans.Shutdown(ctx)
	}
	if s.metrics != nil {
		err = errors.Join(err, s.metrics.Shutdown(ctx))
	}
	return err
}

// spanExporter returns the exporter of spans. An option replaces the variable of the environment for the same value, so
// headers are an option only if the configuration has some.
func spanExporter(ctx context.Context, c config.Telemetry) (sdk.SpanExporter, error) {
	if c.Protocol == config.ProtocolGRPC {
		var opts []otlptracegrpc.Option
		if c.Endpoint != "" {
			opts = append(opts, otlptracegrpc.WithEndpointURL(c.Endpoint))
		}
		if len(c.Headers) > 0 {
			opts = append(opts, otlptracegrpc.WithHeaders(c.Headers))
		}
		return otlptracegrpc.New(ctx, opts...)
	}
	var opts []otlptracehttp.Option
	if c.Endpoint != "" {
		opts = append(opts, otlptracehttp.WithEndpointURL(signalURL(c.Endpoint, "traces")))
	}
	if len(c.Headers) > 0 {
		opts = append(opts, otlptracehttp.WithHeaders(c.Headers))
	}
	return otlptracehttp.New(ctx, opts...)
}

// metricExporter is spanExporter for metrics.
func metricExporter(ctx context.Context, c config.Telemetry) (metric.Exporter, error) {
	if c.Protocol == config.ProtocolGRPC {
		var opts []otlpmetricgrpc.Option
		if c.Endpoint != "" {
			opts = append(opts, otlpmetricgrpc.WithEndpointURL(c.Endpoint))
		}
		if len(c.Headers) > 0 {
			opts = append(opts, otlpmetricgrpc.WithHeaders(c.Headers))
		}
		return otlpmetricgrpc.New(ctx, opts...)
	}
	var opts []otlpmetrichttp.Option
	if c.Endpoint != "" {
		opts = append(opts, otlpmetrichttp.WithEndpointURL(signalURL(c.Endpoint, "metrics")))
	}
	if len(c.Headers) > 0 {
		opts = append(opts, otlpmetrichttp.WithHeaders(c.Headers))
	}
	return otlpmetrichttp.New(ctx, opts...)
}

// signalURL returns the URL for a signal below the endpoint, as the environment variable of OpenTelemetry has it.
func signalURL(endpoint, signal string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return endpoint
	}
	return u.JoinPath("v1", signal).String()
}
