package provider_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/plugin"
	"loquat/internal/provider"
	"loquat/internal/provider/providertest"
)

var (
	_ plugin.Plugin   = (*provider.Provider)(nil)
	_ plugin.Provider = (*provider.Provider)(nil)
	_ config.Owner    = (*provider.Provider)(nil)
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// backend runs a handler and a Provider for it.
func backend(t *testing.T, h http.HandlerFunc) (*provider.Provider, loquat.Object) {
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	p := provider.New(provider.Options{UserAgent: "loquat-test"})
	t.Cleanup(p.Close)
	return p, providertest.Config(srv.URL + "/v1/")
}

func TestRequestOnTheWire(t *testing.T) {
	p, c := backend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != "POST" || r.URL.Path != "/v1/chat/completions" || r.Header.Get("Authorization") != "Bearer sk-secret-key" ||
			r.Header.Get("Content-Type") != "application/json" || r.Header.Get("User-Agent") != "loquat-test" || r.ContentLength <= 0 {
			w.WriteHeader(400)
			fmt.Fprintf(w, "%s %s %v", r.Method, r.URL, r.Header)
			return
		}
		fmt.Fprint(w, hello)
	})
	if o := drain(t, p, t.Context(), loquat.LLMRequest{Config: c, Messages: providertest.UserSays("hi")}); o.err != nil {
		t.Error(o.err)
	}
	delete(c, "api_key")
	o := drain(t, p, t.Context(), loquat.LLMRequest{Config: c, Messages: providertest.UserSays("hi")})
	if o.err == nil || strings.Contains(o.err.Error(), "Authorization") {
		t.Errorf("without a key: %v", o.err)
	}
}

// The connection is closed at once if the caller cancels or stops reading.
func TestConnectionIsClosedAtOnce(t *testing.T) {
	for _, how := range []string{"cancel", "stop reading"} {
		t.Run(how, func(t *testing.T) {
			closed := make(chan struct{})
			p, c := backend(t, func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, says("x"))
				http.NewResponseController(w).Flush()
				<-r.Context().Done()
				close(closed)
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var last error
			for chunk, err := range p.Chat(ctx, loquat.LLMRequest{Config: c, Messages: providertest.UserSays("hi"), Stream: true}) {
				last = err
				if how == "stop reading" {
					break
				}
				if chunk.Text == "x" {
					cancel()
				}
			}
			if how == "cancel" && !errors.Is(last, context.Canceled) {
				t.Errorf("the end is %v", last)
			}
			select {
			case <-closed:
			case <-time.After(30 * time.Second):
				t.Error("the backend still waits")
			}
		})
	}
}

// A chunked body that is cut short is a connection error of the stream.
func TestCutOnTheWire(t *testing.T) {
	var requests atomic.Int32 // the second comes while the first is still ending
	p, c := backend(t, func(w http.ResponseWriter, r *http.Request) {
		n := requests.Add(1)
		fmt.Fprint(w, says("a"))
		http.NewResponseController(w).Flush()
		if n == 1 {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprint(w, says("b")+done)
	})
	c.Set("stream_recovery", map[string]string{"mode": "aggressive"})
	o := drain(t, p, t.Context(), loquat.LLMRequest{Config: c, Messages: providertest.UserSays("hi"), Stream: true})
	if o.err != nil || o.text != "ab" || len(o.retries) != 1 {
		t.Errorf("%+v", o)
	}
}

// A backend that does not close the stream after [DONE] does not delay the reply.
func TestOpenAfterDone(t *testing.T) {
	p, c := backend(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, says("a")+done)
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	start := time.Now()
	o := drain(t, p, t.Context(), loquat.LLMRequest{Config: c, Messages: providertest.UserSays("hi"), Stream: true})
	if o.err != nil || o.text != "a" || time.Since(start) > 5*time.Second {
		t.Errorf("%v after %v", o.err, time.Since(start))
	}
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	var mu sync.Mutex
	conns := map[string]bool{}
	p, c := backend(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		conns[r.RemoteAddr] = true
		fmt.Fprint(w, says("a")+done)
	})
	for range 5 {
		drain(t, p, t.Context(), loquat.LLMRequest{Config: c, Messages: providertest.UserSays("hi"), Stream: true})
	}
	if len(conns) != 1 {
		t.Errorf("%d connections for 5 requests in a row", len(conns))
	}
}

func TestRefusedConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	p := provider.New(provider.Options{})
	c := providertest.Config("http://" + l.Addr().String())
	o := drain(t, p, t.Context(), loquat.LLMRequest{Config: c, Messages: providertest.UserSays("hi"), Stream: true})
	if o.err == nil || !strings.Contains(o.err.Error(), "refused") || !strings.Contains(o.err.Error(), "may not run there") || !strings.Contains(o.err.Error(), "/v1") {
		t.Errorf("%v", o.err)
	}
}

