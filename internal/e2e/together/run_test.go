//go:build unix

package together_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/e2e/audit"
	"loquat/internal/e2e/binary"
	"loquat/internal/e2e/webhooks"
)

// run is a run of everything in one shape.
type run struct {
	*town
	t      testing.TB
	ctx    context.Context
	seed   uint64
	length time.Duration
	copies atomic.Int64
	copied string         // the database of the copy of the moment
	annex  *client.Client // of a server that gets what others export

	drawing sync.Mutex
	drawn   *rand.Rand

	// Of the act of the moment.
	from  loquat.EventID // the newest event before it
	crews []*crew

	deleted map[string]bool // sessions, in all acts before this one
	told    sync.Map        // sessions of responses whose clients know them
	used    carolsUsage     // in all acts
	tally   audit.Tally
	events  int
}

// arrival is how long a call of a client that has ended may be on its way over a faulty network.
const arrival = 2 * time.Second

// slow is how long a check may take without a line in the log of the test.
const slow = 5 * time.Second

func newRun(t testing.TB, seed uint64, length time.Duration, s shape) *run {
	t.Helper()
	t.Logf("LOQUAT_TOGETHER_SEED=%d for %v", seed, length)
	r := &run{t: t, seed: seed, length: length, drawn: rand.New(rand.NewPCG(seed, 0)), deleted: map[string]bool{}}
	r.town = newTown(t, seed, s)
	return r
}

// random returns a random source of its own for a goroutine.
func (r *run) random() *rand.Rand {
	r.drawing.Lock()
	defer r.drawing.Unlock()
	return rand.New(rand.NewPCG(r.drawn.Uint64(), 1))
}

// open starts what is no part of the town.
func (r *run) open() {
	c := r.config()
	file := r.write("annex.json", c)
	p := binary.Start(r.t, nil, "serve", "--config", file, "--listen", "127.0.0.1:0", "--data", r.t.TempDir())
	api, err := client.New(p.URL, client.Options{Token: fullToken})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(api.CloseIdleConnections)
	r.annex = api
}

// act lets everybody work while things break, then lets all come to rest and checks everything.
func (r *run) act(n int, a act) {
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	r.direct(true)
	r.from = r.latest(ctx)
	r.direct(false)
	working, over := context.WithCancel(ctx)
	defer over()
	var running sync.WaitGroup
	r.crews = nil
	for _, p := range r.people {
		c := r.newCrew(ctx, working, p)
		r.crews = append(r.crews, c)
	}
	for _, c := range r.crews {
		if err := r.addDevice(c); err != nil {
			r.t.Errorf("pair a device of %q: %v", c.name, err)
			return
		}
		c.start(&running, r.random())
	}
	running.Go(func() { r.restoreDuring(working) })
	stop := r.breakThings(r.seed+uint64(n), a)
	for began := time.Now(); time.Since(began) < a.length && !r.t.Failed(); {
		time.Sleep(50 * time.Millisecond)
	}
	stop()
	r.direct(true)
	over()
	running.Wait()
	for _, c := range r.crews {
		c.load.Halt()
	}
	time.Sleep(arrival)
	r.rest(ctx)
	for _, c := range r.crews {
		c.load.Stop()
	}
	r.finish()
	r.direct(false)
}

func (r *run) newCrew(ctx, working context.Context, p *person) *crew {
	c := &crew{town: r.town, told: &r.told, person: p, ctx: working, ids: map[string]bool{}, others: func() []*crew { return r.crews }}
	var tools []map[string]any
	for n := range 3 {
		tools = append(tools, map[string]any{"name": "double", "arguments": map[string]int{"n": n}})
	}
	c.load = audit.New(ctx, audit.Options{
		Client: p.api, Random: r.random(), From: r.from, Sessions: 3, Users: 2, Streams: 1, Name: p.word, Tools: tools,
		Agents: []string{"default", "early", "stubborn"}, Keeps: p.name == "carol", Vanish: r.vanish, Again: asked, Deleted: r.wasDeleting,
		Fault: func(err error) { r.t.Errorf("%q: %v", p.name, err) },
	})
	return c
}

// vanish reports whether a session may disappear: that of a response that its client does not know. If the
// database does not say whether it has started a response, the server answers with an error and deletes the
// session.
func (r *run) vanish(session, agent string) bool {
	_, known := r.told.Load(session)
	return responders[agent] != nil && !known
}

