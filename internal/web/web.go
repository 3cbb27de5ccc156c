// Package web is the browser client: a page, its script and its style, embedded.
//
// It promises that the page loads nothing from elsewhere and runs no inline script,
// and that it talks only to the HTTP API of the server that it came from.
package web

import (
	"crypto/sha256"
	"embed"
	"fmt"
	"net/http"
	"path"
)

//go:embed static
var static embed.FS

// Index is the name of the page itself.
const Index = "index.html"

// File is one of the files that make up the client.
type File struct {
	Name  string // such as app.js
	Media string
	etag  string
	body  []byte
}

// media is fixed here, for the machine's own table may say anything.
var media = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".svg":  "image/svg+xml",
}

// Files returns all files of the client.
func Files() []File {
	entries, err := static.ReadDir("static")
	if err != nil {
		panic("web: the client is not embedded: " + err.Error())
	}
	var out []File
	for _, e := range entries {
		body, err := static.ReadFile(path.Join("static", e.Name()))
		if err != nil {
			panic("web: " + err.Error())
		}
		out = append(out, File{
			Name: e.Name(), Media: media[path.Ext(e.Name())], body: body,
			etag: fmt.Sprintf(`"%x"`, sha256.Sum256(body))[:34] + `"`,
		})
	}
	return out
}

// policy lets the page use what it came with, and nothing else.
const policy = "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Serve answers with the file. Browsers ask each time whether it has changed.
func (f File) Serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", f.Media)
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", f.etag)
	if r.Header.Get("If-None-Match") == f.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(f.body) // who is gone loads it again
}
