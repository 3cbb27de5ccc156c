package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
)

// relay is the floor: the least that any durable relay does. It appends the text of each
// chunk to a file, syncs the file, and only then sends the chunk to the followers. Chunks
// that wait at the same time share a sync. It has no database, ids, JSON decoding, retries or
// replays, and it understands only as much of the API as the load needs.
type relay struct {
	backend string
	client  http.Client
	file    *os.File
	queue   inbox[frame]

	mu       sync.Mutex
	sessions map[string]*relaySession
}

// relaySession is a session of the relay.
type relaySession struct {
	id string

	mu        sync.Mutex
	followers map[*inbox[[]byte]]bool
}

// frame is an event on its way to the followers of a session.
type frame struct {
	session *relaySession
	text    []byte
}

// inbox holds what one goroutine is to read.
type inbox[T any] struct {
	wake chan struct{} // holds a value while there may be something to read

	mu    sync.Mutex
	items []T
}

func newInbox[T any]() inbox[T] { return inbox[T]{wake: make(chan struct{}, 1)} }

func (b *inbox[T]) put(item T) {
	b.mu.Lock()
	b.items = append(b.items, item)
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// take returns everything and reuses the slice of the last call.
func (b *inbox[T]) take(last []T) []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	items := b.items
	b.items = last[:0]
	return items
}

// childOptions are the arguments of `loquat serve` that children take.
type childOptions struct{ backend, listen, data string }

func readChildOptions() (o childOptions, err error) {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	config := flags.String("config", "", "")
	flags.StringVar(&o.listen, "listen", "", "")
	flags.StringVar(&o.data, "data", "", "")
	if err := flags.Parse(os.Args[2:]); err != nil {
		return o, err
	}
	text, err := os.ReadFile(*config)
	if err != nil {
		return o, err
	}
	var settings struct {
		Providers struct {
			Main struct {
				BaseURL string `json:"base_url"`
			}
		}
	}
	err = json.Unmarshal(text, &settings)
	o.backend = settings.Providers.Main.BaseURL
	return o, err
}

// serveRelay is the child process. It takes the arguments of `loquat serve`.
func serveRelay() error {
	o, err := readChildOptions()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.data, 0o700); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(o.data, "log"))
	if err != nil {
		return err
	}
	r := &relay{backend: o.backend, file: file, queue: newInbox[frame](), sessions: map[string]*relaySession{}}
	r.client.Transport = &http.Transport{MaxIdleConnsPerHost: 2000}
	failed := make(chan error, 2)
	go func() { failed <- r.commit() }()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /sessions", r.create)
	mux.HandleFunc("POST /sessions/{id}/send", r.send)
	mux.HandleFunc("GET /events/stream", r.follow)
	go func() { failed <- serveChild(o.listen, mux) }()
	return <-failed
}

// serveChild serves HTTP and prints the address as `loquat serve` does.
func serveChild(address string, handler http.Handler) error {
	lis, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Printf("listening on http://%s\n", lis.Addr())
	return http.Serve(lis, handler)
}

// commit writes the frames that wait, syncs the file and hands the frames to the followers.
func (r *relay) commit() error {
	var batch []frame
	var buf []byte
	for range r.queue.wake {
		batch, buf = r.queue.take(batch), buf[:0]
		for _, f := range batch {
			buf = append(buf, f.text...)
		}
		if _, err := r.file.Write(buf); err != nil {
			return err
		}
		if err := r.file.Sync(); err != nil {
			return err
		}
		for _, f := range batch {
			f.session.mu.Lock()
			for follower := range f.session.followers {
				follower.put(f.text)
			}
			f.session.mu.Unlock()
		}
	}
	return nil
}

func (r *relay) create(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	s := &relaySession{id: fmt.Sprint(len(r.sessions) + 1), followers: map[*inbox[[]byte]]bool{}}
	r.sessions[s.id] = s
	r.mu.Unlock()
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"session_id":%q}`, s.id)
}

func (r *relay) session(id string) *relaySession {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessions[id]
}

func (r *relay) send(w http.ResponseWriter, req *http.Request) {
	var body struct{ Content string }
	s := r.session(req.PathValue("id"))
	if err := json.NewDecoder(req.Body).Decode(&body); err != nil || s == nil {
		http.Error(w, "wrong request", http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusAccepted)
	go func() {
		if err := r.run(s, body.Content); err != nil {
			fmt.Fprintln(os.Stderr, "relay:", err)
		}
	}()
}

// run copies the texts of a backend's stream to the queue.
func (r *relay) run(s *relaySession, content string) error {
	body, err := json.Marshal(map[string]any{"stream": true, "messages": []any{map[string]any{"role": "user", "content": content}}})
	if err != nil {
		return err
	}
	resp, err := r.client.Post(r.backend+"/chat/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for n := 1; ; n++ {
		line, err := lines.ReadSlice('\n')
		if _, rest, ok := bytes.Cut(line, []byte(`"content":"`)); ok {
			text, _, _ := bytes.Cut(rest, []byte(`"`))
			r.queue.put(frame{s, fmt.Appendf(nil, "id: %016d\ndata: {\"event_id\":\"%016d\",\"type\":\"partial\",\"session_id\":%q,\"message\":{\"role\":\"assistant\",\"content\":\"%s\"}}\n\n", n, n, s.id, text)})
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	r.queue.put(frame{s, []byte("data: {\"type\":\"request_completed\"}\n\n")})
	return nil
}

func (r *relay) follow(w http.ResponseWriter, req *http.Request) {
	s := r.session(req.URL.Query().Get("session_id"))
	if s == nil {
		http.NotFound(w, req)
		return
	}
	frames := newInbox[[]byte]()
	s.mu.Lock()
	s.followers[&frames] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.followers, &frames)
		s.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	flusher := http.NewResponseController(w)
	for texts := [][]byte{[]byte("id: 0000000000000000\n\n")}; ; texts = frames.take(texts) {
		for _, text := range texts {
			if _, err := w.Write(text); err != nil {
				return
			}
		}
		if err := flusher.Flush(); err != nil {
			return
		}
		select {
		case <-frames.wake:
		case <-req.Context().Done():
			return
		}
	}
}
