package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"iter"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"go.uber.org/goleak"

	"loquat"
	"loquat/internal/asset"
	"loquat/internal/asset/files"
	"loquat/internal/auth"
	"loquat/internal/chat"
	"loquat/internal/config"
	"loquat/internal/feed"
	"loquat/internal/httpapi"
	"loquat/internal/httpapi/route"
	"loquat/internal/images"
	"loquat/internal/jwt"
	"loquat/internal/plugin"
	"loquat/internal/store"
	"loquat/internal/store/sqlite"
	"loquat/internal/webhook"
	"loquat/internal/webpush"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if code == 0 && !allRoutesCalled() {
			code = 1
		}
		os.Exit(code)
	}))
}

// parrot is a provider that answers in pieces, each when the test lets it.
type parrot struct{ gate chan struct{} }

func (*parrot) Name() string     { return "test.parrot" }
func (*parrot) Kind() string     { return plugin.KindProvider }
func (*parrot) Selector() string { return "parrot" }
func (*parrot) ConfigSchema() config.Schema {
	return config.Schema{{Key: "model", Kind: config.String}, {Key: "api_key", Kind: config.String, Secret: true}}
}

func (*parrot) Models(context.Context, loquat.Object) ([]loquat.Model, error) {
	return []loquat.Model{{ID: "m1", Name: "One", Extra: loquat.Object{}.Set("context_length", 4096)}}, nil
}

func (p *parrot) Chat(ctx context.Context, _ loquat.LLMRequest) iter.Seq2[loquat.Chunk, error] {
	return func(yield func(loquat.Chunk, error) bool) {
		for _, piece := range []string{"Pieces ", "of ", "eight."} {
			select {
			case <-p.gate:
			case <-ctx.Done():
				yield(loquat.Chunk{}, ctx.Err())
				return
			}
			if !yield(loquat.Chunk{Text: piece}, nil) {
				return
			}
		}
		yield(loquat.Chunk{Reply: &loquat.Reply{Content: "Pieces of eight."}}, nil)
	}
}

// rig is a complete server with its own store.
type rig struct {
	t       *testing.T
	server  *httptest.Server
	store   *store.Store
	chat    *chat.Service
	feed    *feed.Feed
	keeper  *auth.Keeper
	handler http.Handler
	table   *route.Table // of the handler
	images  *files.Dir
	parrot  *parrot
}

const rigConfig = `{
	"providers": {"main": {"provider": "parrot", "model": "m1"}},
	"limits": {"max_body_bytes": 65536, "max_asset_bytes": 262144},
	"server": {"allowed_origins": ["https://app.example"], "roles": {
		"few": {"bounds": {"sessions": 2, "running_requests": 1}},
		"slow": {"bounds": {"requests_per_minute": 2}},
		"brief": {"bounds": {"tokens_per_day": 12}},
		"tiny": {"bounds": {"tokens_per_day": 2}},
		"small": {"bounds": {"storage_bytes": 40}},
		"narrow": {"agents": [], "plugins": []},
		"other": {"models": ["main/m2", "else/*"]},
		"main": {"agents": ["default"], "models": ["main/*"], "plugins": ["no.plugin"]}
	}},
	"push": {"web": {"subject": "https://app.example"}}
}`

func newRig(t *testing.T, more ...plugin.Plugin) *rig {
	t.Helper()
	return newRigWith(t, func(*httpapi.Options) {}, more...)
}

// newRigWith is newRig with a handler whose options the test changes.
func newRigWith(t *testing.T, change func(*httpapi.Options), more ...plugin.Plugin) *rig {
	t.Helper()
	return newRigOn(t, func(db store.Driver) store.Driver { return db }, change, more...)
}

// newRigOn is newRigWith with a driver that the test wraps.
func newRigOn(t *testing.T, front func(store.Driver) store.Driver, change func(*httpapi.Options), more ...plugin.Plugin) *rig {
	t.Helper()
	return newRigFor(t, nil, front, change, more...)
}

