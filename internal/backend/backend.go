// Package backend is a scripted chat-completions backend, for trying the service without a
// key or a model and for testing clients.
//
// It answers as an OpenAI-style backend does, streamed or not, and always the same for the
// same request. It fails only if a request or the Options ask for it: every fault is a
// directive of Script. GET /_requests lists the requests and how each ended. Replies are
// fixed, echoed, or read from a recording. The backend does not check keys and must not be
// reachable from the internet.
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

// The bounds on the work for a request and on the memory for all requests.
const (
	maxBody     = 64 << 20 // of a request
	maxJournal  = 1000     // requests in the journal
	maxAttempts = 10_000   // script keys whose attempts are counted
	maxStall    = 30 * time.Minute
)

// ToolResultsText is the reply to every conversation that ends in tool results.
const ToolResultsText = "The tools have answered. This is the scripted backend's closing reply."

// Options configure a Backend.
type Options struct {
	// Script holds the default directives; the script of a request is merged over
	// them. Optional.
	Script json.RawMessage
	// Replay answers from recordings instead of the built-in models. Optional.
	Replay *Replay
	// Logger logs a line for each request that ended. Optional.
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
	answers  atomic.Uint64 // number of completions, for their ids
	started  time.Time
}

// New returns a Backend. It fails only if opts.Script is not valid.
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
		if err := base.validateAttempts(); err != nil {
			return nil, fmt.Errorf("script: %w", err)
		}
		b.base = base
	}
	b.mux.HandleFunc("POST /v1/chat/completions", b.chatCompletions)
	b.mux.HandleFunc("GET /v1/models", b.listModels)
	b.mux.HandleFunc("GET /v1/models/{id...}", b.getModel)
	b.mux.HandleFunc("GET /_requests", b.listRequests)
	b.mux.HandleFunc("/v1/chat/completions", handleWrongMethod("POST"))
	b.mux.HandleFunc("/v1/models", handleWrongMethod("GET"))
	b.mux.HandleFunc("/", handleUnknownPath)
	return b, nil
}

// ServeHTTP answers one request.
func (b *Backend) ServeHTTP(w http.ResponseWriter, r *http.Request) { b.mux.ServeHTTP(w, r) }

// Serve serves requests on ln until ctx ends. It cuts off the responses that are then still
// being written.
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

// chatCompletions answers a chat-completions request: it reads the request, finds its
// script, builds the response and writes it as the script says.
func (b *Backend) chatCompletions(w http.ResponseWriter, r *http.Request) {
	e := b.journal.begin(r)
	defer func() { b.logEnd(b.journal.view(e)) }()
	defer b.journal.abort(e) // does nothing unless the handler panicked
	w.Header().Set("X-Request-Id", fmt.Sprintf("req_loquat%08d", e.N))

	req, apiErr := readChat(w, r)
	if apiErr != nil {
		apiErr.write(w)
		b.journal.end(e, endRefused, apiErr.Status)
		return
	}
	b.journal.describe(e, req)
	script, attempt, err := b.scriptFor(r, req)
	if err != nil {
		newAPIError(http.StatusBadRequest, "loquat_script", "invalid_script", "%v", err).write(w)
		b.journal.end(e, endRefused, http.StatusBadRequest)
		return
	}
	b.journal.attempt(e, script.ID, attempt)
	p := newBodyWriter(w, r, script)
	defer p.close()
	body, apiErr := b.buildBody(r, req, script)
	if apiErr != nil {
		body = apiErr.body()
	}
	end := p.write(body)
	b.journal.finish(e, end, body.status, p.written)
}

// buildBody returns the body of the response: an error, a recording or a reply.
func (b *Backend) buildBody(r *http.Request, req *chatRequest, script Script) (*body, *apiError) {
	if script.Status != 0 {
		return script.errorBody(), nil
	}
	if b.replay != nil && !req.endsInToolResults() {
		return b.replay.body(r, req)
	}
	planned := script.apply(req, planReply(req))
	if planned.err != nil {
		return nil, planned.err
	}
	id := fmt.Sprintf("chatcmpl-loquat%08d", b.answers.Add(1))
	if req.Stream {
		return planned.stream(id, req, script), nil
	}
	return planned.whole(id, req, script)
}

func (b *Backend) logEnd(e Entry) {
	b.logger.Info("request ended", "n", e.N, "model", e.Model, "stream", e.Stream,
		"status", e.Status, "end", e.End, "chunks", e.Chunks)
}

func (b *Backend) listModels(w http.ResponseWriter, _ *http.Request) {
	models, err := b.models()
	if err != nil {
		newAPIError(http.StatusInternalServerError, "", "recordings_unreadable", "%v", err).write(w)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": models})
}

func (b *Backend) getModel(w http.ResponseWriter, r *http.Request) {
	models, err := b.models()
	if err != nil {
		newAPIError(http.StatusInternalServerError, "", "recordings_unreadable", "%v", err).write(w)
		return
	}
	for _, m := range models {
		if m.ID == r.PathValue("id") {
			writeJSON(w, http.StatusOK, m)
			return
		}
	}
	newAPIError(http.StatusNotFound, "model", "model_not_found",
		"There is no model %q here; GET /v1/models lists the models.", r.PathValue("id")).write(w)
}

// models lists the built-in models, or the recordings if there are any.
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
		for _, v := range builtinModels {
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

func handleWrongMethod(allowed string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", allowed)
		newAPIError(http.StatusMethodNotAllowed, "", "method_not_allowed",
			"%s %s is not served; use %s.", r.Method, r.URL.Path, allowed).write(w)
	}
}

func handleUnknownPath(w http.ResponseWriter, r *http.Request) {
	newAPIError(http.StatusNotFound, "", "unknown_url",
		"Unknown request URL: %s %s. The base URL of this backend is http://%s/v1: clients append /chat/completions or /models to it.",
		r.Method, r.URL.Path, r.Host).write(w)
}

// apiError is an error in the form of OpenAI-style backends.
type apiError struct {
	Status  int    `json:"-"`
	Message string `json:"message"`
	Type    string `json:"type"`
	Param   any    `json:"param"` // a string, or null
	Code    string `json:"code"`
}

func newAPIError(status int, param, code, format string, args ...any) *apiError {
	f := &apiError{Status: status, Message: fmt.Sprintf(format, args...), Type: "invalid_request_error", Code: code}
	if status >= 500 {
		f.Type = "server_error"
	}
	if param != "" {
		f.Param = param
	}
	return f
}

func (f *apiError) json() []byte {
	b, err := json.Marshal(map[string]any{"error": f})
	if err != nil {
		panic(err) // strings and nil always encode
	}
	return b
}

func (f *apiError) body() *body {
	return &body{status: f.Status, contentType: contentJSON, whole: f.json()}
}

func (f *apiError) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", contentJSON)
	w.WriteHeader(f.Status)
	w.Write(f.json())
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", contentJSON)
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v) // fails only if the client has disconnected
}
