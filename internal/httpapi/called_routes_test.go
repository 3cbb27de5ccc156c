package httpapi_test

import (
	"flag"
	"fmt"
	"os"
	"sync"

	"loquat/internal/httpapi/route"
)

// calledRoutes says of each route, by method and path, whether a test has called it. A call counts if it
// reaches the route's own work.
var calledRoutes sync.Map

// noteCalls notes the calls of a table in calledRoutes.
func noteCalls(table *route.Table) {
	for i := range table.Routes {
		rt := &table.Routes[i]
		name, serve := rt.Method+" "+rt.Path, rt.Serve
		calledRoutes.LoadOrStore(name, false)
		rt.Serve = func(x *route.Exchange) error {
			calledRoutes.Store(name, true)
			return serve(x)
		}
	}
}

// allRoutesCalled reports whether the tests have called every route, and prints those that they have not. If only
// some tests were run, it says nothing.
func allRoutesCalled() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list", "test.fuzz"} {
		if flag.Lookup(name).Value.String() != "" {
			return true
		}
	}
	ok := true
	calledRoutes.Range(func(name, called any) bool {
		if !called.(bool) {
			ok = false
			fmt.Fprintf(os.Stderr, "no test calls %s: add a call, such as one in TestSessionLife\n", name)
		}
		return true
	})
	return ok
}