// newRigFor is newRigOn with a keeper that accepts tokens of another system.
func newRigFor(t *testing.T, issued *jwt.Verifier, front func(store.Driver) store.Driver, change func(*httpapi.Options), more ...plugin.Plugin) *rig {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	db, err := sqlite.Open(t.Context(), t.TempDir(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), front(db), store.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, store: st, parrot: &parrot{gate: make(chan struct{})}}
	plugins, err := plugin.NewRegistry(append([]plugin.Plugin{r.parrot}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	cfg, problems := config.Parse([]byte(rigConfig), config.ProcessEnvironment())
	if config.Failed(problems) {
		t.Fatal(problems)
	}
	live := config.NewLive(cfg)
	path := t.TempDir()
	if r.images, err = files.Open(path); err != nil {
		t.Fatal(err)
	}
	uploads, err := asset.OpenSpool(filepath.Join(path, files.Incoming), cfg.Limits.MaxAssetBytes)
	if err != nil {
		t.Fatal(err)
	}
	r.chat = chat.New(chat.Options{Store: st, Images: images.NewLocal(st, r.images, quiet), Uploads: uploads, Config: live, Plugins: plugins, Logger: quiet})
	r.feed = feed.New(st)
	if err := r.chat.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r.keeper, err = auth.Open(t.Context(), auth.Options{Store: st, Configured: auth.Configured{JWT: issued, Roles: slices.Collect(maps.Keys(cfg.Server.Roles))}, Logger: quiet}); err != nil {
		t.Fatal(err)
	}
	opts := httpapi.Options{Service: r.chat, Feed: r.feed, ServerID: st.ServerID(), Access: r.keeper, Config: live, Logger: quiet, Version: "1.2.3", Web: builtClient}
	notifier := webpush.Start(webpush.Options{Store: st, Access: r.keeper, Config: cfg.Push, Logger: quiet})
	t.Cleanup(notifier.Close)
	opts.Push = notifier
	hooks := webhook.Start(webhook.Options{Store: st, Config: config.Webhooks{AllowPrivate: true}, Logger: quiet})
	t.Cleanup(hooks.Close)
	opts.Webhooks = hooks
	change(&opts)
	if r.handler, err = httpapi.New(opts); err != nil {
		t.Fatal(err)
	}
	r.table = httpapi.TableOf(r.handler)
	noteCalls(r.table)
	r.server = httptest.NewServer(r.handler)
	t.Cleanup(func() {
		r.stop()
		r.server.Close()
		http.DefaultClient.CloseIdleConnections()
		st.Close()
	})
	return r
}

// stop ends the service at once, as the end of the process would.
func (r *rig) stop() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r.chat.Stop(ctx)
	r.feed.Close()
}

// reply is an answer that was read whole.
type reply struct {
	*http.Response
	body []byte
}

// do sends a request. Headers come as "Name: value".
func (r *rig) do(method, path, body string, headers ...string) reply {
	r.t.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	return r.doReader(method, path, in, headers...)
}

func (r *rig) doReader(method, path string, body io.Reader, headers ...string) reply {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.server.URL+path, body)
	if err != nil {
		r.t.Fatal(err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			req.Host = value
		}
		if name != "" {
			req.Header[name] = []string{value}
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
	out := reply{resp, all}
	r.checkAgainstDocument(method, path, out)
	return out
}

// checkAgainstDocument compares every answer of every test with /openapi.json.
func (r *rig) checkAgainstDocument(method, path string, got reply) {
	r.t.Helper()
	if got.StatusCode >= 400 {
		if method != http.MethodHead {
			r.checkProblem(method, path, got)
		}
		return
	}
	target, _, _ := strings.Cut(path, "?")
	for _, t := range r.table.Routes {
		if t.Method != method || !matches(t.Path, target) {
			continue
		}
		for _, a := range t.Responses {
			if a.Status == got.StatusCode {
				r.checkAnswer(method+" "+path, a, got)
				return
			}
		}
		r.t.Errorf("%s %s answers %d, which its route does not tell of", method, path, got.StatusCode)
	}
}

func (r *rig) checkAnswer(what string, a route.Response, got reply) {
	r.t.Helper()
	if a.ETag && got.Header.Get("ETag") == "" {
		r.t.Errorf("%s has no ETag", what)
	}
	if a.Body == nil {
		if len(got.body) > 0 {
			r.t.Errorf("%s has a body: %s", what, got.body)
		}
		return
	}
	if a.Media != "" {
		return
	}
	if media := got.Header.Get("Content-Type"); media != "application/json; charset=utf-8" {
		r.t.Errorf("%s is of type %q", what, media)
	}
	var f loquat.FieldErrors
	r.table.Schemas.Validate(&f, a.Body, "answer", got.value(r.t))
	if err := f.Err(); err != nil {
		r.t.Errorf("%s is not what the document says: %v\n%s", what, err, got.body)
	}
	if what == "GET /openapi.json" {
		return // it has the names of all events
	}
	if bytes.Contains(got.body, []byte(`"checkpoint":`)) || bytes.Contains(got.body, []byte(`"accepted":`)) {
		r.t.Errorf("%s shows what is inside: %s", what, got.body)
	}
}

func (r *rig) checkProblem(method, path string, got reply) {
	r.t.Helper()
	if media := got.Header.Get("Content-Type"); media != route.ProblemMedia {
		r.t.Errorf("%s %s fails with %d and type %q: %s", method, path, got.StatusCode, media, got.body)
		return
	}
	var p loquat.Problem
	d := json.NewDecoder(bytes.NewReader(got.body))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		r.t.Errorf("%s %s: %v: %s", method, path, err, got.body)
	}
	if p.Status != got.StatusCode || p.Title != http.StatusText(p.Status) || p.Type != "about:blank" || p.Code == "" || p.Detail == "" {
		r.t.Errorf("%s %s: no whole problem: %s", method, path, got.body)
	}
}

// matches compares a path with a pattern of the table.
func matches(pattern, path string) bool {
	a, b := strings.Split(strings.TrimSuffix(pattern, "{$}"), "/"), strings.Split(path, "/")
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] && !strings.HasPrefix(a[i], "{") {
			return false
		}
	}
	return true
}

