package httpapi

import (
	"net/http"

	"github.com/klauspost/compress/gzhttp"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"loquat/internal/httpapi/route"
)

// The bounds of compression. A compressed answer holds up to a megabyte until its client has read it;
// answers beyond maxCompressed at a time are sent as they are.
const (
	compressFrom  = 1 << 10 // bytes
	maxCompressed = 16
)

// compressor compresses JSON answers as the client accepts it.
type compressor struct {
	wrap  func(http.Handler) http.HandlerFunc
	slots chan struct{}
}

func newCompressor() (*compressor, error) {
	wrap, err := gzhttp.NewWrapper(gzhttp.MinSize(compressFrom), gzhttp.ContentTypes([]string{"application/json"}),
		gzhttp.EnableZstd(true), gzhttp.PreferZstd(false), gzhttp.CompressionLevel(gzip.BestSpeed), gzhttp.ZstdCompressionLevel(int(zstd.SpeedFastest)))
	return &compressor{wrap: wrap, slots: make(chan struct{}, maxCompressed)}, err
}

// compresses reports whether the answers of a route may be compressed: only JSON, which is not a
// stream. Answers of the tag access may hold secrets, whose text the size of a compressed answer could
// reveal.
func compresses(t *route.Route) bool {
	return t.Method == http.MethodGet && t.Tag != "access" && len(t.Responses) > 0 && t.Responses[0].Media == "" && t.Responses[0].Body != nil
}

// serve calls a route so that its answer is compressed. The ETag stays: it names the version of a
// session, and If-Match compares it whatever the encoding was. An error is answered as it is.
func (c *compressor) serve(w *responseWriter, r *http.Request, t *route.Route, call func() error) (err error) {
	if !compresses(t) {
		return call()
	}
	if r.Method == http.MethodHead {
		w.Header().Add("Vary", "Accept-Encoding")
		return call()
	}
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	default:
		w.Header().Add("Vary", "Accept-Encoding")
		return call()
	}
	plain := w.ResponseWriter
	defer func() { w.ResponseWriter = plain }()
	c.wrap(http.HandlerFunc(func(compressed http.ResponseWriter, _ *http.Request) {
		w.ResponseWriter = compressed
		err = call()
	})).ServeHTTP(plain, r)
	return err
}
