// Package route is the framework of the HTTP API. A table of routes determines what is
// parsed, what is validated and what the OpenAPI document lists. The package also defines
// the forms of successes and failures. It does not know any resource.
//
// A route takes query parameters, a JSON body and the headers of a change. An input that
// cannot be parsed is answered with 400, an invalid one with 422. All faults of an input are
// reported at once. A failure is an RFC 9457 problem, unless the route has its own form.
package route

import (
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"loquat"
)

// Route is one row of the table.
type Route struct {
	Method, Path string
	ID, Summary  string
	Tag          string
	Serve        func(*Exchange) error

	Query     []Param
	Change    bool           // takes Idempotency-Key and If-Match
	Matches   bool           // takes If-Match alone
	Body      any            // a value of the type that Decode is called with; nil: no body is read
	Media     string         // of the body, in addition to application/json
	Upload    map[string]any // a body that Serve reads from R: its media types, each with a value of its type
	Responses []Response
	Errors    *ErrorForm // nil: problems

	Open    bool // may be called without a token
	AnyKey  bool // while the server has no token, any token counts as none
	Full    bool // needs the scope full, also to read
	Users   bool // may also be called with the scope user: it shows the user nothing of others. Routes of a session or a request are allowed anyway
	Follows bool // may take long, and ends when the caller's token does
	Large   bool // its answer may have a whole session, so it waits for room in memory
}

// Response is one way in which a route succeeds.
type Response struct {
	Status  int
	Body    any    // a value of the type; nil: none
	Media   string // "" is application/json
	ETag    bool
	ETagDoc string // the meaning of the ETag; "" means the newest checkpoint of the session
	Doc     string
}

// errorForm is how a route writes its failures.
type ErrorForm struct {
	Body  any    // a value of the type that Write encodes, for the document
	Media string // its media type
	Write func(w http.ResponseWriter, err error)
}

// Face is another API that is served next to this one: all paths with a prefix.
type Face struct {
	Prefix string // of its paths, like /v1/
	Routes []Route
	Errors *ErrorForm // of unknown paths and methods below the prefix
}

// problems is the default form.
var problems = &ErrorForm{Body: loquat.Problem{}, Media: ProblemMedia, Write: WriteProblem}

// errorForm returns the form of the route's failures. A nil route has the default one.
func (r *Route) errorForm() *ErrorForm {
	if r == nil || r.Errors == nil {
		return problems
	}
	return r.Errors
}

const jsonMedia = "application/json"

func (r *Route) medias() []string {
	if r.Media != "" {
		return []string{jsonMedia, r.Media}
	}
	return []string{jsonMedia}
}

// Options are the parts of a table.
type Options struct {
	Routes  []Route
	Faces   []Face // whose routes are among Routes
	Schemas Schemas
	Files   map[string]http.HandlerFunc // static files by path; the document does not list them

	// Call serves a call of a route. It decides who may make the call, then uses Read.
	Call func(http.ResponseWriter, *http.Request, *Route) error
	// Fail answers a call that failed. The route is nil when no path matched.
	Fail func(http.ResponseWriter, *http.Request, *Route, error)
}

// Table is the handler of all routes.
type Table struct {
	Options
	mux *http.ServeMux
}

// NewTable returns the handler of routes.
func NewTable(opts Options) *Table {
	t := &Table{Options: opts, mux: http.NewServeMux()}
	for _, schema := range opts.Schemas.Map() {
		schema.PrecomputeMessages() // of schemas that no Go type made, too
	}
	byPath := map[string][]*Route{}
	for i := range t.Routes {
		r := &t.Routes[i]
		byPath[r.Path] = append(byPath[r.Path], r)
	}
	for pattern, routes := range byPath {
		if other, covers := coveredBy(pattern, byPath); covers {
			routes = append(slices.Clip(routes), byPath[other]...)
		}
		t.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { t.dispatch(w, r, routes) })
	}
	for at, serve := range t.Files {
		if at == "/" {
			at = "/{$}" // not everything below
		}
		t.mux.HandleFunc(at, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet && r.Method != http.MethodHead {
				t.Fail(w, r, nil, wrongMethod(w, r, []string{http.MethodGet, http.MethodHead}))
				return
			}
			serve(w, r)
		})
	}
	t.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { t.Fail(w, r, nil, t.notFound(r)) })
	return t
}

