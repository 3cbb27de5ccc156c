package httpapi_test

import (
	"context"
	"testing"

	"loquat"
	"loquat/internal/httpapi"
)

// The answer names what has changed, and a configuration that is not accepted is the caller's fault.
func TestReloadRoute(t *testing.T) {
	faulty := false
	r := newRigWith(t, func(o *httpapi.Options) {
		o.Reload = func(context.Context) (loquat.ConfigReload, error) {
			if faulty {
				return loquat.ConfigReload{}, loquat.Errorf(loquat.CodeInvalid, "the file is faulty")
			}
			return loquat.ConfigReload{Changed: []loquat.ConfigChange{{Key: "timeout"}}}, nil
		}
	})
	var out loquat.ConfigReload
	r.do("POST", "/config/reload", "").want(t, 200).into(t, &out)
	if len(out.Changed) != 1 || out.Changed[0].Key != "timeout" {
		t.Errorf("%+v", out)
	}
	faulty = true
	r.do("POST", "/config/reload", "").wantProblem(t, 422, loquat.CodeInvalid)
}
