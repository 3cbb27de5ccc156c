package httpapi

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"sync"

	"loquat/internal/apipage"
)

// indexFile is the page of the web client, which is served at /.
const indexFile = "index.html"

// fileMedia has the media type of each extension. The table of the machine is not used: it
// differs between machines.
var fileMedia = map[string]string{
	".html":  "text/html; charset=utf-8",
	".js":    "text/javascript; charset=utf-8",
	".css":   "text/css; charset=utf-8",
	".svg":   "image/svg+xml",
	".png":   "image/png",
	".woff2": "font/woff2",
}

// The paths of the document and of the page that shows it.
const (
	documentPath  = "/openapi.json"
	docsPath      = "/docs"
	docsStylePath = "/docs.css"
)

// files returns the static files by path: the web client with its folders, if there is one,
// and the page that shows the OpenAPI document. Anybody may load them.
func (a *api) files(client fs.FS, document []byte) (map[string]http.HandlerFunc, error) {
	out := map[string]http.HandlerFunc{
		docsPath:      a.docs(document),
		docsStylePath: a.file(fileMedia[".css"], apipage.Style),
	}
	if client == nil {
		return out, nil
	}
	err := fs.WalkDir(client, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		body, err := fs.ReadFile(client, name)
		if err != nil {
			return err
		}
		media, at := fileMedia[path.Ext(name)], "/"+name
		if media == "" {
			return fmt.Errorf("the media type of %s is not known", name)
		}
		if name == indexFile {
			at = "/"
		}
		out[at] = a.file(media, body)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the web client: %w", err)
	}
	return out, nil
}

// docs serves the page that shows the OpenAPI document. The first call renders the page,
// because that would take a quarter of the server's start.
func (a *api) docs(document []byte) http.HandlerFunc {
	page := sync.OnceValues(func() (http.HandlerFunc, error) {
		body, err := apipage.Render(document, apipage.Paths{Document: documentPath, Style: docsStylePath, Icon: "/icon.svg"})
		return a.file(fileMedia[".html"], body), err
	})
	return func(w http.ResponseWriter, r *http.Request) {
		serve, err := page()
		if err != nil {
			a.fail(w, r, nil, err)
			return
		}
		serve(w, r)
	}
}

// filePolicy lets a page use the files of this server, and nothing else.
const filePolicy = "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// file serves one file. Browsers ask each time whether it has changed.
func (a *api) file(media string, body []byte) http.HandlerFunc {
	etag := fmt.Sprintf(`"%.16x"`, sha256.Sum256(body))
	return func(w http.ResponseWriter, r *http.Request) {
		if aw, ok := w.(*responseWriter); ok {
			aw.file = r.Pattern
		}
		a.pace(w, r)
		h := w.Header()
		h.Set("Content-Type", media)
		h.Set("Content-Security-Policy", filePolicy)
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", etag)
		if r.Header.Get("If-None-Match") == etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = w.Write(body) // a client that disconnected loads it again
	}
}
