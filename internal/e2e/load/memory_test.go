package load_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

// longReply is a backend whose replies have many bytes of text.
type longReply struct {
	fields []string      // of the delta or message; the text is spread over them
	line   string        // of JSON, repeated
	piece  int           // least bytes of text in a chunk; 0 means 1000
	size   int           // of all text, in bytes of JSON
	whole  bool          // it does not stream
	sent   chan struct{} // closed when all text was sent; then the reply stays open
}

// The lines of which replies are made.
const (
	plainLine   = `All happy families are alike; each unhappy family is unhappy in its own way.\n`
	escapedLine = `\"\\\/\b\f\n\r\t\u0001\u0000\u00e9\u2028\ud83d\ude00<&>é€😀\"`
)

func (b *longReply) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text := strings.Repeat(b.line, max(b.piece, 1000)/len(b.line)+1)
	if b.whole {
		fmt.Fprint(w, `{"choices":[{"index":0,"message":{"role":"assistant"`)
		for _, field := range b.fields {
			fmt.Fprintf(w, `,"%s":"`, field)
			for n := 0; n < b.size/len(b.fields); n += len(text) {
				fmt.Fprint(w, text)
			}
			fmt.Fprint(w, `"`)
		}
		fmt.Fprint(w, `},"finish_reason":"stop"}]}`)
		return
	}
	w.Header().Set("Content-Type", binary.EventStream)
	for n, i := 0, 0; n < b.size; n, i = n+len(text), i+1 {
		fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"%s\":\"%s\"}}]}\n\n", b.fields[i%len(b.fields)], text)
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
	text := fmt.Sprintf(`{"providers": {"main": {"provider": "reference_generic_compatible", "base_url": %q, "model": "m"}}, "limits": {"max_response_bytes": %d}}`, backend.URL, 10*b.size)
	config := binary.WriteConfig(t, text)
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

// A large reply needs at most three times its size in memory, however it arrives and however
// its request ends. A start that reconciles such a request needs no more than running it did.
func TestMemoryOfLargeReplies(t *testing.T) {
	if testing.Short() || runtime.GOOS != "linux" {
		t.Skip("long, and reads /proc: sends 700 MB")
	}
	const size, times = 48 << 20, 3
	content, reasoning := []string{"content"}, []string{"reasoning_content"}
	both := []string{"reasoning_content", "content"}
	for _, c := range []struct {
		name  string
		reply longReply
		end   string // "" (it completes), cancel or kill
	}{
		{"streamed", longReply{fields: content, line: plainLine}, ""},
		{"streamed in two chunks", longReply{fields: content, line: plainLine, piece: size / 2}, ""},
		{"streamed escapes", longReply{fields: content, line: escapedLine}, ""},
		{"streamed escapes in two chunks", longReply{fields: content, line: escapedLine, piece: size / 2}, ""},
		{"streamed reasoning", longReply{fields: reasoning, line: plainLine}, ""},
		{"streamed reasoning and content", longReply{fields: both, line: plainLine}, ""},
		{"not streamed", longReply{fields: content, line: plainLine, whole: true}, ""},
		{"not streamed escapes", longReply{fields: content, line: escapedLine, whole: true}, ""},
		{"not streamed reasoning and content", longReply{fields: both, line: plainLine, whole: true}, ""},
		{"cancelled", longReply{fields: content, line: plainLine}, "cancel"},
		{"cancelled escapes of reasoning", longReply{fields: reasoning, line: escapedLine}, "cancel"},
		{"killed", longReply{fields: content, line: plainLine}, "kill"},
		{"killed while it reasons", longReply{fields: reasoning, line: plainLine}, "kill"},
		{"killed escapes", longReply{fields: both, line: escapedLine}, "kill"},
	} {
		t.Run(c.name, func(t *testing.T) {
			requireMemory(t, times, func() float64 {
				ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
				defer cancel()
				b := c.reply
				b.size = size
				if c.end != "" {
					b.sent = make(chan struct{})
				}
				r := startLongRun(ctx, t, &b)
				idle := binary.Memory(t, r.server, "VmHWM")
				r.send(ctx, !b.whole)
				if c.end != "" {
					<-b.sent
					time.Sleep(time.Second) // for the last of it; what is missing makes it cheaper
				}
				running := 0.0
				switch c.end {
				case "cancel":
					if _, err := r.client.Cancel(ctx, r.request); err != nil {
						t.Fatal(err)
					}
				case "kill":
					running = r.memorySince(idle, size)
					r.kill()
					r.server = binary.Start(t, nil, r.args...)
					r.connect()
				}
				q := r.ended(ctx)
				if (q.Status == loquat.StatusCompleted) != (c.end == "") {
					t.Errorf("it ends %s: %s", q.Status, q.Error)
				}
				return max(running, r.memorySince(idle, size))
			})
		})
	}
}

