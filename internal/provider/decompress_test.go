package provider_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"loquat"
	"loquat/internal/provider"
	"loquat/internal/provider/providertest"
)

// compressed returns data in a content coding.
func compressed(t *testing.T, coding, data string) string {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	switch coding {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "zlib":
		w = zlib.NewWriter(&b)
	case "flate":
		raw, err := flate.NewWriter(&b, flate.BestSpeed)
		if err != nil {
			t.Fatal(err)
		}
		w = raw
	}
	if _, err := io.WriteString(w, data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func encodedAs(coding string) http.Header { return http.Header{"Content-Encoding": {coding}} }

func TestCompressedAnswers(t *testing.T) {
	stream := says("hel") + says("lo") + done
	for _, tc := range []struct {
		name   string
		header http.Header
		coding string
	}{
		{"gzip", encodedAs("gzip"), "gzip"},
		{"its old name, in capitals", encodedAs("X-GZIP"), "gzip"},
		{"gzip and identity", encodedAs("identity, gzip"), "gzip"},
		{"gzip that no header names", nil, "gzip"},
		{"deflate", encodedAs("deflate"), "zlib"},
		{"deflate without its wrapper", encodedAs("deflate"), "flate"},
	} {
		for _, streamed := range []bool{true, false} {
			for kind, body := range map[string]string{"stream": stream, "JSON": hello} {
				for _, chunk := range []int{0, 1} {
					t.Run(fmt.Sprintf("%s/%s/stream %v/reads of %d", tc.name, kind, streamed, chunk), func(t *testing.T) {
						s := &script{steps: []step{{header: tc.header, body: compressed(t, tc.coding, body), chunk: chunk}}}
						o := chat(t, s, retryConfig(nil), streamed)
						if o.err != nil || o.reply.Content != "hello" {
							t.Errorf("%+v, %v", o.reply, o.err)
						}
					})
				}
			}
		}
	}
}

func TestContentEncodingThatDoesNotHold(t *testing.T) {
	for name, tc := range map[string]struct {
		step step
		want string // of the error; "" is a reply
	}{
		"plain text called gzip": {step{header: encodedAs("gzip"), body: hello}, ""},
		"plain stream, identity": {step{header: encodedAs("identity"), body: says("hello") + done}, ""},
		"no body":                {step{header: encodedAs("gzip")}, "ended early"},
		"brotli":                 {step{header: encodedAs("br"), body: "\x0b\x02\x80"}, `compressed with "br"; only gzip and deflate can be read: turn compression off in the backend, or in the proxy in front of it`},
		"two codings":            {step{header: encodedAs("gzip, gzip"), body: "\x1f\x8b"}, `compressed with "gzip, gzip"`},
		"error status":           {step{status: 500, header: encodedAs("gzip"), body: compressed(t, "gzip", `{"error":{"message":"no room"}}`)}, "500 Internal Server Error: no room;"},
		"error status in brotli": {step{status: 500, header: encodedAs("br"), body: "\x0b\x02\x80"}, "500 Internal Server Error: "},
		"cut":                    {step{header: encodedAs("gzip"), body: compressed(t, "gzip", says("hello")+done)[:30], cut: errReset}, "connection reset"},
		"cut short":              {step{header: encodedAs("gzip"), body: compressed(t, "gzip", says("hello")+done)[:30]}, "unexpected EOF"},
		"only the magic":         {step{header: encodedAs("gzip"), body: "\x1f"}, "unexpected EOF"},
		"damaged":                {step{header: encodedAs("gzip"), body: "\x1f\x8b\x07 junk and more of it"}, "gzip"},
		"without its checksum":   {step{header: encodedAs("gzip"), body: compressed(t, "gzip", says("hello")+done)[:len(compressed(t, "gzip", says("hello")+done))-8]}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := chat(t, &script{steps: []step{tc.step}}, retryConfig(nil), true)
			switch {
			case tc.want == "" && (o.err != nil || o.reply.Content != "hello"):
				t.Errorf("%+v, %v", o.reply, o.err)
			case tc.want != "" && (o.err == nil || !strings.Contains(o.err.Error(), tc.want) || strings.Contains(o.err.Error(), "base_url")):
				t.Errorf("error %v does not say %q, or names base_url", o.err, tc.want)
			}
		})
	}
}

// limits.max_response_bytes also limits the size of an answer after decompression.
func TestDecompressionBomb(t *testing.T) {
	for name, data := range map[string]string{
		"stream": strings.Repeat(says("x"), 100_000),
		"JSON":   `{"choices":[{"index":0,"message":{"content":"` + strings.Repeat("x", 10<<20) + `"}}]}`,
	} {
		for coding, header := range map[string]string{"gzip": "gzip", "zlib": "deflate", "flate": "deflate"} {
			for _, status := range []int{200, 500} {
				for _, stream := range []bool{true, false} {
					body := compressed(t, coding, data)
					if len(body) > 1<<18 {
						t.Fatalf("%s: %d bytes are no bomb", name, len(body))
					}
					p := provider.New(provider.Options{Transport: &script{steps: []step{{status: status, header: encodedAs(header), body: body}}}, MaxResponseBytes: 1 << 20})
					o := drain(t, p, t.Context(), loquat.LLMRequest{Config: retryConfig(nil), Messages: providertest.UserSays("hi"), Stream: stream})
					want := "max_response_bytes"
					if status == 500 {
						want = "500 Internal Server Error: "
					}
					if o.err == nil || !strings.Contains(o.err.Error(), want) || len(o.err.Error()) > 4<<10 {
						t.Errorf("%s in %s, status %d, stream %v: %.200v", name, coding, status, stream, o.err)
					}
				}
			}
		}
	}
}

// Increments of a compressed stream arrive when the backend flushes them.
func TestCompressedStreamIsNotHeldBack(t *testing.T) {
	for _, coding := range []string{"gzip", "deflate"} {
		t.Run(coding, func(t *testing.T) {
			shown := make(chan struct{})
			p, c := backend(t, func(w http.ResponseWriter, r *http.Request) {
				if got := r.Header.Get("Accept-Encoding"); got != "identity" {
					t.Errorf("asked for %q", got)
				}
				w.Header().Set("Content-Encoding", coding)
				type flusher interface {
					io.WriteCloser
					Flush() error
				}
				var z flusher = gzip.NewWriter(w)
				if coding == "deflate" {
					z = zlib.NewWriter(w)
				}
				io.WriteString(z, says("first"))
				z.Flush()
				http.NewResponseController(w).Flush()
				select {
				case <-shown:
				case <-time.After(50 * time.Second):
					t.Error("the first increment is held back")
				}
				io.WriteString(z, says(" second")+done)
				z.Close()
			})
			text := ""
			for chunk, err := range p.Chat(t.Context(), loquat.LLMRequest{Config: c, Messages: providertest.UserSays("hi"), Stream: true}) {
				if err != nil {
					t.Fatal(err)
				}
				if text == "" && chunk.Text != "" {
					close(shown)
				}
				text += chunk.Text
			}
			if text != "first second" {
				t.Errorf("text %q", text)
			}
		})
	}
}

// The timeout also applies to silence within a compressed stream.
func TestSilenceOfCompressedStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := compressed(t, "gzip", says("hello")+done)
		start := time.Now()
		o := chat(t, &script{steps: []step{{header: encodedAs("gzip"), body: body[:20], stall: true}}}, retryConfig(nil), true)
		if o.err == nil || !strings.Contains(o.err.Error(), "silent") || time.Since(start) != 10*time.Second {
			t.Errorf("%v after %v", o.err, time.Since(start))
		}
	})
}

