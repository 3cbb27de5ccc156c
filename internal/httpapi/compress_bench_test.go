package httpapi

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/httpapi/route"
)

// BenchmarkCompression compresses a megabyte of words.
func BenchmarkCompression(b *testing.B) {
	words := strings.Fields("the quick brown fox jumps over a lazy dog while session request event log store return func error context string")
	var text strings.Builder
	random := rand.New(rand.NewPCG(1, 2))
	for text.Len() < 1<<20 {
		fmt.Fprintf(&text, "%s %d ", words[random.IntN(len(words))], random.IntN(100))
	}
	c, err := newCompressor()
	if err != nil {
		b.Fatal(err)
	}
	t := &route.Route{Method: http.MethodGet, Responses: []route.Response{{Body: loquat.Snapshot{}}}}
	for _, accept := range []string{"identity", "gzip", "zstd"} {
		b.Run(accept, func(b *testing.B) {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Accept-Encoding", accept)
			size := 0
			for b.Loop() {
				to := httptest.NewRecorder()
				w := &responseWriter{ResponseWriter: to}
				err := c.serve(w, r, t, func() error {
					w.Header().Set("Content-Type", "application/json; charset=utf-8")
					_, err := w.Write([]byte(text.String()))
					return err
				})
				if err != nil {
					b.Fatal(err)
				}
				size = to.Body.Len()
			}
			b.ReportMetric(float64(size), "bytes")
		})
	}
}
