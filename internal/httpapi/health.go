package httpapi

import (
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"

	"loquat"
)

func (a *api) healthRoutes() []route {
	return []route{
		{
			method: http.MethodGet, path: "/healthz", id: "health", tag: "server", summary: "Whether the process lives",
			open: true, serve: health, answers: []answer{{status: http.StatusOK, body: healthAnswer{}}},
		},
		{
			method: http.MethodGet, path: "/readyz", id: "ready", tag: "server", summary: "Whether it can take requests",
			open: true, serve: ready, answers: []answer{{status: http.StatusOK, body: readyAnswer{}}},
		},
		{
			method: http.MethodGet, path: "/version", id: "version", tag: "server", summary: "The build and the version of the API",
			serve: version, answers: []answer{{status: http.StatusOK, body: versionAnswer{}}},
		},
		{
			method: http.MethodGet, path: "/metrics", id: "metrics", tag: "server", summary: "Counters for Prometheus",
			serve: scrape, answers: []answer{{status: http.StatusOK, body: "", media: "text/plain"}},
		},
		{
			method: http.MethodGet, path: documentPath, id: "openapi", tag: "server", summary: "This document",
			open: true, serve: openAPI, answers: []answer{{status: http.StatusOK, body: map[string]any{}}},
		},
	}
}

// healthAnswer says that the process answers.
type healthAnswer struct {
	Status string `json:"status"`
}

func health(x *exchange) error { return x.reply(http.StatusOK, healthAnswer{Status: "ok"}) }

// readyAnswer tells of the parts that have to work.
type readyAnswer struct {
	Ready  bool              `json:"ready"`
	Store  string            `json:"store"`
	Detail map[string]string `json:"detail"`
}

func ready(x *exchange) error {
	r := x.api.chat.Ready(x.r.Context())
	if !r.Ready {
		var wrong faults
		if r.Store != "ok" {
			wrong.add("store", "%s", r.Store)
		}
		for _, part := range slices.Sorted(maps.Keys(r.Detail)) {
			wrong.add(part, "%s", r.Detail[part])
		}
		return &loquat.Error{Code: loquat.CodeUnavailable, Detail: "the server cannot take requests", Fields: wrong.list}
	}
	if r.Detail == nil {
		r.Detail = map[string]string{}
	}
	return x.reply(http.StatusOK, readyAnswer{Ready: true, Store: r.Store, Detail: r.Detail})
}

// apiVersion changes when something that clients rely on goes away.
const apiVersion = 1

// versionAnswer tells builds apart.
type versionAnswer struct {
	Version string `json:"version"`
	API     int    `json:"api"`
	Go      string `json:"go"`
}

func version(x *exchange) error {
	return x.reply(http.StatusOK, versionAnswer{Version: x.api.version, API: apiVersion, Go: runtime.Version()})
}

func scrape(x *exchange) error {
	x.api.metrics.handler.ServeHTTP(x.w, x.r)
	return nil
}

func openAPI(x *exchange) error {
	h := x.w.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	if _, err := x.w.Write(x.api.document); err != nil {
		return fmt.Errorf("write the document: %w", err)
	}
	return nil
}