// requireMemory fails the test if all of some runs take more than some times the reply's size. On a
// busy machine the garbage collector is late, so the best one counts, and later ones wait for a
// quieter moment.
func requireMemory(t *testing.T, times float64, run func() float64) {
	t.Helper()
	for tries := range 6 {
		time.Sleep(time.Duration(tries) * time.Second)
		took := run()
		t.Logf("it takes %.2f times the size of the reply", took)
		if t.Failed() || took <= times {
			return
		}
	}
	t.Errorf("it takes more than %.1f times the size of the reply", times)
}

// memorySince returns the memory that the server took since it was idle, in replies of a size.
func (r *longRun) memorySince(idle int64, size int) float64 {
	r.t.Helper()
	return float64(binary.Memory(r.t, r.server, "VmHWM")-idle) / float64(size)
}

// Clients that read a large reply at the same time share its bytes, while it is stored and
// after that, in events and in snapshots.
func TestMemoryOfReadersOfALargeReply(t *testing.T) {
	if testing.Short() || runtime.GOOS != "linux" {
		t.Skip("long, and reads /proc: sends 400 MB")
	}
	const size, times, readers = 48 << 20, 3, 4
	for _, c := range []struct {
		name, path string
		field      string
		live       bool // the reply is streamed, and the clients read while it arrives
	}{
		{"stream of events", "/events/stream?since_id=0&session_id=", "content", true},
		{"old events", "/events?limit=5000&since_id=0&session_id=", "content", false},
		{"snapshot", "/sessions/", "content", false},
		{"snapshot with reasoning", "/sessions/", "reasoning", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			requireMemory(t, times, func() float64 {
				ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
				defer cancel()
				r := startLongRun(ctx, t, &longReply{fields: []string{c.field}, line: plainLine, size: size, whole: !c.live})
				idle := binary.Memory(t, r.server, "VmHWM")
				r.send(ctx, c.live)
				if !c.live {
					r.ended(ctx)
					r.server.End(t)
					r.server = binary.Start(t, nil, r.args...)
					r.connect()
				}
				var reading sync.WaitGroup
				for range readers {
					reading.Go(func() {
						// A window ends before the event with the reply, so the client asks again.
						n := 0
						for since := "since_id=0"; n < size; {
							got := 0
							if got, since = readReply(ctx, t, strings.Replace(r.server.URL+c.path+r.session, "since_id=0", since, 1)); got < 100 {
								t.Errorf("a client read %d bytes, want at least %d", n, size)
								return
							}
							n += got
						}
					})
				}
				reading.Wait()
				return r.memorySince(idle, size)
			})
		})
	}
}

// readReply reads an answer to its end, or a stream to the end of the request. It returns the
// size, and the parameter since_id of the next window.
func readReply(ctx context.Context, t *testing.T, url string) (n int, since string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("%s answers %s", url, resp.Status)
		return 0, ""
	}
	buf := make([]byte, 0, 128<<10)
	id := regexp.MustCompile(`"event_id":"(\d+)","type":"([a-z_]+)"`)
	for {
		m, err := resp.Body.Read(buf[len(buf):cap(buf)])
		n += m
		buf = buf[:len(buf)+m]
		ended := false
		for _, found := range id.FindAllSubmatch(buf, -1) {
			since = "since_id=" + string(found[1])
			ended = string(found[2]) == "request_completed" && strings.Contains(url, "/stream")
		}
		if err != nil || ended {
			return n, since
		}
		if keep := 100; len(buf) > keep {
			buf = append(buf[:0], buf[len(buf)-keep:]...)
		}
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
	b := &longReply{fields: []string{"content"}, line: plainLine, size: size, sent: make(chan struct{})}
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
		// The third start that gets as far as the request does without its text. A start may
		// also die earlier, because the limit counts address space that a runtime only reserves.
		if attempt == 5 {
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
