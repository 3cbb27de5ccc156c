package provider_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/provider"
	"loquat/internal/provider/providertest"
)

// tokenStream returns a stream of n increments, in the form that backends send.
func tokenStream(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "data: {\"id\":\"chatcmpl-3792851e-8f1b-9182-a1dc-b84603c81344\",\"object\":\"chat.completion.chunk\",\"created\":1770764942,\"model\":\"model-1\",\"system_fingerprint\":\"fp_1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" token%d\"},\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}\n\n", i)
	}
	b.WriteString(done)
	return b.Bytes()
}

// Decoding makes at most two allocations for each chunk, including those for its text.
func TestAllocationsPerChunk(t *testing.T) {
	allocs := func(n int) float64 {
		in := tokenStream(n)
		return testing.AllocsPerRun(5, func() {
			for _, err := range provider.DecodeStream(bytes.NewReader(in), "main") {
				if err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	if per := (allocs(3000) - allocs(1000)) / 2000; per > 2 {
		t.Errorf("%.2f allocations for each chunk", per)
	}
}

// Most chunks of real backends are of the usual shape.
func TestShareOfFallbacks(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(sharedDir(t, "fixtures"), "*", "*.sse"))
	if err != nil {
		t.Fatal(err)
	}
	var all provider.Stats
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s := provider.DecodeStats(bytes.NewReader(raw))
		all.Chunks, all.Fallbacks = all.Chunks+s.Chunks, all.Fallbacks+s.Fallbacks
	}
	share := float64(all.Fallbacks) / float64(all.Chunks)
	t.Logf("%d of %d chunks took the general way (%.2f %%)", all.Fallbacks, all.Chunks, 100*share)
	if all.Chunks < 5000 || share > 0.05 {
		t.Errorf("too many, or too few chunks to tell")
	}
}

// BenchmarkDecode compares decoding a stream with reading the same bytes, in memory
// and over HTTP.
func BenchmarkDecode(b *testing.B) {
	in := tokenStream(2000)
	decode := func(b *testing.B, r io.Reader) {
		for _, err := range provider.DecodeStream(r, "main") {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("memory", func(b *testing.B) {
		b.SetBytes(int64(len(in)))
		b.ReportAllocs()
		for b.Loop() {
			decode(b, bytes.NewReader(in))
		}
	})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for event := range bytes.SplitAfterSeq(in, []byte("\n\n")) {
			w.Write(event)
			if r.URL.Query().Has("flush") {
				http.NewResponseController(w).Flush()
			}
		}
	}))
	defer srv.Close()
	for _, query := range []string{"", "?flush"} {
		get := func(b *testing.B) io.ReadCloser {
			resp, err := srv.Client().Get(srv.URL + query)
			if err != nil {
				b.Fatal(err)
			}
			return resp.Body
		}
		name := "http" + strings.ReplaceAll(query, "?", " ")
		b.Run(name+" raw", func(b *testing.B) {
			b.SetBytes(int64(len(in)))
			for b.Loop() {
				body := get(b)
				io.Copy(io.Discard, body)
				body.Close()
			}
		})
		b.Run(name+" decoded", func(b *testing.B) {
			b.SetBytes(int64(len(in)))
			for b.Loop() {
				body := get(b)
				decode(b, body)
				body.Close()
			}
		})
	}
	b.Run("chat", func(b *testing.B) {
		p := provider.New(provider.Options{Transport: srv.Client().Transport})
		b.SetBytes(int64(len(in)))
		for b.Loop() {
			for _, err := range p.Chat(b.Context(), loquat.LLMRequest{Config: providertest.Config(srv.URL), Messages: providertest.UserSays("hi"), Stream: true}) {
				if err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}