// The hint at base_url is given only if the backend cannot be reached or does not know the path.
func TestHintAtBaseURL(t *testing.T) {
	// hijack answers with bytes of its own, then closes the connection.
	hijack := func(answer string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			io.WriteString(conn, answer)
			conn.Close()
		}
	}
	for name, tc := range map[string]struct {
		handler http.HandlerFunc
		hint    bool
	}{
		"not found":                {func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) }, true},
		"reset before the headers": {hijack(""), false},
		"no HTTP":                  {hijack("hello?\r\n\r\n"), false},
		"body cut short":           {hijack("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"choices\":"), false},
		"empty body cut short":     {hijack("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"), false},
		"stream cut short":         {hijack("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\ndat"), false},
		"server error":             {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(500) }, false},
	} {
		for _, stream := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/stream %v", name, stream), func(t *testing.T) {
				p, c := backend(t, tc.handler)
				o := drain(t, p, t.Context(), loquat.LLMRequest{Config: c, Messages: providertest.UserSays("hi"), Stream: stream})
				if o.err == nil || tc.hint != strings.Contains(o.err.Error(), "base_url may lack") {
					t.Errorf("error %v; want the hint: %v", o.err, tc.hint)
				}
			})
		}
	}
	for _, base := range []string{"http://127.0.0.1:1/v1", "http://no-such-host.invalid/v1"} {
		o := drain(t, provider.New(provider.Options{}), t.Context(), loquat.LLMRequest{Config: providertest.Config(base), Messages: providertest.UserSays("hi"), Stream: true})
		if o.err == nil || !strings.Contains(o.err.Error(), "base_url may lack") {
			t.Errorf("%s: %v", base, o.err)
		}
	}
}
