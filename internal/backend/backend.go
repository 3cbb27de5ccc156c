// Package backend is a scripted chat-completions backend: something to talk to
// without a key or a model, and to test clients against.
//
// It promises to answer as an OpenAI-style backend does, the same for the same
// request, in streams and in whole, and to misbehave only as a request or its
// Options ask: every fault is a directive of Script. What it served, and how each
// request ended, is told by GET /_requests. It promises no intelligence: what it
// says is fixed, echoed, or read from a recording. It checks no key, and is not
// made to be reached from the internet.
package backend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// The bounds of what a request may bring and make the backend do.
const (
	maxBody     = 64 << 20 // of a request
	maxJournal  = 1000     // requests remembered
	maxAttempts = 10_000   // script keys whose attempts are counted
	maxStall    = 30 * time.Minute
)

// ToolResultsText answers every conversation that ends in tool results.
const ToolResultsText = "The tools have answered. This is the scripted backend's closing reply."

// Options choose what a Backend does beyond what requests ask of it.
type Options struct {
	// Script lies under the script of every request. Optional.
	Script json.RawMessage
	// Replay answers from recordings instead of the built-in models. Optional.
	Replay *Replay
	// Logger gets a line for each request that ended. Optional.
	Logger *slog.Logger
}

// Backend answers chat-completions requests. It is safe for concurrent use.
type Backend struct {
	base     layer
	replay   *Replay
	logger   *slog.Logger
	mux      *http.ServeMux
	journal  journal
	attempts counter
	answers  atomic.Uint64 // numbers completions
	started  time.Time
}

// New makes a Backend; the error is a fault in opts.Script.
func New(opts Options) (*Backend, error) {
	b := &Backend{
		replay:  opts.Replay,
		logger:  opts.Logger,
		mux:     http.NewServeMux(),
		started: time.Now(),
	}
	if b.logger == nil {
		b.logger = slog.New(slog.DiscardHandler)
	}
	if len(opts.Script) > 0 {
		base, err := parseLayer(opts.Script)
		if err != nil {
			return nil, fmt.Errorf("script: %w", err)
		}
		if err := base.check(); err != nil {
			return nil, fmt.Errorf("script: %w", err)
		}
		b.base = base
	}
	b.mux.HandleFunc("POST /v1/chat/completions", b.chatCompletions)
	b.mux.HandleFunc("GET /v1/models", b.listModels)
	b.mux.HandleFunc("GET /v1/models/{id...}", b.getModel)
	b.mux.HandleFunc("GET /_requests", b.listRequests)
	b.mux.HandleFunc("/v1/chat/completions", wrongMethod("POST"))
	b.mux.HandleFunc("/v1/models", wrongMethod("GET"))
	b.mux.HandleFunc("/", wrongPath)
	return b, nil
}

// ServeHTTP answers one request.
func (b *Backend) ServeHTTP(w http.ResponseWriter, r *http.Request) { b.mux.ServeHTTP(w, r) }

// Serve answers on ln until ctx ends, which cuts off what is still streaming.
func (b *Backend) Serve(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{
		Handler:           b,
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(b.logger.Handler(), slog.LevelWarn),
	}
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	err := srv.Serve(ln)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve the scripted backend: %w", err)
}

// chatCompletions is the one route with a story: read, choose the script, choose
// what to say, play it.
func (b *Backend) chatCompletions(w http.ResponseWriter, r *http.Request) {
	e := b.journal.begin(r)
	defer func() { b.logEnd(b.journal.view(e)) }()
	defer b.journal.abort(e) // only when nothing below has told the end
	w.Header().Set("X-Request-Id", fmt.Sprintf("req_loquat%08d", e.N))

	req, fault := readChat(w, r)
	if fault != nil {
		fault.write(w)
		b.journal.end(e, endRefused, fault.Status)
		return
	}
	b.journal.describe(e, req)
	script, attempt, err := b.scriptFor(r, req)
	if err != nil {
		refuse(http.StatusBadRequest, "loquat_script", "invalid_script", "%v", err).write(w)
		b.journal.end(e, endRefused, http.StatusBadRequest)
		return
	}
	b.journal.attempt(e, script.ID, attempt)
	p := newPlayer(w, r, script)
	defer p.close()
	body, fault := b.answer(r, req, script)
	if fault != nil {
		body = fault.body()
	}
	end := p.play(body)
	b.journal.played(e, end, body.status, p.played)
}

