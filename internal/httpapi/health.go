package httpapi

import (
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"

	"loquat"
	"loquat/internal/chat"
	"loquat/internal/httpapi/route"
)

// serverState serves the routes that are about the server itself.
type serverState struct {
	chat     *chat.Service
	version  string
	metrics  *metrics
	document []byte // of /openapi.json
}

func (s *serverState) routes() []route.Route {
	return []route.Route{
		{
			Method: http.MethodGet, Path: "/healthz", ID: "health", Tag: "server", Summary: "Whether the process runs",
			Open: true, Serve: s.health, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.Health{}}},
		},
		{
			Method: http.MethodGet, Path: "/readyz", ID: "ready", Tag: "server", Summary: "Whether the server can take requests",
			Open: true, Serve: s.ready, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.Readiness{}}},
		},
		{
			Method: http.MethodGet, Path: "/version", ID: "version", Tag: "server", Summary: "The build and the version of the API",
			Serve: s.getVersion, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.Version{}}},
		},
		{
			Method: http.MethodGet, Path: "/nodes", ID: "listNodes", Tag: "server", Summary: "List the live nodes, the oldest first",
			Full: true, Serve: s.listNodes, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.NodeList{}}},
		},
		{
			Method: http.MethodGet, Path: "/metrics", ID: "metrics", Tag: "server", Summary: "Counters for Prometheus",
			Serve: s.scrape, Responses: []route.Response{{Status: http.StatusOK, Body: "", Media: "text/plain"}},
		},
		{
			Method: http.MethodGet, Path: documentPath, ID: "openapi", Tag: "server", Summary: "This document",
			Open: true, Serve: s.openAPI, Responses: []route.Response{{Status: http.StatusOK, Body: map[string]any{}}},
		},
	}
}

func (s *serverState) health(x *route.Exchange) error {
	return x.Reply(http.StatusOK, loquat.Health{Status: "ok"})
}

func (s *serverState) ready(x *route.Exchange) error {
	r := s.chat.Ready(x.R.Context())
	if !r.Ready {
		var wrong loquat.FieldErrors
		if r.Store != "ok" {
			wrong.Add("store", "%s", r.Store)
		}
		for _, part := range slices.Sorted(maps.Keys(r.Detail)) {
			wrong.Add(part, "%s", r.Detail[part])
		}
		return &loquat.Error{Code: loquat.CodeUnavailable, Detail: "the server cannot take requests", Fields: wrong.List()}
	}
	return x.Reply(http.StatusOK, r)
}

// apiVersion is increased when something that clients rely on is removed.
const apiVersion = 1

func (s *serverState) getVersion(x *route.Exchange) error {
	return x.Reply(http.StatusOK, loquat.Version{Version: s.version, API: apiVersion, Go: runtime.Version()})
}

func (s *serverState) listNodes(x *route.Exchange) error {
	nodes, err := s.chat.Nodes(x.R.Context())
	if err != nil {
		return err
	}
	return x.Reply(http.StatusOK, nodes)
}

func (s *serverState) scrape(x *route.Exchange) error {
	s.metrics.handler.ServeHTTP(x.W, x.R)
	return nil
}

func (s *serverState) openAPI(x *route.Exchange) error {
	h := x.W.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	if _, err := x.W.Write(s.document); err != nil {
		return fmt.Errorf("write the document: %w", err)
	}
	return nil
}
