package backend

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// BenchmarkPaced runs 200 streams of 50 chunks per second each: 10,000 chunks per second in
// total. The schedule takes 1.02 s per iteration. Any time above that is lateness.
func BenchmarkPaced(b *testing.B) {
	benchmarkStreams(b, 200, 50, `{"chunks":50,"rate":50}`)
}

// BenchmarkUnpaced runs the same number of streams without pacing.
func BenchmarkUnpaced(b *testing.B) {
	benchmarkStreams(b, 200, 5000, `{"chunks":5000,"rate":0}`)
}

func benchmarkStreams(b *testing.B, streams, chunks int, script string) {
	backend, err := New(Options{})
	if err != nil {
		b.Fatal(err)
	}
	srv := httptest.NewServer(backend)
	defer srv.Close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: streams}}
	defer client.CloseIdleConnections()
	body := requestBody("demo", `,"stream":true,"loquat_script":`+script)
	start := time.Now()
	for b.Loop() {
		var wg sync.WaitGroup
		for range streams {
			wg.Go(func() {
				resp, err := client.Post(srv.URL+"/v1/chat/completions", "application/json", strings.NewReader(body))
				if err != nil {
					b.Error(err)
					return
				}
				defer resp.Body.Close()
				if _, err := io.Copy(io.Discard, resp.Body); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
	}
	b.ReportMetric(float64(b.N*streams*chunks)/time.Since(start).Seconds(), "chunks/s")
}
