// Package otlp sends spans, and if wanted metrics, to an OpenTelemetry collector, by OTLP over HTTP or gRPC.
//
// A collector that is away costs nothing but the spans: they wait in memory, at most 2,048 of them, and are then dropped.
// Failures are logged once in a while.
package otlp

import (
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

// endpointEnv are the variables that name a collector where the configuration does not.
var endpointEnv = []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"}

// protocolEnv are the variables that name the protocol of such a collector.
var protocolEnv = []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"}

// flushTime is how long Close waits for the last spans.
const flushTime = 3 * time.Second

// Sender sends spans and metrics. A nil Sender sends nothing.
type Sender struct {
	tracer   *trace.Tracer
	spans    *sdk.TracerProvider
	metrics  *metric.MeterProvider // nil if metrics are not sent
	failures *loglimit.Logger
}

// Start returns a Sender, or nil if neither the configuration nor the environment names a collector.
func Start(ctx context.Context, opts Options) (*Sender, error) {
	if opts.Config.Endpoint == "" {
		if firstSet(endpointEnv) == "" {
			return nil, nil
		}
		if firstSet(protocolEnv) == config.ProtocolGRPC {
			opts.Config.Protocol = config.ProtocolGRPC
		}
	}
	s := &Sender{failures: loglimit.New(opts.Logger)}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		s.failures.Log(slog.LevelWarn, "spans or metrics could not be sent to the collector", "error", err)
	}))
	exporter, err := spanExporter(ctx, opts.Config)
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	what, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "loquat"), attribute.String("service.version", opts.Version),
		attribute.String("service.instance.id", opts.Node)), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	s.spans = sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(what), sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(opts.Config.SampleRatio))))
	s.tracer = trace.New(s.spans, opts.Config.Content)
	if opts.Config.Metrics && opts.Registry != nil {
		if err := s.sendMetrics(ctx, opts, what); err != nil {
			return nil, errors.Join(err, s.spans.Shutdown(ctx))
		}
	}
	return s, nil
}

// firstSet returns the value of the first of these variables that is set, or "".
func firstSet(names []string) string {
	for _, name := range names {
		if v := os.Getenv(name); v != "" {
			return v
		}
	}
	return ""
}

// sendMetrics sends the metrics of a registry, every minute.
func (s *Sender) sendMetrics(ctx context.Context, opts Options, what *resource.Resource) error {
	exporter, err := metricExporter(ctx, opts.Config)
	if err != nil {
		return fmt.Errorf("telemetry: %w", err)
	}
	producer := bridge.NewMetricProducer(bridge.WithGatherer(opts.Registry))
	s.metrics = metric.NewMeterProvider(metric.WithResource(what), metric.WithReader(metric.NewPeriodicReader(exporter, metric.WithProducer(producer))))
	return nil
}

// Tracer returns what makes spans, nil for a nil Sender.
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
	err := s.spans.Shutdown(ctx)
	if s.metrics != nil {
		err = errors.Join(err, s.metrics.Shutdown(ctx))
	}
	if err != nil {
		s.failures.Log(slog.LevelWarn, "the last spans could not be sent to the collector", "error", err)
	}
	s.failures.Flush()
}

func spanExporter(ctx context.Context, c config.Telemetry) (sdk.SpanExporter, error) {
	if c.Protocol == config.ProtocolGRPC {
		var opts []otlptracegrpc.Option
		if c.Endpoint != "" {
			opts = append(opts, otlptracegrpc.WithEndpointURL(c.Endpoint), otlptracegrpc.WithHeaders(c.Headers))
		}
		return otlptracegrpc.New(ctx, opts...)
	}
	var opts []otlptracehttp.Option
	if c.Endpoint != "" {
		opts = append(opts, otlptracehttp.WithEndpointURL(signalURL(c.Endpoint, "traces")), otlptracehttp.WithHeaders(c.Headers))
	}
	return otlptracehttp.New(ctx, opts...)
}

func metricExporter(ctx context.Context, c config.Telemetry) (metric.Exporter, error) {
	if c.Protocol == config.ProtocolGRPC {
		var opts []otlpmetricgrpc.Option
		if c.Endpoint != "" {
			opts = append(opts, otlpmetricgrpc.WithEndpointURL(c.Endpoint), otlpmetricgrpc.WithHeaders(c.Headers))
		}
		return otlpmetricgrpc.New(ctx, opts...)
	}
	var opts []otlpmetrichttp.Option
	if c.Endpoint != "" {
		opts = append(opts, otlpmetrichttp.WithEndpointURL(signalURL(c.Endpoint, "metrics")), otlpmetrichttp.WithHeaders(c.Headers))
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
