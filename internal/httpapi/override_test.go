package httpapi_test

import (
	"testing"
)

// One override is set, kept with its nulls, and taken back.
func TestSetOverride(t *testing.T) {
	r := newRig(t)
	r.do("POST", "/sessions", `{"session_id":"s","metadata":{"overrides":{"request_options":{"n":1}}}}`).want(t, 201)
	put := func(key, body string, headers ...string) reply {
		return r.do("PUT", "/sessions/s/config/"+key, body, headers...)
	}
	overrides := func(g reply) any {
		return g.value(t).(map[string]any)["metadata"].(map[string]any)["overrides"]
	}
	first := put("request_options", `{"value":{"stop":null}}`).want(t, 200)
	options := overrides(first).(map[string]any)["request_options"].(map[string]any)
	if stop, given := options["stop"]; !given || stop != nil || len(options) != 1 {
		t.Errorf("the override is %v", options)
	}
	tag := first.Header.Get("ETag")
	put("request_options", `{"value":null}`, "If-Match: "+tag).want(t, 200)
	put("request_options", `{"value":{}}`, "If-Match: "+tag).wantProblem(t, 412, "precondition_failed")
	if got := overrides(r.do("GET", "/sessions/s", "").want(t, 200)).(map[string]any); len(got) != 0 {
		t.Errorf("the overrides are %v", got)
	}
	for body, status := range map[string]int{`{}`: 422, `{"value":1,"more":2}`: 422, `{"value":`: 400, ``: 400, `{"value":{"a":1,"a":2}}`: 400, `{"value":[]}`: 422, `{"value":{"MODEL":"x"}}`: 422} {
		put("request_options", body).wantProblem(t, status, "invalid")
	}
	put("nonsense", `{"value":1}`).wantProblem(t, 422, "invalid")
	put("", `{"value":1}`).wantProblem(t, 404, "not_found")
	put("a%2Fb", `{"value":1}`).wantProblem(t, 422, "invalid")
	r.do("PUT", "/sessions/none/config/model", `{"value":"m"}`).wantProblem(t, 404, "not_found")
	r.do("GET", "/sessions/s/config/model", "").wantProblem(t, 405, "method_not_allowed")
}
