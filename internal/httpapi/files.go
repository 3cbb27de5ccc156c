package httpapi

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"loquat/internal/apipage"
)

// indexFile is the page of the web client. It is served at / and at the paths in pagePaths.
const indexFile = "index.html"

// pagePaths are further paths of the page, which shows the session that the path names, or the archive.
var pagePaths = []string{"/s/{session_id}", "/archived"}

// fileMedia has the media type of each extension. The table of the machine is not used: it
// differs between machines.
var fileMedia = map[string]string{
	".html":        "text/html; charset=utf-8",
	".js":          "text/javascript; charset=utf-8",
	".css":         "text/css; charset=utf-8",
	".json":        "application/json; charset=utf-8",
	".map":         "application/json; charset=utf-8",
	".txt":         "text/plain; charset=utf-8",
	".webmanifest": "application/manifest+json; charset=utf-8",
	".svg":         "image/svg+xml",
	".png":         "image/png",
	".woff2":       "font/woff2",
}

// twins are the extensions of compressed copies that lie beside a file, with their encodings. The
// first one that a client accepts is sent.
var twins = []struct{ extension, encoding string }{{".br", "br"}, {".gz", "gzip"}}

// The paths of the document and of the page that shows it.
const (
	documentPath  = "/openapi.json"
	docsPath      = "/docs"
	docsStylePath = "/docs.css"
)

// framePath begins the paths of the sandboxed frames, whose files anybody may load.
const framePath = "/frame/"

// The policies of files. A page uses what this server has, and images of others. Frames run code that is
// not trusted, such as diagrams, without the rights of this origin. The policy of Trusted Types loquat
// makes the addresses of workers.
const (
	filePolicy = "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob: https: http:; connect-src 'self'; " +
		"worker-src 'self'; manifest-src 'self'; font-src 'self'; frame-src 'self'; form-action 'none'; base-uri 'none'; " +
		"frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types loquat"
	framePolicy = "sandbox allow-scripts; default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src data: blob:; " +
		"font-src 'self' data:; form-action 'none'; base-uri 'none'; frame-ancestors 'self'"
)

// fileRules has the headers of files by the beginning of their path; the first rule counts. The names
// of the files in /assets/ change with their content.
var fileRules = []struct {
	prefix  string
	headers map[string]string
}{
	{"/assets/", map[string]string{"Content-Security-Policy": pagePolicy, "Cache-Control": "public, max-age=31536000, immutable"}},
	{framePath, map[string]string{"Content-Security-Policy": framePolicy, "Cache-Control": "no-cache", "Cross-Origin-Resource-Policy": "cross-origin"}},
	{docsPath, map[string]string{"Content-Security-Policy": filePolicy, "Cache-Control": "no-cache"}},
	{"/", map[string]string{"Content-Security-Policy": pagePolicy, "Cache-Control": "no-cache", "Permissions-Policy": "camera=(), geolocation=(), microphone=(self)"}},
}

// headersOf returns the headers of the file at a path.
func headersOf(at string) map[string]string {
	for _, rule := range fileRules {
		if strings.HasPrefix(at, rule.prefix) {
			return rule.headers
		}
	}
	return nil
}