// coveredBy returns the path of which a path is a value, as /sessions/import is a value of
// /sessions/{session_id}. A session may have that id, so the path has the methods of both.
func coveredBy(pattern string, paths map[string][]*Route) (other string, ok bool) {
	for other := range paths {
		if other != pattern && !strings.Contains(pattern, "{") && len(valuesIn(pattern, other)) > 0 {
			return other, true
		}
	}
	return "", false
}

// valuesIn returns the values of a pattern's parameters in a path, or nil if the path does not
// match.
func valuesIn(path, pattern string) map[string]string {
	values := map[string]string{}
	parts, names := strings.Split(path, "/"), strings.Split(pattern, "/")
	if len(parts) != len(names) {
		return nil
	}
	for i, name := range names {
		if inner, ok := strings.CutPrefix(name, "{"); ok {
			values[strings.TrimSuffix(inner, "}")] = parts[i]
		} else if name != parts[i] {
			return nil
		}
	}
	return values
}

// FormOf returns the form of a failed call. The route is nil when no path matched.
func (t *Table) FormOf(r *http.Request, called *Route) *ErrorForm {
	if called != nil {
		return called.errorForm()
	}
	for _, face := range t.Faces {
		if strings.HasPrefix(r.URL.Path, face.Prefix) || t.lacksPrefix(face, r.URL.Path) {
			return face.Errors
		}
	}
	return problems
}

// lacksPrefix reports whether an unknown path is one of a face without its prefix: the client's base URL lacks it.
func (t *Table) lacksPrefix(face Face, unknown string) bool {
	return len(unknown) <= maxHint && t.has(path.Join(face.Prefix, unknown))
}

// ServeHTTP finds the route of a request and calls it.
func (t *Table) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if path.Clean(r.URL.Path) != r.URL.Path { // the mux would redirect
		t.Fail(w, r, nil, t.notFound(r))
		return
	}
	t.mux.ServeHTTP(w, r)
}

// dispatch finds the route of the method. The mux finds only the path, so that a wrong
// method is answered like every other failure.
func (t *Table) dispatch(w http.ResponseWriter, r *http.Request, routes []*Route) {
	i := slices.IndexFunc(routes, func(t *Route) bool {
		return t.Method == r.Method || t.Method == http.MethodGet && r.Method == http.MethodHead
	})
	if i < 0 {
		t.Fail(w, r, routes[0], wrongMethod(w, r, methodsOf(routes)))
		return
	}
	if routes[i].Path != routes[0].Path { // the mux has found another path
		for name, value := range valuesIn(r.URL.Path, routes[i].Path) {
			r.SetPathValue(name, value)
		}
	}
	if err := t.Call(w, r, routes[i]); err != nil {
		t.Fail(w, r, routes[i], err)
	}
}

// wrongMethod sets the header Allow and returns the failure of a method that a path does not
// take.
func wrongMethod(w http.ResponseWriter, r *http.Request, methods []string) error {
	allowed := strings.Join(methods, ", ")
	w.Header().Set("Allow", allowed)
	return loquat.Errorf(loquat.CodeMethodNotAllowed, "%s cannot be used here; use one of %s", loquat.Clip(r.Method, loquat.Excerpt), allowed)
}

func methodsOf(routes []*Route) []string {
	var out []string
	for _, t := range routes {
		out = append(out, t.Method)
		if t.Method == http.MethodGet {
			out = append(out, http.MethodHead)
		}
	}
	slices.Sort(out)
	return out
}

// maxHint is the length of the longest path that an answer suggests.
const maxHint = 300

// notFound reports an unknown path. When only its slashes are wrong, it names the right one. It
// does not redirect, because clients drop the body or the token when they follow a redirect.
func (t *Table) notFound(r *http.Request) error {
	clean := path.Clean("/" + r.URL.Path)
	if clean != r.URL.Path && len(clean) <= maxHint && t.has(clean) {
		return loquat.Errorf(loquat.CodeNotFound, "there is no route %q; use %q", loquat.Clip(r.URL.Path, loquat.Excerpt), clean)
	}
	for _, face := range t.Faces {
		if t.lacksPrefix(face, clean) {
			return loquat.Errorf(loquat.CodeNotFound, "there is no route %q; the base URL must end in %s", clean, strings.TrimSuffix(face.Prefix, "/"))
		}
	}
	return loquat.Errorf(loquat.CodeNotFound, "there is no route %q; /docs lists them", loquat.Clip(r.URL.Path, loquat.Excerpt))
}

func (t *Table) has(clean string) bool {
	_, pattern := t.mux.Handler(&http.Request{Method: http.MethodGet, URL: &url.URL{Path: clean}})
	return pattern != "" && pattern != "/"
}
