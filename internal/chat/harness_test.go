package chat_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"loquat"
	"loquat/internal/asset"
	"loquat/internal/asset/files"
	"loquat/internal/builtin"
	"loquat/internal/chat"
	"loquat/internal/config"
	"loquat/internal/feed"
	"loquat/internal/images"
	"loquat/internal/plugin"
	"loquat/internal/store"
	"loquat/internal/store/sqlite"
	"loquat/internal/ui"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		closeDatabases()
		os.Exit(code)
	}))
}

// openDatabase opens a new database, and closeDatabases ends what openDatabase started. The
// variable LOQUAT_TEST_STORE chooses another kind.
var (
	openDatabase = func(t testing.TB, log *slog.Logger) (store.Driver, error) {
		return sqlite.Open(t.Context(), t.TempDir(), log)
	}
	closeDatabases = func() {}
)

// phase is what the fake provider does in one phase: chunks in order, each after the
// gate let it pass, then a reply or an error.
type phase struct {
	chunks []loquat.Chunk
	reply  loquat.Reply
	err    error
	usage  loquat.Object // comes with err
	gate   chan struct{} // when set, every chunk and the end wait for a tick
	hang   bool          // wait for the end of the context before the end
}

// fake is a provider and a toolbox under the test's control.
type fake struct {
	mu       sync.Mutex
	phases   []phase
	requests []loquat.LLMRequest
	tools    []plugin.Tool
	entered  chan struct{} // a tick for every phase that begins

	// elements, when set, describes others than those of some settings.
	elements func(context.Context, ui.Input) ([]loquat.Object, error)

	// chat, when set, runs all phases instead.
	chat func(context.Context, loquat.LLMRequest) iter.Seq2[loquat.Chunk, error]
}

func (*fake) Name() string     { return "test.fake" }
func (*fake) Kind() string     { return plugin.KindProvider }
func (*fake) Selector() string { return "fake" }
func (f *fake) Tools() []plugin.Tool {
	return f.tools
}

func (*fake) ConfigSchema() config.Schema {
	return config.Schema{{Key: "model", Kind: config.String}, {Key: "temperature", Kind: config.Number}, {Key: "allow_image_attachment_url", Kind: config.Boolean}, {Key: "allow_image_attachment_base64", Kind: config.Boolean},
		{Key: "base_url", Kind: config.String}, {Key: "endpoint_options", Kind: config.Labels}, {Key: "api_key", Kind: config.String, Secret: true}}
}

func (f *fake) UIElements(ctx context.Context, in ui.Input) ([]loquat.Object, error) {
	if f.elements != nil {
		return f.elements(ctx, in)
	}
	var out []loquat.Object
	for key, kind := range map[string]string{"model": "text", "temperature": "number", "allow_image_attachment_url": "checkbox", "allow_image_attachment_base64": "checkbox", "base_url": "text"} {
		out = append(out, loquat.Object{}.Set("key", key).Set("type", kind))
	}
	return out, nil
}

func (*fake) Models(context.Context, loquat.Object) ([]loquat.Model, error) {
	return []loquat.Model{{ID: "m1"}}, nil
}

// then adds a phase; without any the provider answers "ok".
func (f *fake) then(p phase) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.phases = append(f.phases, p)
}

func (f *fake) seen() []loquat.LLMRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests
}

func (f *fake) next(req loquat.LLMRequest) phase {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, req)
	if len(f.phases) == 0 {
		return phase{chunks: []loquat.Chunk{{Text: "ok"}}, reply: loquat.Reply{Content: "ok"}}
	}
	p := f.phases[0]
	f.phases = f.phases[1:]
	return p
}

func (f *fake) Chat(ctx context.Context, req loquat.LLMRequest) iter.Seq2[loquat.Chunk, error] {
	if f.chat != nil {
		return f.chat(ctx, req)
	}
	return func(yield func(loquat.Chunk, error) bool) {
		p := f.next(req)
		select {
		case f.entered <- struct{}{}:
		default:
		}
		pass := func() bool {
			if p.gate != nil {
				select {
				case <-p.gate:
				case <-ctx.Done():
				}
			}
			return ctx.Err() == nil
		}
		for _, c := range p.chunks {
			if !pass() {
				yield(loquat.Chunk{}, ctx.Err())
				return
			}
			if !yield(c, nil) {
				return
			}
		}
		if p.hang {
			<-ctx.Done()
		}
		switch {
		case !pass():
			yield(loquat.Chunk{}, ctx.Err())
		case p.err != nil:
			yield(loquat.Chunk{Reply: &loquat.Reply{Metadata: p.usage}}, p.err)
		default:
			reply := p.reply
			reply.Metadata = reply.Metadata.Clone()
			yield(loquat.Chunk{Reply: &reply}, nil)
		}
	}
}

