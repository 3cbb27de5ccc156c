package trace_test

import (
	"compress/gzip"
	"context"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // as collectors understand it
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// collected is a collector that reads what it gets with OpenTelemetry's own types.
type collected struct {
	collector.UnimplementedTraceServiceServer
	t *testing.T

	mu      sync.Mutex
	spans   []*spans.Span
	service map[string]string // the attributes of what sent them
	keys    []string          // the header api-key of each call
	metrics map[string]bool
}

// overHTTP serves OTLP over HTTP, and returns the URL.
func (c *collected) overHTTP() string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			zip, err := gzip.NewReader(r.Body)
			if err != nil {
				c.t.Error(err)
				return
			}
			body = zip
		}
		data, err := io.ReadAll(body)
		if err != nil || r.Header.Get("Content-Type") != "application/x-protobuf" {
			c.t.Errorf("%s: %v %v", r.URL.Path, err, r.Header)
		}
		c.mu.Lock()
		c.keys = append(c.keys, r.Header.Get("Api-Key"))
		c.mu.Unlock()
		switch r.URL.Path {
		case "/below/v1/traces":
			var in collector.ExportTraceServiceRequest
			if err := proto.Unmarshal(data, &in); err != nil {
				c.t.Error(err)
			}
			c.add(&in)
		case "/below/v1/metrics":
			var in collectormetrics.ExportMetricsServiceRequest
			if err := proto.Unmarshal(data, &in); err != nil {
				c.t.Error(err)
			}
			c.addMetrics(&in)
		default:
			c.t.Errorf("a call of %s", r.URL.Path)
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	c.t.Cleanup(server.Close)
	return server.URL + "/below"
}

// overGRPC serves OTLP over gRPC, and returns the URL.
func (c *collected) overGRPC() string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, c)
	collectormetrics.RegisterMetricsServiceServer(server, collectedMetrics{of: c})
	go func() { _ = server.Serve(ln) }()
	c.t.Cleanup(server.Stop)
	return "http://" + ln.Addr().String()
}

// Export implements the service of collectors.
func (c *collected) Export(ctx context.Context, in *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.noteKey(ctx)
	c.add(in)
	return &collector.ExportTraceServiceResponse{}, nil
}

func (c *collected) noteKey(ctx context.Context) {
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		c.mu.Lock()
		c.keys = append(c.keys, strings.Join(md.Get("api-key"), ","))
		c.mu.Unlock()
	}
}

// collectedMetrics is the service of a collector for metrics.
type collectedMetrics struct {
	collectormetrics.UnimplementedMetricsServiceServer
	of *collected
}

// Export implements the service.
func (m collectedMetrics) Export(ctx context.Context, in *collectormetrics.ExportMetricsServiceRequest) (*collectormetrics.ExportMetricsServiceResponse, error) {
	m.of.noteKey(ctx)
	m.of.addMetrics(in)
	return &collectormetrics.ExportMetricsServiceResponse{}, nil
}

func (c *collected) add(in *collector.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range in.ResourceSpans {
		c.service = attributes(of.Resource.Attributes)
		for _, scope := range of.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
}

func (c *collected) addMetrics(in *collectormetrics.ExportMetricsServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range in.ResourceMetrics {
		for _, scope := range of.ScopeMetrics {
			for _, m := range scope.Metrics {
				c.metrics[m.Name] = true
			}
		}
	}
}

func attributes(list []*common.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range list {
		out[a.Key] = text(a.Value)
	}
	return out
}

// text returns a value as a test writes it.
func text(v *common.AnyValue) string {
	switch v := v.Value.(type) {
	case *common.AnyValue_StringValue:
		return v.StringValue
	case *common.AnyValue_ArrayValue:
		var all []string
		for _, one := range v.ArrayValue.Values {
			all = append(all, text(one))
		}
		return strings.Join(all, ",")
	}
	// The others print as `int_value:7`.
	_, value, _ := strings.Cut(strings.ReplaceAll(v.String(), " ", ""), ":")
	return value
}

// node is a span with its children, as a test compares it.
type node struct {
	*spans.Span
	attributes map[string]string
	children   []*node
}

// trees returns the spans as trees: by their trace id, those whose parent was not collected.
func (c *collected) trees() map[string][]*node {
	c.mu.Lock()
	defer c.mu.Unlock()
	byID := map[string]*node{}
	for _, s := range c.spans {
		byID[string(s.SpanId)] = &node{Span: s, attributes: attributes(s.Attributes)}
	}
	out := map[string][]*node{}
	for _, s := range c.spans {
		n := byID[string(s.SpanId)]
		if parent := byID[string(s.ParentSpanId)]; parent != nil {
			parent.children = append(parent.children, n)
		} else {
			out[hex.EncodeToString(s.TraceId)] = append(out[hex.EncodeToString(s.TraceId)], n)
		}
	}
	return out
}