// wasDeleting reports whether anybody asked for the deletion of a session.
func (r *run) wasDeleting(session string) bool {
	return r.deleted[session] || slices.ContainsFunc(r.crews, func(c *crew) bool { return c.load.IsDeleting(session) })
}

// addDevice lets a device of a person follow through the bridge, except for carol: her tokens are of another
// system, and cannot pair.
func (r *run) addDevice(c *crew) error {
	if c.name == "carol" {
		return nil
	}
	d, err := c.pair(r.town, r.random())
	if err == nil {
		c.load.Watch("device", d.follow)
	}
	return err
}

// rest waits until nothing runs and checks everything. Nothing fails any more, except for single connections
// to the backend and the database.
func (r *run) rest(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r.tally.Audits++
	began := time.Now()
	faults := r.restLoads(ctx)
	settled := time.Since(began)
	if len(faults) == 0 {
		faults = r.compare(ctx)
	}
	r.t.Logf("at rest and audited after %v, compared after %v", settled.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	for i, fault := range faults {
		if i < 20 { // one loss shows in many ways
			r.t.Error(fault)
		}
	}
	if len(faults) > 0 {
		r.explain()
	}
}

// restLoads checks what each person's clients were promised and saw. It checks again while the log changes:
// calls whose clients have ended may still be under way.
func (r *run) restLoads(ctx context.Context) (faults []error) {
	for {
		before := r.latest(ctx)
		faults = r.auditLoads(ctx)
		if r.latest(ctx) == before || ctx.Err() != nil {
			return faults
		}
	}
}

// latest returns the newest event of the log.
func (r *run) latest(ctx context.Context) (at loquat.EventID) {
	err := audit.Retry(ctx, func() error {
		w, err := r.people[0].api.Events(ctx, client.Query{})
		at = w.LatestEventID
		return err
	})
	if err != nil {
		r.t.Errorf("ask for the newest event: %v", err)
	}
	return at
}

func (r *run) auditLoads(ctx context.Context) (faults []error) {
	var all sync.WaitGroup
	of := make([][]error, len(r.crews))
	for i, c := range r.crews {
		all.Go(func() { of[i] = c.load.Rest(ctx) })
	}
	all.Wait()
	for i, c := range r.crews {
		for _, err := range of[i] {
			faults = append(faults, fmt.Errorf("%q: %w", c.name, err))
		}
	}
	return faults
}

// explain prints the logs, and where each node hangs.
func (r *run) explain() {
	for i, m := range r.nodes {
		p := m.Now()
		_ = p.Cmd.Process.Signal(syscall.SIGQUIT)
		p.Stopped(r.t)
		r.t.Logf("node %d says:\n%s", i, p.Log)
	}
	r.t.Logf("the bridge says:\n%s", r.bridge.Now().Log)
}

// compare compares each part with the log.
func (r *run) compare(ctx context.Context) (faults []error) {
	for _, c := range r.crews {
		t := c.load.Audited()
		if c.name == "" {
			r.events += len(t.Log())
		}
		for what, check := range map[string]func() []error{
			"webhook":   func() []error { return r.checkWebhook(ctx, c, t) },
			"tools":     func() []error { return checkTools(t) },
			"responses": func() []error { return c.checkResponses(ctx, t) },
			"search":    func() []error { return c.checkSearch(ctx, t) },
			"exports":   func() []error { return r.checkExports(ctx, c, t) },
		} {
			began := time.Now()
			faults = append(faults, check()...)
			if took := time.Since(began); took > slow {
				r.t.Logf("the check of %s of %q took %v", what, c.name, took.Round(time.Millisecond))
			}
		}
		if c.name == "carol" {
			if err := r.checkUsage(ctx, t); err != nil {
				faults = append(faults, err)
			}
		}
	}
	if len(faults) > 0 {
		return faults
	}
	at := r.latest(ctx)
	err := r.restore(ctx, at)
	for errors.Is(err, errBehind) && sleep(ctx, time.Second) {
		err = r.restore(ctx, at)
	}
	if err != nil {
		faults = append(faults, err)
	}
	return faults
}

// checkWebhook waits until a receiver has all events, each session's in their order.
func (r *run) checkWebhook(ctx context.Context, c *crew, t *audit.Truth) (faults []error) {
	receiver := r.receivers[c.name]
	if receiver == nil {
		return nil
	}
	var log []loquat.Event
	for _, e := range t.Log() {
		if !c.load.WasDeleting(e.SessionID) {
			log = append(log, e)
		}
	}
	err := audit.Retry(ctx, func() error {
		if faults = receiver.Compare(r.from, webhooks.Sent(log)); len(faults) > 0 {
			return faults[0]
		}
		return nil
	})
	if err == nil {
		return nil
	}
	_, answer, _ := r.people[0].call(r.ctx, http.MethodGet, "/webhooks", "")
	return append(faults, fmt.Errorf("the webhook of %q has not delivered all: %s", c.name, answer))
}

// checkTools checks the results of the plugin's tool: each is right, or an error.
func checkTools(t *audit.Truth) (faults []error) {
	want := map[string]string{}
	for _, e := range t.Log() {
		for _, call := range e.ToolCalls {
			var in number
			if call.Name == "double" && json.Unmarshal([]byte(call.Arguments), &in) == nil {
				want[e.RequestID+" "+call.ID] = fmt.Sprint(2 * in.N)
			}
		}
		for _, m := range e.Messages {
			answer, asked := want[e.RequestID+" "+m.Metadata.String(loquat.MetaToolCallID)]
			if e.Type == loquat.ToolResults && asked && m.Content != answer && m.Metadata[loquat.MetaIsError] == nil {
				faults = append(faults, fmt.Errorf("event %s: the tool answered %q, not %q", e.EventID, m.Content, answer))
			}
		}
	}
	return faults
}

// searched is how many texts are searched for at the end of an act, and exported how many sessions.
const searched, exported = 20, 12

// errIncomplete is why a search is made again: the index is behind on a busy machine, and the answer says so.
var errIncomplete = errors.New("messages are still being indexed")

// checkSearch searches for texts of messages. The hits are exactly the messages that have them.
func (c *crew) checkSearch(ctx context.Context, t *audit.Truth) (faults []error) {
	texts := map[string][]string{} // where each is
	for id, s := range t.Sessions {
		for i, m := range s.Messages {
			if m.Role != loquat.RoleTool && len(strings.Fields(m.Content)) > 1 && len(m.Content) < 60 {
				texts[m.Content] = append(texts[m.Content], fmt.Sprintf("%s[%d]", id, i))
			}
		}
	}
	n := 0
	for text, want := range texts {
		if n++; n > searched || len(want) > 50 {
			continue
		}
		var got []string
		err := audit.Retry(ctx, func() (err error) {
			got, err = c.find(ctx, t, text)
			return err
		})
		slices.Sort(got)
		slices.Sort(want)
		if err != nil || !slices.Equal(got, want) {
			faults = append(faults, fmt.Errorf("a search of %q for %q finds %v, and %v have it: %v", c.name, text, got, want, err))
		}
		c.count("search that was compared")
	}
	return faults
}

// find returns where a search finds a text that is all of a message. Messages that have more than this text are found too.
func (c *crew) find(ctx context.Context, t *audit.Truth, text string) (places []string, err error) {
	for query := (loquat.SearchQuery{Text: `"` + text + `"`, Limit: 100}); ; {
		found, err := c.api.Search(ctx, query)
		if err != nil {
			return nil, err
		}
		if found.Incomplete {
			c.count("search that was incomplete")
			return nil, errIncomplete
		}
		for _, hit := range found.Hits {
			if s, ok := t.Sessions[hit.SessionID]; ok && s.Messages[*hit.Index].Content == text {
				places = append(places, fmt.Sprintf("%s[%d]", hit.SessionID, *hit.Index))
			}
		}
		if query.PageToken = found.NextPageToken; query.PageToken == "" {
			return places, nil
		}
	}
}

// checkExports moves sessions to another server and back out of it. Both archives are equal.
func (r *run) checkExports(ctx context.Context, c *crew, t *audit.Truth) (faults []error) {
	n := 0
	for id := range t.Sessions {
		if n++; n > exported || c.name != "" { // everybody's are those of all users
			break
		}
		if err := r.checkExport(ctx, c, id); err != nil {
			faults = append(faults, fmt.Errorf("session %s of %q: %w", id, c.name, err))
		}
	}
	return faults
}

func (r *run) checkExport(ctx context.Context, c *crew, id string) error {
	var archive []byte
	err := audit.Retry(ctx, func() (err error) {
		archive, err = c.export(ctx, id)
		return err
	})
	if err != nil {
		return err
	}
	there := &crew{person: &person{api: r.annex}}
	report, err := r.annex.Import(ctx, client.ImportOptions{}, func(w io.Writer) error {
		_, err := w.Write(archive)
		return err
	})
	if err != nil || report.Imported != 1 {
		return fmt.Errorf("import: %+v %v", report, err)
	}
	again, err := there.export(ctx, id)
	if err != nil || string(again) != string(archive) {
		return fmt.Errorf("the archive was\n%s\nand is after its import\n%s: %v", archive, again, err)
	}
	r.count("export that was compared")
	return nil
}

// carolsUsage is the usage of carol's requests, which are never deleted. The sessions of responses may vanish
// after they have used something: see vanish.
type carolsUsage struct{ sends, responses loquat.UsageRow }

// of returns the row to which requests of an agent belong.
func (u *carolsUsage) of(agent string) *loquat.UsageRow {
	if responders[agent] != nil {
		return &u.responses
	}
	return &u.sends
}

// checkUsage compares the sum of the usage of carol's requests with the server's.
func (r *run) checkUsage(ctx context.Context, t *audit.Truth) error {
	for _, q := range t.Requests {
		if q.SteeredInto != "" {
			continue // it never ran
		}
		used := r.used.of(t.Sessions[q.SessionID].AgentID)
		used.Requests++
		if q.Usage != nil {
			used.Attempts += int64(q.Usage.Attempts)
			used.Reported, used.Estimated = used.Reported.Add(q.Usage.Reported), used.Estimated.Add(q.Usage.Estimated)
		}
	}
	var list loquat.UsageList
	err := r.crews[0].get(ctx, "/usage?user=carol&group_by=provider_id&group_by=agent_id", &list)
	if err != nil {
		return err
	}
	var all carolsUsage
	for _, row := range list.Usage { // without a provider are the requests that never called one
		if row.ProviderID != relayed {
			sum := all.of(row.AgentID)
			sum.Requests, sum.Attempts = sum.Requests+row.Requests, sum.Attempts+row.Attempts
			sum.Reported, sum.Estimated = sum.Reported.Add(row.Reported), sum.Estimated.Add(row.Estimated)
		}
	}
	if all.sends != r.used.sends || all.responses.Requests < r.used.responses.Requests || all.responses.Attempts < r.used.responses.Attempts {
		return fmt.Errorf("GET /usage has %+v, and the requests have %+v", list.Usage, r.used)
	}
	return nil
}

// finish adds up what an act did.
func (r *run) finish() {
	for _, c := range r.crews {
		r.tally.Add(c.load)
		for id := range c.load.DeletedSessions() {
			r.deleted[id] = true
		}
	}
	r.crews = nil
}

// checkAll reads the log from its beginning and checks it as a whole.
func (r *run) checkAll() {
	r.direct(true)
	ctx, cancel := context.WithTimeout(r.ctx, 5*patience)
	defer cancel()
	l := audit.New(ctx, audit.Options{Client: r.people[0].api, Random: r.random(), Deleted: r.wasDeleting, Fault: func(err error) { r.t.Error(err) }})
	t, err := l.Truth(ctx)
	if err != nil {
		r.t.Error(err)
		return
	}
	for i, fault := range t.Check() {
		if i < 20 {
			r.t.Error(fault)
		}
	}
	r.t.Logf("the log has %d events of %d sessions and %d requests", len(t.Log()), len(t.Sessions), len(t.Requests))
}

// close stops the nodes and checks their logs.
func (r *run) close() {
	for _, m := range r.nodes {
		if m.Now().Cmd.ProcessState == nil {
			m.Now().End(r.t)
		}
		m.CheckLog()
	}
	for _, m := range []*binary.Mover{r.backend, r.bridge} {
		m.CheckLog()
	}
}

func (r *run) String() string {
	return fmt.Sprintf("%s; %+v; %d events; %s", audit.Counts(r.kills()), r.total(), r.events, &r.tally)
}

// report logs how much was done, and fails if that was too little to prove anything.
func (r *run) report() {
	r.t.Logf("seed %d: %s", r.seed, r)
	for user, receiver := range r.receivers {
		r.t.Logf("the webhook of %q: %s", user, receiver.Counts())
	}
	done := r.kills()
	for _, what := range []string{"node", "join", "response", "search", "import", "relayed answer", "restore", "export that was compared", "search that was compared"} {
		if done[what] == 0 && !r.t.Failed() {
			r.t.Errorf("there was no %s", what)
		}
	}
	if r.tally.Requests == 0 || r.tally.Folds == 0 || r.total().Cuts == 0 {
		r.t.Error("too little was done to prove anything")
	}
}
