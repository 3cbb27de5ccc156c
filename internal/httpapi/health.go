package httpapi

import (
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"

	"loquat"
	"loquat/internal/httpapi/route"
)

func (a *api) healthRoutes() []route.Route {
	return []route.Route{
		{
			Method: http.MethodGet, Path: "/healthz", ID: "health", Tag: "server", Summary: "Whether the process runs",
			Open: true, Serve: a.health, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.Health{}}},
		},
		{
			Method: http.MethodGet, Path: "/readyz", ID: "ready", Tag: "server", Summary: "Whether the server can take requests",
			Open: true, Serve: a.ready, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.Readiness{}}},
		},
		{
			Method: http.MethodGet, Path: "/version", ID: "version", Tag: "server", Summary: "The build and the version of the API",
			Serve: a.getVersion, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.Version{}}},
		},
		{
			Method: http.MethodGet, Path: "/metrics", ID: "metrics", Tag: "server", Summary: "Counters for Prometheus",
			Serve: a.scrape, Responses: []route.Response{{Status: http.StatusOK, Body: "", Media: "text/plain"}},
		},
		{
			Method: http.MethodGet, Path: documentPath, ID: "openapi", Tag: "server", Summary: "This document",
			Open: true, Serve: a.openAPI, Responses: []route.Response{{Status: http.StatusOK, Body: map[string]any{}}},
		},
	}
}

func (a *api) health(x *route.Exchange) error {
	return x.Reply(http.StatusOK, loquat.Health{Status: "ok"})
}

func (a *api) ready(x *route.Exchange) error {
	r := a.chat.Ready(x.R.Context())
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

func (a *api) getVersion(x *route.Exchange) error {
	return x.Reply(http.StatusOK, loquat.Version{Version: a.version, API: apiVersion, Go: runtime.Version()})
}

func (a *api) scrape(x *route.Exchange) error {
	a.metrics.handler.ServeHTTP(x.W, x.R)
	return nil
}

func (a *api) openAPI(x *route.Exchange) error {
	h := x.W.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	if _, err := x.W.Write(a.document); err != nil {
		return fmt.Errorf("write the document: %w", err)
	}
	return nil
}