// notBuilt is the page of a server that was built without the web client.
const notBuilt = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Loquat</title>
<h1>Loquat runs, but its web client was not built</h1>
<p>To build it, install Node.js 20 or newer and run <code>make build</code>. Then start the new program.</p>
<p>The HTTP API works without it: see <a href="/docs">/docs</a>.</p>
`

// files returns the static files by path: the web client with its folders, if there is one,
// and the page that shows the OpenAPI document. Anybody may load them.
func (a *api) files(client fs.FS, document []byte) (map[string]http.HandlerFunc, error) {
	out := map[string]http.HandlerFunc{
		docsPath:      a.docs(document),
		docsStylePath: a.file(docsStylePath, staticFile{media: fileMedia[".css"], body: apipage.Style}),
	}
	if client == nil {
		return out, nil
	}
	err := fs.WalkDir(client, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			return err
		}
		if twin, err := isTwin(client, name); twin || err != nil {
			return err
		}
		f, err := readFile(client, name)
		if err != nil {
			return err
		}
		switch at := "/" + name; name {
		case indexFile:
			addPage(out, a.file("/", f))
		case "licenses.txt", "licenses.html":
			out["/licenses"] = a.file("/licenses", f)
		default:
			out[at] = a.file(at, f)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the web client: %w", err)
	}
	if _, ok := out["/"]; !ok {
		addPage(out, a.file("/", staticFile{media: fileMedia[".html"], body: []byte(notBuilt)}))
	}
	return out, nil
}

// addPage adds the page at all of its paths.
func addPage(files map[string]http.HandlerFunc, page http.HandlerFunc) {
	for _, at := range append(slices.Clone(pagePaths), "/") {
		files[at] = page
	}
}

// isTwin reports whether a file is the compressed copy of another one.
func isTwin(client fs.FS, name string) (bool, error) {
	for _, t := range twins {
		of, ok := strings.CutSuffix(name, t.extension)
		if !ok {
			continue
		}
		_, err := fs.Stat(client, of)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return err == nil, err
	}
	return false, nil
}

// readFile reads a file and its twins.
func readFile(client fs.FS, name string) (f staticFile, err error) {
	if f.media = fileMedia[path.Ext(name)]; f.media == "" {
		return f, fmt.Errorf("the media type of %s is not known", name)
	}
	if f.body, err = fs.ReadFile(client, name); err != nil {
		return f, err
	}
	for _, t := range twins {
		body, err := fs.ReadFile(client, name+t.extension)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return f, err
		}
		f.encoded = append(f.encoded, encodedBody{t.encoding, body})
	}
	return f, nil
}

// docs serves the page that shows the OpenAPI document. The first call renders the page,
// because that would take a quarter of the server's start.
func (a *api) docs(document []byte) http.HandlerFunc {
	page := sync.OnceValues(func() (http.HandlerFunc, error) {
		body, err := apipage.Render(document, apipage.Paths{Document: documentPath, Style: docsStylePath, Icon: "/icon.svg"})
		return a.file(docsPath, staticFile{media: fileMedia[".html"], body: body}), err
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

// staticFile is a file, and its compressed copies in the order of preference.
type staticFile struct {
	media   string
	body    []byte
	encoded []encodedBody
}

type encodedBody struct {
	encoding string
	body     []byte
}

// choose returns the body for a client that accepts some encodings.
func (f staticFile) choose(accept string) encodedBody {
	for _, e := range f.encoded {
		if accepts(accept, e.encoding) {
			return e
		}
	}
	return encodedBody{body: f.body}
}

// accepts reports whether a header Accept-Encoding allows an encoding.
func accepts(header, encoding string) bool {
	any := false
	for item := range strings.SplitSeq(header, ",") {
		name, parameter, _ := strings.Cut(item, ";")
		_, q, weighted := strings.Cut(parameter, "=")
		weight, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
		allowed := !weighted || err == nil && weight > 0
		switch name = strings.TrimSpace(name); {
		case strings.EqualFold(name, encoding):
			return allowed
		case name == "*":
			any = allowed
		}
	}
	return any
}

// file serves one file, with the headers of its path. Unless it is immutable, browsers ask each time
// whether it has changed.
func (a *api) file(at string, f staticFile) http.HandlerFunc {
	hash, headers := fmt.Sprintf("%.16x", sha256.Sum256(f.body)), maps.Clone(headersOf(at))
	headers["Content-Type"] = f.media
	return func(w http.ResponseWriter, r *http.Request) {
		if aw, ok := w.(*responseWriter); ok {
			aw.file = r.Pattern
		}
		a.pace(w, r)
		h := w.Header()
		for name, value := range headers {
			h.Set(name, value)
		}
		sent := f.choose(strings.Join(r.Header.Values("Accept-Encoding"), ","))
		etag := `"` + hash + `"`
		if len(f.encoded) > 0 {
			h.Add("Vary", "Accept-Encoding")
		}
		if sent.encoding != "" {
			h.Set("Content-Encoding", sent.encoding)
			etag = `"` + hash + "-" + sent.encoding + `"`
		}
		h.Set("ETag", etag)
		if strings.Contains(r.Header.Get("If-None-Match"), etag) {
			h.Del("Content-Encoding")
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = w.Write(sent.body) // a client that disconnected loads it again
	}
}