func TestErrorDetail(t *testing.T) {
	long := strings.Repeat("é", 5000)
	for _, tc := range []struct {
		name   string
		status int
		header http.Header
		body   string
		want   []string
	}{
		{"openai", 400, http.Header{"X-Request-Id": {"req_7"}}, `{"error":{"message":"bad image","type":"invalid_request_error","code":"invalid_image_url"}}`,
			[]string{"400 Bad Request: bad image (code invalid_image_url, type invalid_request_error)", "request id is req_7", "1 attempt "}},
		{"lm studio", 400, nil, `{"error":{"message":"inner"},"message":"outer"}`, []string{"inner"}},
		{"string", 500, nil, `{"error":"boom"}`, []string{"500 Internal Server Error: boom"}},
		{"mistral", 401, nil, `{"detail":"Invalid API Key"}`, []string{"Invalid API Key", "api_key (or OPENAI_API_KEY) may be missing or wrong"}},
		{"cerebras", 422, nil, `{"message":"wrong","type":"t","code":"c"}`, []string{"wrong (code c, type t)"}},
		{"gemini", 400, nil, `[{"error":{"code":400,"message":"list"}}]`, []string{"list (code 400)"}},
		{"openrouter", 429, nil, `{"error":{"message":"Provider returned error","code":429,"metadata":{"raw":"upstream is busy"}}}`, []string{"Provider returned error", "upstream is busy"}},
		{"unknown JSON", 400, nil, `{"errors":[{"loc":["body"]}]}`, []string{`{"errors":[{"loc":["body"]}]}`}},
		{"page", 502, nil, "<html>" + long, []string{"502 Bad Gateway: <html>éé", "é…"}},
		{"empty", 503, nil, "", []string{"503 Service Unavailable; 1 attempt"}},
		{"not found", 404, nil, "404 page not found", []string{"base_url may lack its version prefix, such as /v1"}},
		{"redirect", 302, http.Header{"Location": {"https://elsewhere.test/"}}, "", []string{"redirects are not followed", "https://elsewhere.test/"}},
		{"secret", 401, nil, `{"error":{"message":"wrong key sk-secret-key, not pass-word"}}`, []string{"wrong key ***, not ***"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := providertest.Config("http://user:pass-word@backend.test/v1").Set("api_key", "sk-secret-key")
			o := chat(t, &script{steps: []step{{status: tc.status, header: tc.header, body: tc.body}}}, c, true)
			e, ok := errors.AsType[*loquat.Error](o.err)
			if !ok || e.Code != loquat.CodeBackendError {
				t.Fatalf("error is %v", o.err)
			}
			for _, want := range tc.want {
				if !strings.Contains(e.Detail, want) {
					t.Errorf("%q does not say %q", e.Detail, want)
				}
			}
			if strings.Contains(e.Error(), "secret-key") || strings.Contains(e.Error(), "pass-word") || len(e.Detail) > 2500 {
				t.Errorf("%q says too much", e.Error())
			}
		})
	}
}

// A secret must not leak if the message is cut in the middle of it.
func TestSecretAtTheCut(t *testing.T) {
	c := providertest.Config(providertest.URL)
	o := chat(t, &script{steps: []step{{status: 500, body: strings.Repeat("x", provider.MaxQuote-5) + "sk-secret-key"}}}, c, true)
	if strings.Contains(o.err.Error(), "sk-se") {
		t.Errorf("half of the key is there: %v", o.err)
	}
}

func TestDebugStream(t *testing.T) {
	var log bytes.Buffer
	p := provider.New(provider.Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Transport: &script{steps: []step{{body: says("key sk-secret-key") + done}, {body: says("x") + done}}}})
	c := providertest.Config(providertest.URL).Set("debug_stream", true)
	o := drain(t, p, t.Context(), loquat.LLMRequest{ProviderID: "main", Config: c, Messages: providertest.UserSays("hi"), Stream: true})
	if o.text != "key sk-secret-key" {
		t.Errorf("the model's own text was altered: %q", o.text)
	}
	if n := strings.Count(log.String(), "stream chunk"); n != 3 || strings.Contains(log.String(), "secret-key") || !strings.Contains(log.String(), "key ***") {
		t.Errorf("%d lines: %s", n, log.String())
	}
	log.Reset()
	drain(t, p, t.Context(), loquat.LLMRequest{Config: providertest.Config(providertest.URL), Messages: providertest.UserSays("hi"), Stream: true})
	if log.Len() > 0 {
		t.Errorf("logged without being asked: %s", log.String())
	}
}

