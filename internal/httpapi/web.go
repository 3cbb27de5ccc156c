package httpapi

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"loquat/internal/apipage"
	"loquat/internal/httpapi/route"
)

// webIndex is the name of the page itself, which is served at /.
const webIndex = "index.html"

// webMedia is fixed here, for the machine's own table may say anything.
var webMedia = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".svg":  "image/svg+xml",
}

// webRoutes are the files of the web client, one route for each.
func webRoutes(client fs.FS) ([]route.Route, error) {
	if client == nil {
		return nil, nil
	}
	entries, err := fs.ReadDir(client, ".")
	if err != nil {
		return nil, fmt.Errorf("read the web client: %w", err)
	}
	var out []route.Route
	for _, e := range entries {
		name := e.Name()
		body, err := fs.ReadFile(client, name)
		if err != nil {
			return nil, fmt.Errorf("read the web client: %w", err)
		}
		media := webMedia[path.Ext(name)]
		if media == "" {
			return nil, fmt.Errorf("the web client holds %s, whose media type is not known", name)
		}
		at := "/" + name
		if name == webIndex {
			at = "/{$}"
		}
		out = append(out, fileRoute(at, media, body))
	}
	return out, nil
}

// fileRoute is the route of a file that anybody may load.
func fileRoute(at, media string, body []byte) route.Route {
	f := webFile{body: body, media: media, etag: fmt.Sprintf(`"%.16x"`, sha256.Sum256(body))}
	return route.Route{
		Method: http.MethodGet, Path: at, ID: "web" + strings.NewReplacer("/", "-", ".", "-").Replace(at), Tag: route.FileTag,
		Serve: f.serve, Open: true,
		Responses: []route.Response{{Status: http.StatusOK, Body: "", Media: media}, {Status: http.StatusNotModified}},
	}
}

// The paths of the document and of the page that shows it.
const (
	documentPath  = "/openapi.json"
	docsPath      = "/docs"
	docsStylePath = "/docs.css"
)

// docsRoutes are the page that shows the OpenAPI document, and its style sheet.
func docsRoutes(document []byte) ([]route.Route, error) {
	body, err := apipage.Render(document, apipage.Paths{Document: documentPath, Style: docsStylePath, Icon: "/icon.svg"})
	if err != nil {
		return nil, err
	}
	return []route.Route{fileRoute(docsPath, webMedia[".html"], body), fileRoute(docsStylePath, webMedia[".css"], apipage.Style)}, nil
}

type webFile struct {
	body        []byte
	media, etag string
}

// webPolicy lets the page use what it came with, and nothing else.
const webPolicy = "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// serve answers with the file. Browsers ask each time whether it has changed.
func (f webFile) serve(x *route.Exchange) error {
	h := x.W.Header()
	h.Set("Content-Type", f.media)
	h.Set("Content-Security-Policy", webPolicy)
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", f.etag)
	if x.R.Header.Get("If-None-Match") == f.etag {
		x.W.WriteHeader(http.StatusNotModified)
		return nil
	}
	_, _ = x.W.Write(f.body) // who is gone loads it again
	return nil
}
