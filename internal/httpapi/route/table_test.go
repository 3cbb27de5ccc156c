package route

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"loquat"
)

// A route may have an error form of its own. It holds for every failure below its path, and
// the document has it. Other routes and unknown paths answer with problems.
func TestErrorForm(t *testing.T) {
	type plain struct {
		Error string `json:"error"`
	}
	form := &ErrorForm{Body: plain{}, Media: "application/plain+json", Write: func(w http.ResponseWriter, err error) {
		w.Header().Set("Content-Type", "application/plain+json")
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprintf(w, `{"error":%q}`, loquat.CodeOf(err))
	}}
	fails := func(*Exchange) error { return loquat.Errorf(loquat.CodeConflict, "no") }
	routes := []Route{
		{Method: "GET", Path: "/plain", ID: "plain", Serve: fails, Errors: form, Query: []Param{{Name: "n", Kind: Integer}}},
		{Method: "GET", Path: "/usual", ID: "usual", Serve: fails},
	}
	table := &Table{}
	*table = *NewTable(Options{
		Routes: routes, Schemas: NewSchemas(),
		Call: func(w http.ResponseWriter, r *http.Request, route *Route) error {
			x, err := table.Read(w, r, route)
			if err != nil {
				return err
			}
			return route.Serve(x)
		},
		Fail: func(w http.ResponseWriter, _ *http.Request, route *Route, err error) { route.errorForm().Write(w, err) },
	})
	for _, c := range []struct {
		method, path, media string
		status              int
	}{
		{"GET", "/plain", form.Media, 418},
		{"GET", "/plain?n=x", form.Media, 418},
		{"POST", "/plain", form.Media, 418},
		{"GET", "/usual", ProblemMedia, 409},
		{"POST", "/usual", ProblemMedia, 405},
		{"GET", "/plain/", ProblemMedia, 404},
		{"GET", "/other", ProblemMedia, 404},
	} {
		w := httptest.NewRecorder()
		table.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		if got := w.Header().Get("Content-Type"); w.Code != c.status || got != c.media {
			t.Errorf("%s %s: %d %s, want %d %s", c.method, c.path, w.Code, got, c.status, c.media)
		}
	}
	document, err := Describe(routes, NewSchemas(), Document{})
	if err != nil {
		t.Fatal(err)
	}
	for media, n := range map[string]int{form.Media: 2, ProblemMedia: 2} {
		if got := strings.Count(string(document), `"`+media+`"`); got != n {
			t.Errorf("the document has %s %d times, want %d", media, got, n)
		}
	}
}