func TestModels(t *testing.T) {
	for _, tc := range []struct {
		name   string
		status int
		body   string
		want   []string
		fails  bool
	}{
		{"data", 200, `{"object":"list","data":[{"id":"a","owned_by":"x"},{"id":""},{"id":7},{"id":"b","name":"Bee"}]}`, []string{"a  1", "b Bee 0"}, false},
		{"models", 200, `{"models":[{"id":"a"}]}`, []string{"a  0"}, false},
		{"bare", 200, `[{"id":"a"}]`, []string{"a  0"}, false},
		{"no route", 404, "no", nil, false},
		{"wrong method", 405, "", nil, false},
		{"no key", 401, `{"error":{"message":"who?"}}`, nil, true},
		{"page", 200, "<html>", nil, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, c := backend(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method != "GET" || r.URL.Path != "/v1/models" {
					t.Errorf("%s %s", r.Method, r.URL)
				}
				w.WriteHeader(tc.status)
				fmt.Fprint(w, tc.body)
			})
			delete(c, "model")
			models, err := p.Models(t.Context(), c)
			var got []string
			for _, m := range models {
				got = append(got, fmt.Sprintf("%s %s %d", m.ID, m.Name, len(m.Extra)))
			}
			if !slices.Equal(got, tc.want) || tc.fails != (err != nil) {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

// Pacing also applies to retries and recoveries.
func TestPaceOfRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{steps: []step{{status: 500}, {body: says("x"), cut: errReset}, {body: says("x") + done}}}
		o := chat(t, s, retryConfig(func(c loquat.Object) {
			c.Set("min_request_interval_seconds", 4).Set("retry_on_status", map[string]any{"500": "1"}).Set("stream_recovery", map[string]any{"mode": "aggressive"})
		}), true)
		if o.err != nil || len(s.seen) != 3 || s.seen[1].Sub(s.seen[0]) != 4*time.Second || s.seen[2].Sub(s.seen[1]) != 4*time.Second {
			t.Errorf("%v, %v", s.seen, o.err)
		}
	})
}

// A slow reader is not mistaken for a silent backend.
func TestSlowReaderIsNoSilence(t *testing.T) {
	for name, pause := range map[string]time.Duration{"longer than the timeout": 25 * time.Second, "longer than comments are borne": 40 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				body := says("a") + says("b") + done
				s := &script{steps: []step{{body: body, chunk: len(says("a")), every: time.Second}}}
				p := provider.New(provider.Options{Transport: s})
				text := ""
				for c, err := range p.Chat(t.Context(), loquat.LLMRequest{Config: retryConfig(nil), Messages: providertest.UserSays("hi"), Stream: true}) {
					if err != nil {
						t.Fatal(err)
					}
					text += c.Text
					time.Sleep(pause)
				}
				if text != "ab" {
					t.Errorf("text %q", text)
				}
			})
		})
	}
}

// Over a real connection, the retry is sent while the backend still writes its error.
func TestRetryOvertakesTheErrorBodyOnTheWire(t *testing.T) {
	retried := make(chan struct{})
	var requests atomic.Int32
	p, c := backend(t, func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) > 1 {
			close(retried)
			fmt.Fprint(w, says("ok")+done)
			return
		}
		w.Header().Set("Content-Length", "1000")
		w.WriteHeader(500)
		fmt.Fprint(w, `{"error":`)
		http.NewResponseController(w).Flush()
		select {
		case <-retried:
		case <-time.After(50 * time.Second):
			t.Error("the retry waits for the body of the error")
		}
	})
	c.Set("retry_on_status", map[string]any{"500": []float64{0.2}})
	if o := drain(t, p, t.Context(), loquat.LLMRequest{Config: c, Messages: providertest.UserSays("hi"), Stream: true}); o.err != nil || o.text != "ok" {
		t.Errorf("%q, %v", o.text, o.err)
	}
}

// A small request goes out in one piece: each piece more would cost a system call, and the backend would be woken
// before it can begin.
func TestSmallRequestIsOneWrite(t *testing.T) {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"choices":[{"message":{"content":"hi"}}]}`)
	}))
	defer backend.Close()
	var writes atomic.Int64
	transport := provider.DefaultTransport().(*http.Transport)
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := provider.Dial(ctx, network, address)
		return countingConn{c, &writes}, err
	}
	p := provider.New(provider.Options{Transport: transport})
	t.Cleanup(p.Close)
	for _, size := range []int{10, 100 << 10} {
		writes.Store(0)
		o := drain(t, p, t.Context(), loquat.LLMRequest{Config: providertest.Config(backend.URL), Messages: providertest.UserSays(strings.Repeat("x", size))})
		if o.err != nil {
			t.Fatal(o.err)
		}
		if n := writes.Load(); (n == 1) != (size == 10) {
			t.Errorf("a message of %d bytes goes out in %d writes", size, n)
		}
	}
}

type countingConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c countingConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}