// answer is what the response will hold: an error, a recording, or an utterance.
func (b *Backend) answer(r *http.Request, req *chatRequest, script Script) (*body, *fault) {
	if script.Status != 0 {
		return script.errorBody(), nil
	}
	if b.replay != nil && !req.endsInToolResults() {
		return b.replay.body(r, req)
	}
	said := script.apply(req, speak(req))
	if said.fault != nil {
		return nil, said.fault
	}
	id := fmt.Sprintf("chatcmpl-loquat%08d", b.answers.Add(1))
	if req.Stream {
		return said.stream(id, req, script), nil
	}
	return said.whole(id, req, script)
}

func (b *Backend) logEnd(e Entry) {
	b.logger.Info("request ended", "n", e.N, "model", e.Model, "stream", e.Stream,
		"status", e.Status, "end", e.End, "chunks", e.Chunks)
}

func (b *Backend) listModels(w http.ResponseWriter, _ *http.Request) {
	models, err := b.models()
	if err != nil {
		refuse(http.StatusInternalServerError, "", "recordings_unreadable", "%v", err).write(w)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": models})
}

func (b *Backend) getModel(w http.ResponseWriter, r *http.Request) {
	models, err := b.models()
	if err != nil {
		refuse(http.StatusInternalServerError, "", "recordings_unreadable", "%v", err).write(w)
		return
	}
	for _, m := range models {
		if m.ID == r.PathValue("id") {
			writeJSON(w, http.StatusOK, m)
			return
		}
	}
	refuse(http.StatusNotFound, "model", "model_not_found",
		"There is no model %q here; GET /v1/models lists what there is.", r.PathValue("id")).write(w)
}

// models lists the built-in models, or the recordings that stand in for them.
func (b *Backend) models() ([]model, error) {
	var list []model
	if b.replay != nil {
		names, err := b.replay.names()
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			list = append(list, model{ID: name, Name: "Recording " + name})
		}
	} else {
		for _, v := range voices {
			list = append(list, model{ID: v.id, Name: v.name})
		}
	}
	for i := range list {
		list[i].Object, list[i].OwnedBy, list[i].Created = "model", "loquat", b.started.Unix()
	}
	return list, nil
}

type model struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
	Name    string `json:"name"`
}

func (b *Backend) listRequests(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{"requests": b.journal.list()})
}

func wrongMethod(allowed string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", allowed)
		refuse(http.StatusMethodNotAllowed, "", "method_not_allowed",
			"%s %s is not served; use %s.", r.Method, r.URL.Path, allowed).write(w)
	}
}

func wrongPath(w http.ResponseWriter, r *http.Request) {
	refuse(http.StatusNotFound, "", "unknown_url",
		"Unknown request URL: %s %s. The base URL of this backend is http://%s/v1: clients append /chat/completions or /models to it.",
		r.Method, r.URL.Path, r.Host).write(w)
}

// fault is a refusal in the shape that clients of OpenAI-style backends expect.
type fault struct {
	Status  int    `json:"-"`
	Message string `json:"message"`
	Type    string `json:"type"`
	Param   any    `json:"param"` // a string, or null
	Code    string `json:"code"`
}

func refuse(status int, param, code, format string, args ...any) *fault {
	f := &fault{Status: status, Message: fmt.Sprintf(format, args...), Type: "invalid_request_error", Code: code}
	if status >= 500 {
		f.Type = "server_error"
	}
	if param != "" {
		f.Param = param
	}
	return f
}

func (f *fault) json() []byte {
	b, err := json.Marshal(map[string]any{"error": f})
	if err != nil {
		panic(err) // strings and nil always encode
	}
	return b
}

func (f *fault) body() *body {
	return &body{status: f.Status, contentType: contentJSON, whole: f.json()}
}

func (f *fault) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", contentJSON)
	w.WriteHeader(f.Status)
	w.Write(f.json())
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", contentJSON)
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v) // fails only when the client has gone
}
