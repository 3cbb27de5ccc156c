package httpapi_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"loquat"
	"loquat/internal/httpapi"
)

// Files in folders are served with the headers of the page, and the document does not list
// them.
func TestFilesInFolders(t *testing.T) {
	r := newRigWith(t, func(opts *httpapi.Options) {
		opts.Web = fstest.MapFS{
			"index.html":          {Data: []byte("<p>page")},
			"static/app.css":      {Data: []byte("p {}")},
			"static/js/deep/a.js": {Data: []byte("1")},
		}
	})
	if document := string(r.do("GET", "/openapi.json", "").want(t, 200).body); strings.Contains(document, "/static/") {
		t.Error("the document lists files")
	}
	for path, media := range map[string]string{
		"/": "text/html; charset=utf-8", "/static/app.css": "text/css; charset=utf-8", "/static/js/deep/a.js": "text/javascript; charset=utf-8",
	} {
		got := r.do("GET", path, "").want(t, 200)
		h := got.Header
		if h.Get("Content-Type") != media || h.Get("Cache-Control") != "no-cache" || h.Get("Content-Security-Policy") != httpapi.PagePolicy || h.Get("ETag") == "" {
			t.Errorf("%s: %v", path, h)
		}
		r.do("GET", path, "", "If-None-Match: "+h.Get("ETag")).wantNothing(t, 304)
		r.do("HEAD", path, "").wantNothing(t, 200)
		r.do("POST", path, "{}").wantProblem(t, 405, loquat.CodeMethodNotAllowed)
	}
	for _, path := range []string{"/static", "/static/js", "/index.html", "/static/app.CSS", "/static/none.css"} {
		r.do("GET", path, "").wantProblem(t, 404, loquat.CodeNotFound)
	}
	if p := r.do("GET", "/static/app.css/", "").wantProblem(t, 404, loquat.CodeNotFound); !strings.Contains(p.Detail, `use "/static/app.css"`) {
		t.Errorf("a slash too many: %s", p.Detail)
	}
	metrics := r.do("GET", "/metrics", "").want(t, 200).body
	if want := `loquat_http_answers_total{method="GET",route="/static/app.css",status="200"} 1`; !strings.Contains(string(metrics), want) {
		t.Errorf("metrics lack %s", want)
	}
}

// A file of an unknown media type keeps the server from starting.
func TestFileOfUnknownMediaType(t *testing.T) {
	newRigWith(t, func(opts *httpapi.Options) {
		more := *opts
		more.Web = fstest.MapFS{"index.html": {}, "static/a.exe": {}}
		if _, err := httpapi.New(more); err == nil || !strings.Contains(err.Error(), "static/a.exe") {
			t.Errorf("New returns %v", err)
		}
	})
}

