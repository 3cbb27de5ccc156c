package load_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

// longReply is a backend whose replies have many bytes of text.
type longReply struct {
	field string        // of the delta or message
	piece int           // bytes of text in a chunk
	size  int           // of all text
	whole bool          // it does not stream
	sent  chan struct{} // closed when all text was sent; then the reply stays open
}

func (b *longReply) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const line = `All happy families are alike; each unhappy family is unhappy in its own way.\n`
	text := strings.Repeat(line, b.piece/len(line)+1)
	if b.whole {
		fmt.Fprintf(w, `{"choices":[{"index":0,"message":{"role":"assistant","%s":"`, b.field)
		for n := 0; n < b.size; n += len(text) {
			fmt.Fprint(w, text)
		}
		fmt.Fprint(w, `"},"finish_reason":"stop"}]}`)
		return
	}
	w.Header().Set("Content-Type", binary.EventStream)
	for n := 0; n < b.size; n += len(text) {
		fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"%s\":\"%s\"}}]}\n\n", b.field, text)
	}
	if b.sent != nil {
		w.(http.Flusher).Flush()
		close(b.sent)
		<-r.Context().Done()
		return
	}
	fmt.Fprint(w, binary.SSEStop)
}

// longRun is a server whose only request gets a long reply.
type longRun struct {
	t       *testing.T
	args    []string
	server  *binary.Process
	client  *client.Client
	session string
	request string
}

func startLongRun(ctx context.Context, t *testing.T, b *longReply) *longRun {
	t.Helper()
	backend := httptest.NewServer(b)
	t.Cleanup(backend.Close)
	config := filepath.Join(t.TempDir(), "loquat.json")
	text := fmt.Sprintf(`{"providers": {"main": {"provider": "reference_generic_compatible", "base_url": %q, "model": "m"}}, "limits": {"max_response_bytes": %d}}`, backend.URL, 10*b.size)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &longRun{t: t, args: []string{"serve", "--config", config, "--listen", "127.0.0.1:0", "--data", t.TempDir()}}
	r.server = binary.Start(t, nil, r.args...)
	r.connect()
	r.session = binary.CreateSession(ctx, t, r.client, nil).SessionID
	return r
}

func (r *longRun) connect() {
	r.t.Helper()
	c, err := client.New(r.server.URL, client.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(c.CloseIdleConnections)
	r.client = c
}

func (r *longRun) send(ctx context.Context, stream bool) {
	r.t.Helper()
	content := "go on"
	sent, err := r.client.Send(ctx, r.session, loquat.Send{Content: &content, Stream: &stream})
	if err != nil {
		r.t.Fatal(err)
	}
	r.request = sent.RequestID
}

// kill ends the server as a crash does.
func (r *longRun) kill() {
	_ = r.server.Cmd.Process.Kill()
	_ = r.server.Cmd.Wait()
}

// ended waits for the end of the request.
func (r *longRun) ended(ctx context.Context) loquat.Request {
	r.t.Helper()
	for {
		q, err := r.client.Request(ctx, r.request)
		if err != nil {
			r.t.Fatal(err)
		}
		if q.Status.Ended() {
			return q
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// A large reply needs a small multiple of its size in memory, regardless of how its request
// ends. A start that reconciles such a request needs no more than running it did.
func TestMemoryOfLargeReplies(t *testing.T) {
	if testing.Short() || runtime.GOOS != "linux" {
		t.Skip("long, and reads /proc: sends 300 MB")
	}
	const size, times = 40 << 20, 7
	for _, c := range []struct {
		name, field string
		whole       bool
		end         string // "" (it completes), cancel or kill
	}{
		{"streamed", "content", false, ""},
		{"reasoning", "reasoning_content", false, ""},
		{"not streamed", "content", true, ""},
		{"cancelled", "content", false, "cancel"},
		{"killed", "content", false, "kill"},
		{"killed while it reasons", "reasoning_content", false, "kill"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
			defer cancel()
			b := &longReply{field: c.field, piece: 1000, size: size, whole: c.whole}
			if c.end != "" {
				b.sent = make(chan struct{})
			}
			r := startLongRun(ctx, t, b)
			idle := binary.Memory(t, r.server, "VmHWM")
			r.send(ctx, !c.whole)
			if c.end != "" {
				<-b.sent
				time.Sleep(time.Second) // for the last of it; what is missing makes it cheaper
			}
			switch c.end {
			case "cancel":
				if _, err := r.client.Cancel(ctx, r.request); err != nil {
					t.Fatal(err)
				}
			case "kill":
				r.kill()
				r.server = binary.Start(t, nil, r.args...)
				r.connect()
			}
			q := r.ended(ctx)
			if (q.Status == loquat.StatusCompleted) != (c.end == "") {
				t.Errorf("it ends %s: %s", q.Status, q.Error)
			}
			took := float64(binary.Memory(t, r.server, "VmHWM")-idle) / size
			t.Logf("it takes %.1f times the %d MiB of the reply", took, size>>20)
			if took > times {
				t.Errorf("it takes %.1f times the size of the reply, want at most %d", took, times)
			}
		})
	}
}

// Starts that lack the memory to take up a request die of it; the third one ends the
// request without its text and serves all sessions.
func TestStartsThatLackMemory(t *testing.T) {
	if testing.Short() || runtime.GOOS != "linux" {
		t.Skip("long, and limits memory with prlimit")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	const size = 80 << 20
	b := &longReply{field: "content", piece: 1000, size: size, sent: make(chan struct{})}
	r := startLongRun(ctx, t, b)
	limit := (binary.Memory(t, r.server, "VmSize") + 2*size) >> 10
	r.send(ctx, true)
	<-b.sent
	time.Sleep(3 * time.Second) // for the last of it; what is missing makes it cheaper
	r.kill()
	path, err := binary.Path()
	if err != nil {
		t.Fatal(err)
	}
	for attempt := 1; ; attempt++ {
		cmd := exec.Command("sh", append([]string{"-c", `ulimit -v "$0" && exec "$@"`, fmt.Sprint(limit), path}, r.args...)...)
		cmd.Env = binary.CleanEnv()
		p, err := binary.LaunchCommand(cmd)
		if err != nil {
			t.Fatal(err)
		}
		r.server = p
		if err = p.Listening(); err == nil {
			t.Cleanup(func() { p.End(t) })
			t.Logf("start %d serves", attempt)
			break
		}
		_ = p.Cmd.Wait()
		t.Logf("start %d: %.300s", attempt, p.Log)
		if attempt == 3 {
			t.Fatalf("no start serves: %v", err)
		}
	}
	r.connect()
	if q := r.ended(ctx); q.Status != loquat.StatusFailed || !strings.Contains(q.Error, "the server stopped unexpectedly") {
		t.Errorf("the request ends %s: %s", q.Status, q.Error)
	}
	if _, err := r.client.CreateSession(ctx, loquat.NewSession{}); err != nil {
		t.Errorf("another session: %v", err)
	}
}
