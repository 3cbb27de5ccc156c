//go:build unix

package together_test

import (
	"bytes"
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
	"time"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/e2e/audit"
	"loquat/internal/phx"
)

// callPatience is how long a call may take.
const callPatience = 20 * time.Second

// crew is the clients of a person during an act: a load of the native API, and one client of each other kind.
type crew struct {
	*town
	*person
	ctx       context.Context
	load      *audit.Load
	others    func() []*crew
	responses responses
	told      *sync.Map // sessions of responses whose clients know them

	mu     sync.Mutex
	serial int
	ids    map[string]bool // sessions of the person, for others to guess
}

// during reports whether the act lasts.
func (c *crew) during() bool { return c.ctx.Err() == nil && !c.t.Failed() }

// text makes a text of the person that is unique in the act.
func (c *crew) text(what string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serial++
	return fmt.Sprintf("%s %s %d of %s", what, c.word, c.serial, c.name)
}

// do makes calls within the time that they may take.
func (c *crew) do(fn func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(c.ctx, callPatience)
	defer cancel()
	return fn(ctx)
}

// away reports whether a call failed because nobody answered, or answered late.
func away(err error) bool {
	code := loquat.CodeOf(err)
	return code == loquat.CodeUnavailable || code == loquat.CodeRateLimited || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// judge records an error that nothing explains, and counts what was done.
func (c *crew) judge(what string, err error, fine ...loquat.Code) {
	switch {
	case err == nil:
		c.count(what)
	case !away(err) && !slices.Contains(fine, loquat.CodeOf(err)) && c.ctx.Err() == nil:
		c.t.Errorf("%s by %q: %v", what, c.name, err)
	}
}

// start starts the clients, which end with the act.
func (c *crew) start(running *sync.WaitGroup, random *rand.Rand) {
	c.load.Run()
	kinds := []func(*rand.Rand){c.relay, c.respond, c.search, c.act, c.carry, c.print}
	if c.word != "" {
		kinds = append(kinds, c.guess)
	}
	for _, kind := range kinds {
		own := rand.New(rand.NewPCG(random.Uint64(), 3))
		running.Go(func() { kind(own) })
	}
}

// some returns one of the person's sessions, or "" if there is none yet.
func (c *crew) some(ctx context.Context, random *rand.Rand) (string, error) {
	list, err := c.api.Sessions(ctx, loquat.SessionQuery{Limit: 20})
	if err != nil || len(list.Sessions) == 0 {
		return "", err
	}
	c.mu.Lock()
	for _, s := range list.Sessions {
		if s.User == c.name {
			c.ids[s.SessionID] = true
		}
	}
	c.mu.Unlock()
	return list.Sessions[random.IntN(len(list.Sessions))].SessionID, nil
}

// search searches for the person's word. Each hit is a message that has it, and the words of others are in
// no hit.
func (c *crew) search(random *rand.Rand) {
	for c.during() {
		word := c.word
		if word == "" || random.IntN(3) == 0 {
			word = []string{"kestrel", "heron", "osprey"}[random.IntN(3)]
		}
		err := c.do(func(ctx context.Context) error {
			found, err := c.api.Search(ctx, loquat.SearchQuery{Text: word, Limit: 1 + random.IntN(50)})
			for _, hit := range found.Hits {
				if c.word != "" && word != c.word {
					return fmt.Errorf("a search for %s found %+v", word, hit)
				}
				if !slices.ContainsFunc(hit.Snippet.Parts, func(p loquat.SnippetPart) bool { return p.Hit && p.Text == word }) {
					return fmt.Errorf("a search for %s found %+v", word, hit.Snippet)
				}
			}
			return err
		})
		c.judge("search", err)
		sleep(c.ctx, time.Duration(random.IntN(600))*time.Millisecond)
	}
}

// act runs actions of the plugin and of Loquat's own extensions.
func (c *crew) act(random *rand.Rand) {
	for c.during() {
		n := random.IntN(1000)
		err := c.do(func(ctx context.Context) error {
			session, err := c.some(ctx, random)
			if err != nil || session == "" {
				return err
			}
			answer, err := c.api.Act(ctx, session, "double_now", loquat.Action{Params: loquat.Object{}.Set("n", n)})
			var got doubled
			if err == nil && (json.Unmarshal(answer.Result, &got) != nil || got.Doubled != 2*n) {
				err = fmt.Errorf("the action answered %s to %d", answer.Result, n)
			}
			return err
		})
		c.judge("action", err, loquat.CodeBackendError, loquat.CodeNotFound) // the plugin was killed, or the session deleted
		sleep(c.ctx, time.Duration(random.IntN(800))*time.Millisecond)
	}
}

// carry exports a session and imports it as another one, which has to have the same messages.
func (c *crew) carry(random *rand.Rand) {
	for c.during() {
		err := c.do(func(ctx context.Context) error {
			session, err := c.some(ctx, random)
			if err != nil || session == "" {
				return err
			}
			archive, err := c.export(ctx, session)
			if err != nil {
				return err
			}
			report, err := c.api.Import(ctx, client.ImportOptions{NewIDs: true}, func(w io.Writer) error {
				_, err := w.Write(archive)
				return err
			})
			if err != nil {
				return err
			}
			if report.Imported != 1 {
				return fmt.Errorf("the import of session %s answered %+v: %s", session, report, archive)
			}
			made, err := c.api.Session(ctx, report.Sessions[0].SessionID)
			if err != nil {
				return err
			}
			return sameTexts(archive, made.Messages)
		})
		c.judge("import", err, loquat.CodeNotFound) // the session was deleted
		sleep(c.ctx, time.Duration(1000+random.IntN(3000))*time.Millisecond)
	}
}

// export returns the archive of a session.
func (c *crew) export(ctx context.Context, session string) ([]byte, error) {
	body, err := c.api.Export(ctx, session, "json")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	archive, err := io.ReadAll(body)
	if err != nil {
		return nil, &loquat.Error{Code: loquat.CodeUnavailable, Err: err}
	}
	return archive, nil
}

// sameTexts returns an error unless the messages of the session in an archive are these.
func sameTexts(archive []byte, messages []loquat.Message) error {
	var parsed struct{ Sessions []loquat.Session }
	if err := json.Unmarshal(archive, &parsed); err != nil {
		return err
	}
	texts := func(list []loquat.Message) (out []string) {
		for _, m := range list {
			out = append(out, m.Role+": "+m.Content)
		}
		return out
	}
	if a, b := texts(parsed.Sessions[0].Messages), texts(messages); !slices.Equal(a, b) {
		return fmt.Errorf("the archive has\n  %q\nand the imported session\n  %q", a, b)
	}
	return nil
}

// print exports sessions for people.
func (c *crew) print(random *rand.Rand) {
	for c.during() {
		for _, format := range []string{"markdown", "html"} {
			err := c.do(func(ctx context.Context) error {
				session, err := c.some(ctx, random)
				if err != nil || session == "" {
					return err
				}
				body, err := c.api.Export(ctx, session, format)
				if err != nil {
					return err
				}
				defer body.Close()
				if _, err := io.ReadAll(body); err != nil {
					return &loquat.Error{Code: loquat.CodeUnavailable, Err: err}
				}
				return nil
			})
			c.judge("export as "+format, err, loquat.CodeNotFound)
			sleep(c.ctx, time.Duration(500+random.IntN(2000))*time.Millisecond)
		}
	}
}

// guess asks for sessions of others. They are answered like sessions that do not exist.
func (c *crew) guess(random *rand.Rand) {
	for c.during() {
		other := c.others()[random.IntN(len(c.others()))]
		other.mu.Lock()
		id := ""
		for id = range other.ids {
			break
		}
		other.mu.Unlock()
		if other != c && id != "" {
			c.judge("guess", c.do(func(ctx context.Context) error { return c.guessAt(ctx, random, id) }))
		}
		sleep(c.ctx, time.Duration(random.IntN(800))*time.Millisecond)
	}
}

func (c *crew) guessAt(ctx context.Context, random *rand.Rand, id string) error {
	routes := [][3]string{
		{"GET", "/sessions/ID", ""}, {"GET", "/sessions/ID/messages", ""}, {"GET", "/sessions/ID/export", ""}, {"GET", "/sessions/ID/queue", ""},
		{"GET", "/events?session_id=ID&since_id=0", ""}, {"GET", "/v1/conversations/conv_ID", ""}, {"GET", "/sessions/ID/alternatives", ""},
		{"POST", "/sessions/ID/send", `{"content": "guessed"}`}, {"POST", "/sessions/ID/fork", `{}`}, {"DELETE", "/sessions/ID", ""},
		{"POST", "/sessions/ID/messages", `{"role": "user", "content": "guessed"}`}, {"GET", "/search?q=kestrel&session_id=ID", ""},
		{"POST", "/v1/responses", `{"model": "hasty", "input": "guessed", "conversation": "conv_ID"}`},
	}
	route := routes[random.IntN(len(routes))]
	status, answer, err := c.call(ctx, route[0], strings.ReplaceAll(route[1], "ID", id), strings.ReplaceAll(route[2], "ID", id))
	switch {
	case err != nil:
		return &loquat.Error{Code: loquat.CodeUnavailable, Err: err}
	case status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests:
		return &loquat.Error{Code: loquat.CodeUnavailable}
	case status == http.StatusBadRequest && route[1] == "/v1/responses": // its body names what does not exist
	case status != http.StatusNotFound:
		return fmt.Errorf("%s %s of another user: %d %s", route[0], route[1], status, answer)
	}
	return nil
}

// device is a paired device that follows a server through its bridge.
type device struct {
	*town
	endpoint string
	token    string
	http     *http.Client
	random   *rand.Rand
}

// pair pairs a device of the person.
func (c *crew) pair(w *town, random *rand.Rand) (*device, error) {
	scope := loquat.NewPairing{}
	if c.name != "" {
		scope = loquat.NewPairing{Scope: "user", User: c.name}
	}
	full := w.people[0]
	var device device
	err := audit.Retry(c.ctx, func() error {
		code, err := full.api.Pair(c.ctx, scope)
		if err != nil {
			return err
		}
		status, answer, err := full.call(c.ctx, http.MethodPost, "/pairing/claim", fmt.Sprintf(`{"code": %q, "device_name": "phone"}`, code.Code))
		if err != nil || status/100 != 2 {
			return fmt.Errorf("claim: %d %s %w", status, answer, err)
		}
		var claimed loquat.ClaimedDevice
		err = json.Unmarshal([]byte(answer), &claimed)
		device.token = claimed.Token
		return err
	})
	device.town, device.random = w, random
	device.endpoint, device.http = "http://"+w.push.Addr()+"/bridge", &http.Client{}
	return &device, err
}

// errGap reports that the bridge does not have the events yet: it was killed, and the server is about to
// connect again.
var errGap = errors.New("the bridge does not have all events")

// follow makes one connection to the bridge and follows for a while.
func (d *device) follow(ctx context.Context, since loquat.EventID, take func(loquat.Event) error) error {
	faults, joined := make(chan error, 1), make(chan struct{})
	over := false // set before joined is closed, and then by OnPush
	dialing, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	socket, err := phx.Dial(dialing, d.endpoint, phx.ClientOptions{HTTPClient: d.http, FrameBytes: 64 << 20, OnPush: func(_, event string, payload json.RawMessage) {
		<-joined
		var body struct{ Event loquat.Event }
		err := json.Unmarshal(payload, &body)
		switch {
		case over || err != nil:
		case event == "gap":
			err = errGap
		case event == "session_event":
			err = take(body.Event)
		}
		if err != nil && !over {
			over = true
			faults <- err
		}
	}})
	if err != nil {
		return err
	}
	defer socket.Close()
	answer, err := socket.Join(dialing, "events:server:"+serverID, map[string]any{"token": d.token, "since_id": since.String(), "session": "omit"})
	over = err != nil || bytes.Contains(answer, []byte(`"gap":true`))
	close(joined)
	if err != nil {
		return err
	}
	if over {
		d.count("gap")
		return errGap
	}
	d.count("join")
	select {
	case <-ctx.Done():
	case <-socket.Context().Done():
	case err = <-faults:
	case <-time.After(time.Duration(1+d.random.IntN(8)) * time.Second):
	}
	return err
}
