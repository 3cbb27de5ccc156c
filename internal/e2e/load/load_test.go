package load_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"loquat"
	"loquat/internal/backoff"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

// load is a run of many sessions that stream at once, and of those who follow.
type load struct {
	sessions, chunks, rate int // chunks per second in each session
	pollers, followers     int // followers follow five sessions each
}

const followed = 5

// Every client's fold of what it follows equals what is stored, whatever its way of
// following and however far it lags; nothing leaks and memory stays flat. With
// LOQUAT_TEST_STORE=postgres the clients, and the requests that they follow, are spread over three
// servers on one database.
func TestManyFollowers(t *testing.T) {
	l := load{sessions: 200, chunks: 500, rate: 50, pollers: 10, followers: 40}
	if testing.Short() {
		l = load{sessions: 40, chunks: 100, rate: 50, pollers: 4, followers: 8}
	}
	l.chunks = binary.Number(t, "LOQUAT_LOAD_SECONDS", l.chunks/l.rate) * l.rate
	c := startCrowd(t, l)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	warmUp(ctx, t, c)
	idle := make([]map[string]float64, len(c.servers))
	for i, server := range c.servers {
		idle[i] = binary.Metrics(t, server.URL)
	}

	begin, err := c.at(0).Events(ctx, client.Query{})
	if err != nil {
		t.Fatal(err)
	}
	sessions := make([]string, l.sessions)
	for i := range sessions {
		s, err := c.at(i).CreateSession(ctx, loquat.NewSession{})
		if err != nil {
			t.Fatal(err)
		}
		sessions[i] = s.SessionID
	}
	var all sync.WaitGroup
	folds := make(chan map[string]*loquat.Fold, l.pollers+l.followers)
	c.follow(ctx, t, &all, sessions, begin.LatestEventID, folds)
	checkMemory := c.watchMemory(ctx, t, idle)
	for i, id := range sessions {
		all.Go(func() {
			content := "go on"
			if _, err := c.at(i).Send(ctx, id, loquat.Send{Content: &content, Stream: new(true)}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	close(folds)
	checkFolds(ctx, t, c, folds, sessions)
	c.closeIdleConnections()
	checkMemory()
}

// crowd is a load on servers that share the sessions.
type crowd struct {
	load
	servers []*binary.Process
	clients []*client.Client // of the servers
}

// startCrowd starts a scripted backend and servers on it, each a process of its own. The default
// model streams as the load says.
func startCrowd(t *testing.T, l load) *crowd {
	t.Helper()
	backend := binary.Start(t, nil, "backend", "--listen", "127.0.0.1:0")
	c := &crowd{load: l}
	c.servers = binary.StartServers(t, 3, fmt.Sprintf(`{"providers": {"main": {"provider": "reference_generic_compatible", "model": "lorem", "base_url": "%s/v1",
		"request_options": {"loquat_script": {"chunks": %d, "rate": %d, "chunk_bytes": 6}}}}}`, backend.URL, l.chunks, l.rate))
	for _, server := range c.servers {
		c.clients = append(c.clients, binary.NewClient(t, server.URL))
	}
	return c
}

// follow starts clients that follow sessions until a request of each has ended.
func (c *crowd) follow(ctx context.Context, t *testing.T, all *sync.WaitGroup, sessions []string, since loquat.EventID, folds chan<- map[string]*loquat.Fold) {
	start := func(i int, follow func(*client.Client) (map[string]*loquat.Fold, error)) {
		all.Go(func() {
			own, err := client.New(c.servers[i%len(c.servers)].URL, client.Options{HTTPClient: &http.Client{Transport: &http.Transport{}}})
			if err != nil {
				t.Error(err)
				return
			}
			defer own.CloseIdleConnections()
			got, err := follow(own)
			if err != nil {
				t.Error(err)
				return
			}
			folds <- got
		})
	}
	for i := range c.pollers {
		start(i, func(own *client.Client) (map[string]*loquat.Fold, error) {
			return pollAll(ctx, own, since, len(sessions))
		})
	}
	for i := range c.followers {
		start(i, func(own *client.Client) (map[string]*loquat.Fold, error) {
			return followSome(ctx, own, sessionsOf(sessions, i), since, i%2 == 0)
		})
	}
}

// at returns the client for the i-th of some calls, which are spread over the servers.
func (c *crowd) at(i int) *client.Client { return c.clients[i%len(c.clients)] }

func (c *crowd) closeIdleConnections() {
	for _, one := range c.clients {
		one.CloseIdleConnections()
	}
}

// warmUp sends as many requests at once as the run will, so that the connections to the
// backend that are kept for later are there before anything is counted.
func warmUp(ctx context.Context, t *testing.T, c *crowd) {
	t.Helper()
	overrides := map[string]any{"model": "echo", "request_options": map[string]any{"loquat_script": map[string]any{"delay_ms": 3000, "chunks": 1}}}
	var all sync.WaitGroup
	for i := range c.sessions {
		all.Go(func() {
			s, err := c.at(i).CreateSession(ctx, loquat.NewSession{Metadata: loquat.Object{}.Set("overrides", overrides)})
			if err != nil {
				t.Error(err)
				return
			}
			content := "warm up"
			sent, err := c.at(i).Send(ctx, s.SessionID, loquat.Send{Content: &content})
			if err != nil {
				t.Error(err)
				return
			}
			binary.FollowRequest(ctx, t, c.at(i), sent.RequestID)
		})
	}
	all.Wait()
	c.closeIdleConnections()
	time.Sleep(200 * time.Millisecond)
}

// sessionsOf returns the sessions that follower i follows.
func sessionsOf(sessions []string, i int) []string {
	var mine []string
	for k := range followed {
		mine = append(mine, sessions[(i*followed+k)%len(sessions)])
	}
	slices.Sort(mine)
	return slices.Compact(mine)
}

// pollAll polls everything, without waiting, until so many requests have ended.
func pollAll(ctx context.Context, c *client.Client, since loquat.EventID, requests int) (map[string]*loquat.Fold, error) {
	folds := map[string]*loquat.Fold{}
	for requests > 0 {
		w, err := c.Events(ctx, client.Query{Since: &since, OmitSession: true, Limit: 5000})
		if err != nil {
			return nil, fmt.Errorf("poll: %w", err)
		}
		for _, e := range w.Events {
			f := folds[e.SessionID]
			if f == nil {
				f = binary.EmptyFold(e.SessionID)
				folds[e.SessionID] = f
			}
			f.Apply(e)
			since = e.EventID
			if e.Type == loquat.RequestCompleted {
				requests--
			}
		}
		if len(w.Events) < 5000 {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	return folds, nil
}

// followSome follows sessions side by side, by Server-Sent Events or by long poll.
func followSome(ctx context.Context, c *client.Client, sessions []string, since loquat.EventID, stream bool) (map[string]*loquat.Fold, error) {
	folds := map[string]*loquat.Fold{}
	errs := make(chan error, len(sessions))
	for _, id := range sessions {
		f := binary.EmptyFold(id)
		folds[id] = f
		go func() {
			if stream {
				errs <- followStream(ctx, c, f, client.Query{SessionID: id, Since: &since, OmitSession: true})
			} else {
				errs <- followPolls(ctx, c, f, client.Query{SessionID: id, Since: &since, OmitSession: true, Wait: 20 * time.Second})
			}
		}()
	}
	var first error
	for range sessions {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return folds, first
}

func followStream(ctx context.Context, c *client.Client, f *loquat.Fold, q client.Query) error {
	for e, err := range c.Follow(ctx, q) {
		if err != nil {
			return fmt.Errorf("stream: %w", err)
		}
		f.Apply(e)
		if e.Type == loquat.RequestCompleted {
			return nil
		}
	}
	return ctx.Err()
}

func followPolls(ctx context.Context, c *client.Client, f *loquat.Fold, q client.Query) error {
	at := *q.Since
	q.Since = &at
	for ctx.Err() == nil {
		w, err := c.Events(ctx, q)
		if err != nil {
			return fmt.Errorf("long poll: %w", err)
		}
		for _, e := range w.Events {
			f.Apply(e)
			at = e.EventID
			if e.Type == loquat.RequestCompleted {
				return nil
			}
		}
	}
	return ctx.Err()
}

func checkFolds(ctx context.Context, t *testing.T, c *crowd, folds chan map[string]*loquat.Fold, sessions []string) {
	t.Helper()
	stored := map[string][]byte{}
	for i, id := range sessions {
		s, err := c.at(i+1).Session(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Messages) != 2 || len(s.Messages[1].Content) < c.chunks {
			t.Errorf("session %s has %d messages, the last of %d bytes", id, len(s.Messages), len(s.Messages[len(s.Messages)-1].Content))
		}
		stored[id] = binary.MustJSON(t, s.Messages)
	}
	clients, compared := 0, 0
	for byClient := range folds {
		clients++
		for id, f := range byClient {
			compared++
			if got := binary.MustJSON(t, f.Messages()); !binary.SameJSON(got, stored[id]) {
				t.Errorf("session %s folds to\n%.300s\nstored is\n%.300s", id, got, stored[id])
			}
			if f.Draft() != nil {
				t.Errorf("a draft of session %s is left", id)
			}
		}
	}
	t.Logf("%d clients, %d folds, all compared to %d stored sessions", clients, compared, len(sessions))
}

// watchMemory samples the memory of the servers until check is called, which compares the servers
// with what they were when they were idle.
func (c *crowd) watchMemory(ctx context.Context, t *testing.T, idle []map[string]float64) (check func()) {
	ctx, cancel := context.WithCancel(ctx)
	memory := make([][]float64, len(c.servers))
	var watches sync.WaitGroup
	for i, server := range c.servers {
		watches.Go(func() {
			for ctx.Err() == nil {
				_ = backoff.Sleep(ctx, 500*time.Millisecond)
				memory[i] = append(memory[i], binary.Metrics(t, server.URL)["process_resident_memory_bytes"])
			}
		})
	}
	return func() {
		cancel()
		watches.Wait()
		for i, server := range c.servers {
			binary.CheckLeaks(t, server.URL, idle[i], memory[i])
		}
	}
}