// A built client has hashed files that are cached for ever, compressed copies, frames with a policy of
// their own, and the page at each of its paths.
func TestFilesOfABuiltClient(t *testing.T) {
	r := newRigWith(t, func(opts *httpapi.Options) {
		opts.Web = fstest.MapFS{
			".keep":                     {Data: []byte("nothing")},
			"index.html":                {Data: []byte("<p>page")},
			"index.html.br":             {Data: []byte("page in br")},
			"index.html.gz":             {Data: []byte("page in gzip")},
			"sw.js":                     {Data: []byte("1")},
			"manifest.webmanifest":      {Data: []byte("{}")},
			"licenses.txt":              {Data: []byte("MIT")},
			"assets/app-a1b2c3d4.js":    {Data: []byte("2")},
			"assets/app-a1b2c3d4.js.gz": {Data: []byte("2 in gzip")},
			"assets/app.js.map":         {Data: []byte("{}")},
			"assets/f.woff2":            {Data: []byte("font")},
			"frame/diagram.html":        {Data: []byte("<p>frame")},
		}
	})
	const forever, ask = "public, max-age=31536000, immutable", "no-cache"
	for _, c := range []struct{ path, media, cache, policy string }{
		{"/", "text/html; charset=utf-8", ask, httpapi.PagePolicy},
		{"/s/some-session", "text/html; charset=utf-8", ask, httpapi.PagePolicy},
		{"/sw.js", "text/javascript; charset=utf-8", ask, httpapi.PagePolicy},
		{"/manifest.webmanifest", "application/manifest+json; charset=utf-8", ask, httpapi.PagePolicy},
		{"/licenses", "text/plain; charset=utf-8", ask, httpapi.PagePolicy},
		{"/assets/app-a1b2c3d4.js", "text/javascript; charset=utf-8", forever, httpapi.PagePolicy},
		{"/assets/app.js.map", "application/json; charset=utf-8", forever, httpapi.PagePolicy},
		{"/assets/f.woff2", "font/woff2", forever, httpapi.PagePolicy},
		{"/frame/diagram.html", "text/html; charset=utf-8", ask, httpapi.FramePolicy},
	} {
		h := r.raw("GET", c.path, "identity").want(t, 200).Header
		if h.Get("Content-Type") != c.media || h.Get("Cache-Control") != c.cache || h.Get("Content-Security-Policy") != c.policy || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %v", c.path, h)
		}
	}
	for _, path := range []string{"/index.html", "/index.html.br", "/assets", "/assets/", "/assets/app-a1b2c3d4.js.gz", "/.keep", "/licenses.txt", "/s/", "/s/a/b"} {
		r.do("GET", path, "").wantProblem(t, 404, loquat.CodeNotFound)
	}
	tags := map[string]bool{}
	for accept, want := range map[string]string{
		"gzip, deflate, br, zstd": "br", "gzip": "gzip", "BR;q=0, gzip;q=0.5": "gzip", "identity": "", "*": "br", "br;q=0, *": "gzip", "*;q=0": "", "br;q=x": "",
	} {
		got := r.raw("GET", "/", accept).want(t, 200)
		body := map[string]string{"br": "page in br", "gzip": "page in gzip", "": "<p>page"}[want]
		if got.Header.Get("Content-Encoding") != want || string(got.body) != body || got.Header.Get("Vary") == "" {
			t.Errorf("accepting %s: %s, %v", accept, got.body, got.Header)
		}
		tags[got.Header.Get("ETag")] = true
		again := r.raw("GET", "/", accept, "If-None-Match: W/\"x\", "+got.Header.Get("ETag"))
		if again.StatusCode != 304 || len(again.body) != 0 {
			t.Errorf("accepting %s again: %d %s", accept, again.StatusCode, again.body)
		}
	}
	if len(tags) != 3 {
		t.Errorf("three encodings have the tags %v", tags)
	}
}

// Chromium loads the script of a sandboxed frame with the origin null. Only the files of frames may be loaded so.
func TestFilesOfAFrameWithoutOrigin(t *testing.T) {
	r := newRigWith(t, func(opts *httpapi.Options) {
		opts.Web = fstest.MapFS{"index.html": {Data: []byte("<p>page")}, "frame/draw.js": {Data: []byte("1")}}
	})
	got := r.raw("GET", "/frame/draw.js", "identity", "Origin: null").want(t, 200)
	if h := got.Header; h.Get("Cross-Origin-Resource-Policy") != "cross-origin" || h.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("the frame's script: %v", h)
	}
	r.raw("POST", "/frame/draw.js", "identity", "Origin: null").want(t, 403)
	r.raw("GET", "/", "identity", "Origin: null").want(t, 403)
	r.raw("GET", "/sessions", "identity", "Origin: null").want(t, 403)
}

// Without a build, the page says how to make one. The rest of the server works.
func TestClientThatWasNotBuilt(t *testing.T) {
	r := newRigWith(t, func(opts *httpapi.Options) { opts.Web = fstest.MapFS{".keep": {}} })
	for _, path := range []string{"/", "/s/x"} {
		if got := r.do("GET", path, "").want(t, 200); !strings.Contains(string(got.body), "Node.js 20") || !strings.Contains(string(got.body), "make build") {
			t.Errorf("%s: %s", path, got.body)
		}
	}
	r.do("GET", "/sessions", "").want(t, 200)
}
