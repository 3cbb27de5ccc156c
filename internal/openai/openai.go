// Package openai serves programs that speak OpenAI's API, below /v1/. It is a face of the service:
// it calls the packages below, and the HTTP API mounts its routes, so that tokens, origins and limits
// hold as everywhere. Its failures have OpenAI's form.
//
// /v1/chat/completions is a relay: the body goes to the backend as it came, except for the name of the
// model and for options that the caller did not set, and the answer comes back byte for byte. What
// the backend lacks comes from the provider: retries, pacing, timeouts and recovery. A relayed request
// belongs to no session, and nothing of it is stored.
//
// /v1/responses is a face of sessions: a response is a request, and a conversation is a session. What a
// response needs beyond a send is in the metadata of the last message of its input. All else is
// computed from the messages and from the log, also the sequence numbers of a stream.
package openai

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"loquat"
	"loquat/internal/chat"
	"loquat/internal/feed"
	"loquat/internal/httpapi/route"
)

// prefix begins all paths of this API.
const prefix = "/v1/"

const tag = "openai"

// Options are the parts and settings of the API.
type Options struct {
	Chat          *chat.Service
	Feed          *feed.Feed
	MaxBodyMemory int64        // bytes of the large bodies of all relayed requests
	MaxBodyBytes  func() int64 // of a message on a WebSocket
}

// API is OpenAI's API. It is safe for concurrent use.
type API struct {
	chat    *chat.Service
	catalog *chat.Catalog
	feed    *feed.Feed
	started time.Time

	bodies    *semaphore.Weighted
	maxBodies int64
	maxBody   func() int64

	running sync.WaitGroup
	life    context.Context // ends when relayed requests have to end
	end     context.CancelCauseFunc

	mu       sync.Mutex
	stopping bool
	stopped  chan struct{} // is closed when stopping becomes true
}

// New returns an API.
func New(opts Options) *API {
	a := &API{chat: opts.Chat, catalog: opts.Chat.Catalog, feed: opts.Feed, started: time.Now(), bodies: semaphore.NewWeighted(opts.MaxBodyMemory), maxBodies: opts.MaxBodyMemory, maxBody: opts.MaxBodyBytes, stopped: make(chan struct{})}
	a.life, a.end = context.WithCancelCause(context.Background())
	return a
}

// Face returns the routes.
func (a *API) Face() route.Face {
	return route.Face{Prefix: prefix, Errors: failures, Routes: append(append(a.responseRoutes(), a.conversationRoutes()...), []route.Route{
		{
			Method: http.MethodPost, Path: prefix + "chat/completions", ID: "createChatCompletion", Tag: tag, Errors: failures, AnyKey: true, Users: true,
			Summary: "Relay a chat completion to the backend of a model",
			Serve:   a.complete, Follows: true, Body: openAIChatRequest{},
			Responses: []route.Response{{Status: http.StatusOK, Body: openAIChatAnswer{}, Media: anyMedia,
				Doc: "The backend's answer, byte for byte: a completion, or with stream Server-Sent Events"}},
		},
		{
			Method: http.MethodGet, Path: prefix + "models", ID: "listOpenAIModels", Tag: tag, Errors: failures, AnyKey: true, Users: true,
			Summary: "List the names of models", Serve: a.listModels,
			Responses: []route.Response{{Status: http.StatusOK, Body: openAIModelList{}}},
		},
		{
			Method: http.MethodGet, Path: prefix + "models/{model...}", ID: "getOpenAIModel", Tag: tag, Errors: failures, AnyKey: true, Users: true,
			Summary: "Load a model by its name", Serve: a.getModel,
			Responses: []route.Response{{Status: http.StatusOK, Body: openAIModel{}}},
		},
	}...)}
}

var errStopping = errors.New("the server is shutting down")

// begin counts a relayed request, unless the API stops. The context ends when the request has to.
func (a *API) begin(ctx context.Context) (_ context.Context, done func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopping {
		return nil, nil, loquat.Errorf(loquat.CodeUnavailable, "%v; send again in a moment", errStopping)
	}
	a.running.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(a.life, func() { cancel(context.Cause(a.life)) })
	return ctx, func() {
		stop()
		cancel(nil)
		a.running.Done()
	}, nil
}

// beginWithBody is begin for a request whose body stays in memory until done is called.
func (a *API) beginWithBody(x *route.Exchange) (_ context.Context, done func(), err error) {
	ctx, end, err := a.begin(x.R.Context())
	if err != nil {
		return nil, nil, err
	}
	held, err := a.holdBody(ctx, int64(len(x.Body)))
	if err != nil {
		end()
		return nil, nil, err
	}
	return ctx, func() { held.release(); end() }, nil
}

// Stop accepts no more requests, waits until ctx ends for those that run, and then ends them.
func (a *API) Stop(ctx context.Context) {
	a.mu.Lock()
	if !a.stopping {
		a.stopping = true
		close(a.stopped)
	}
	a.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		a.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		a.end(errStopping)
		<-ended
	}
}