// tool is a tool that runs a function.
type tool struct {
	name string
	run  func(ctx context.Context, call plugin.ToolCall) (plugin.ToolResult, error)
}

func (t tool) Name() string { return t.name }

func (t tool) Schema() json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"type":"function","function":{"name":%q,"parameters":{"type":"object"}}}`, t.name))
}

func (t tool) Call(ctx context.Context, call plugin.ToolCall) (plugin.ToolResult, error) {
	return t.run(ctx, call)
}

// rig is a service and a feed on a store of its own.
type rig struct {
	*chat.Service
	*feed.Feed
	t           testing.TB
	store       *store.Store
	countImages func() (int, error) // whose bytes are stored
	images      images.Keeper
	uploads     *asset.Spool
	provider    *fake
	registry    *plugin.Registry
	config      *config.Config
	said        logged
	fence       func()          // makes the service lose its hold of a shared log
	lives       []*chat.Service // all that ever ran on the store
}

// logged is what services write to their log.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

const testConfig = `{
	"providers": {"main": {"provider": "fake", "model": "m1", "request_options": {"top_p": 1}}},
	"agents": {"default": {"provider": "main"}, "quiet": {"provider": "main", "model": "m2"}},
	"limits": {"max_tool_rounds": 3}
}`

func newRig(t testing.TB, tools ...plugin.Tool) *rig {
	t.Helper()
	return newRigOn(t, func(db store.Driver) store.Driver { return db }, tools...)
}

// openImages opens the place of a rig's images.
var openImages = func(t testing.TB, _ store.Driver, st *store.Store, path string) (images.Keeper, func() (int, error)) {
	dir, err := files.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return images.NewLocal(st, dir, slog.New(slog.DiscardHandler)), func() (n int, err error) {
		for _, err := range dir.Hashes() {
			if err != nil {
				return n, err
			}
			n++
		}
		return n, nil
	}
}

// newRigOn is newRig with a driver that the test wraps.
func newRigOn(t testing.TB, front func(store.Driver) store.Driver, tools ...plugin.Tool) *rig {
	t.Helper()
	db, err := openDatabase(t, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return newRigWith(t, front(db), &fake{tools: tools, entered: make(chan struct{}, 100)})
}

// newRigWith is newRig on a database with a provider.
func newRigWith(t testing.TB, db store.Driver, provider *fake) *rig {
	t.Helper()
	st, err := store.Open(t.Context(), db, store.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	registry, err := plugin.NewRegistry(provider, builtin.RequestOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cfg, problems := config.Parse([]byte(testConfig), config.ProcessEnvironment())
	if config.Failed(problems) {
		t.Fatal(problems)
	}
	path := t.TempDir()
	uploads, err := asset.OpenSpool(filepath.Join(path, files.Incoming), cfg.Limits.MaxAssetBytes)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, store: st, uploads: uploads, provider: provider, registry: registry, config: cfg}
	r.images, r.countImages = openImages(t, db, st, path)
	r.restart()
	t.Cleanup(func() {
		for _, s := range r.lives {
			s.Stop(expired())
		}
		// Whatever a test does, the check of a data directory finds nothing wrong.
		err := db.Read(context.Background(), func(q store.SQL) error {
			store.Verify(q, true, func(problem string) { t.Errorf("the data are not sound: %s", problem) })
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		st.Close()
	})
	return r
}

// load gives the rig another configuration, unless it is "", and further plugins.
func (r *rig) load(configText string, plugins ...plugin.Plugin) {
	r.t.Helper()
	var err error
	if r.registry, err = plugin.NewRegistry(append([]plugin.Plugin{r.provider, builtin.RequestOptions{}}, plugins...)...); err != nil {
		r.t.Fatal(err)
	}
	if configText != "" {
		var problems []config.Problem
		if r.config, problems = config.Parse([]byte(configText), config.ProcessEnvironment()); config.Failed(problems) {
			r.t.Fatal(problems)
		}
	}
	r.restart()
}

// restart puts a new service on the store, as a new process would after a crash.
func (r *rig) restart() {
	r.t.Helper()
	r.Service = chat.New(chat.Options{
		Store: r.store, Images: r.images, Uploads: r.uploads, Config: config.NewLive(r.config), Plugins: r.registry, Logger: slog.New(slog.NewTextHandler(&r.said, nil)),
		Secrets: config.NewRedactor([]string{"hunter2"}),
	})
	r.lives = append(r.lives, r.Service)
	r.Feed = feed.New(r.store)
	if err := r.Start(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// Stop ends the requests and then the waits of followers, as the end of a server does.
func (r *rig) Stop(ctx context.Context) {
	r.Service.Stop(ctx)
	r.Feed.Close()
}

// expired is a context that makes Stop stop at once.
func expired() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func (r *rig) create(p loquat.NewSession) loquat.Snapshot {
	r.t.Helper()
	s, err := r.CreateSession(r.t.Context(), chat.Call{}, p)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func text(s string) *string { return &s }

// send asks for a reply, which does not stream unless p says so.
func (r *rig) send(session string, p loquat.Send) loquat.SendResult {
	r.t.Helper()
	if p.Stream == nil {
		p.Stream = new(false)
	}
	out, err := r.Requests.Send(r.t.Context(), chat.Call{}, session, p)
	if err != nil {
		r.t.Fatal(err)
	}
	return out.Body
}

// ended waits for the end of a request.
func (r *rig) ended(requestID string) loquat.Request {
	r.t.Helper()
	since := loquat.EventID(0)
	for range 10_000 {
		w, err := r.Events(r.t.Context(), feed.Query{RequestID: requestID, Since: &since, Wait: 20 * time.Second, OmitSession: true})
		if err != nil {
			r.t.Fatal(err)
		}
		for _, e := range w.Events {
			if e.Type == loquat.RequestCompleted {
				q, err := r.Requests.Request(r.t.Context(), requestID)
				if err != nil {
					r.t.Fatal(err)
				}
				return q
			}
		}
		since = w.Cursor
	}
	r.t.Fatalf("request %s does not end", requestID)
	return loquat.Request{}
}

// log returns all that a session published above since, as the log has it.
func (r *rig) log(session string, since loquat.EventID) []loquat.Event {
	r.t.Helper()
	var out []loquat.Event
	for {
		records, err := r.store.Events(r.t.Context(), since, store.Filter{SessionID: session}, store.Bounds{Events: 100})
		if err != nil {
			r.t.Fatal(err)
		}
		if len(records) == 0 {
			return out
		}
		for _, rec := range records {
			e, err := rec.Decode()
			if err != nil {
				r.t.Fatal(err)
			}
			out = append(out, e)
			since = rec.ID
		}
	}
}

// story writes events in short: their types, phases, and texts of messages.
func story(events []loquat.Event) string {
	var out []string
	for _, e := range events {
		s := string(e.Type)
		if e.Phase != "" {
			s += ":" + e.Phase
		}
		if e.RequestID == "" {
			s += "*" // of no request
		}
		switch {
		case e.Type == loquat.Partial:
			s += fmt.Sprintf("(%s)", e.Message.Content)
		case len(e.Messages) > 0:
			for _, m := range e.Messages {
				s += fmt.Sprintf("(%s)", m.Content)
			}
		case e.Detail != "":
			s += fmt.Sprintf("(%s)", e.Detail)
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

// words are chunks of text.
func words(texts ...string) []loquat.Chunk {
	var out []loquat.Chunk
	for _, s := range texts {
		out = append(out, loquat.Chunk{Text: s})
	}
	return out
}

func calls(names ...string) []loquat.ToolCall {
	var out []loquat.ToolCall
	for i, name := range names {
		out = append(out, loquat.ToolCall{ID: fmt.Sprint("call", i), Name: name, Arguments: "{}"})
	}
	return out
}

func (r *rig) snapshot(session string) loquat.Snapshot {
	r.t.Helper()
	s, err := r.Session(r.t.Context(), session)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func transcript(messages []loquat.Message) string {
	var out []string
	for _, m := range messages {
		s := m.Role + ":" + m.Content
		if why := m.Metadata.String(loquat.MetaIncomplete); why != "" {
			s += " (" + why + ")"
		}
		out = append(out, s)
	}
	return strings.Join(out, " | ")
}

// tick lets n steps of a gated phase pass.
func tick(gate chan struct{}, n int) {
	for range n {
		gate <- struct{}{}
	}
}

// waitFor polls until ok holds.
func (r *rig) waitFor(what string, ok func() bool) {
	r.t.Helper()
	for range 2000 {
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	r.t.Fatalf("waited in vain for %s", what)
}