func (g reply) value(t *testing.T) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(g.body, &v); err != nil {
		t.Fatalf("%v: %s", err, g.body)
	}
	return v
}

// field returns a string of the answer's object.
func (g reply) field(t *testing.T, name string) string {
	t.Helper()
	s, ok := g.value(t).(map[string]any)[name].(string)
	if !ok {
		t.Fatalf("no string %q in %s", name, g.body)
	}
	return s
}

// want fails unless the answer has the status.
func (g reply) want(t *testing.T, status int) reply {
	t.Helper()
	if g.StatusCode != status {
		t.Fatalf("got %d, want %d: %s", g.StatusCode, status, g.body)
	}
	return g
}

// wantProblem fails unless the answer is a problem of that status and code.
func (g reply) wantProblem(t *testing.T, status int, code loquat.Code) loquat.Problem {
	t.Helper()
	var p loquat.Problem
	if err := json.Unmarshal(g.body, &p); err != nil || g.StatusCode != status || p.Code != code {
		t.Errorf("got %d %s, want %d %s: %s", g.StatusCode, p.Code, status, code, g.body)
	}
	return p
}

// builtClient has the files that a built web client has at least, so the tests need no build.
var builtClient = fstest.MapFS{
	"index.html":             {Data: []byte(`<!doctype html><title>Loquat</title><link rel="icon" href="/icon.svg"><script type="module" src="/assets/app-2Q5RXW7K.js"></script>`)},
	"icon.svg":               {Data: []byte(`<svg xmlns="http://www.w3.org/2000/svg"/>`)},
	"assets/app-2Q5RXW7K.js": {Data: []byte("export {}")},
}
