package provider

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// sharedSlots are slots in memory that several pacers share, as nodes share a database.
type sharedSlots struct {
	mu                    sync.Mutex
	slot, started, paused time.Time
	starting              time.Time // until then no other start begins
	reserved, taken       int
	delay                 time.Duration // of each answer
	fail                  error
}

func (s *sharedSlots) locked(fn func(now time.Time) time.Duration) (time.Duration, error) {
	time.Sleep(s.delay)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return 0, s.fail
	}
	return fn(time.Now()), nil
}

func newest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

func (s *sharedSlots) ReserveSlot(_ context.Context, _ string, interval time.Duration) (time.Duration, error) {
	return s.locked(func(now time.Time) time.Duration {
		s.reserved++
		s.slot = newest(now, s.slot.Add(interval), s.started.Add(interval), s.paused)
		return s.slot.Sub(now)
	})
}

func (s *sharedSlots) TakeSlot(_ context.Context, _ string, interval time.Duration) (time.Duration, error) {
	return s.locked(func(now time.Time) time.Duration {
		s.taken++
		if wait := newest(s.started.Add(interval), s.paused).Sub(now); wait > 0 {
			return wait
		}
		if wait := s.starting.Sub(now); wait > 0 {
			return min(interval, wait)
		}
		s.started = now
		if interval > 0 {
			s.starting = now.Add(5 * time.Second)
		}
		return 0
	})
}

func (s *sharedSlots) EndStart(context.Context, string) error {
	_, err := s.locked(func(now time.Time) time.Duration {
		s.started, s.starting = now, time.Time{}
		return 0
	})
	return err
}

func (s *sharedSlots) Pause(_ context.Context, _ string, pause time.Duration) error {
	_, err := s.locked(func(now time.Time) time.Duration {
		s.paused = newest(s.paused, now.Add(pause))
		return 0
	})
	return err
}

func newPacers(slots Slots, n int) []*pacer {
	out := make([]*pacer, n)
	for i := range out {
		out[i] = &pacer{log: slog.New(slog.DiscardHandler), slots: slots}
	}
	return out
}

// starts records when requests start, and on which node.
type starts struct {
	mu    sync.Mutex
	at    []time.Time
	nodes []int
}

func (s *starts) add(node int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.nodes = append(s.at, time.Now()), append(s.nodes, node)
}

// Requests at several nodes start an interval apart, without gaps, and no node waits for ever.
func TestNodesShareSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval = time.Second
		slots := &sharedSlots{}
		var s starts
		var all sync.WaitGroup
		began := time.Now()
		for node, p := range newPacers(slots, 3) {
			for range 20 {
				all.Go(func() {
					if err := p.start(t.Context(), "scope", interval); err != nil {
						t.Error(err)
					}
					s.add(node)
				})
			}
		}
		all.Wait()
		for i, at := range s.at {
			if want := time.Duration(i) * interval; at.Sub(began) != want {
				t.Errorf("start %d after %s, want %s", i, at.Sub(began), want)
			}
		}
		for i := range 50 {
			for node := range 3 {
				if turn := s.nodes[i : i+6]; !slices.Contains(turn, node) {
					t.Errorf("node %d starts nothing while %v start from %d on", node, turn, i)
				}
			}
		}
		if slots.reserved != 60 || slots.taken != 60 {
			t.Errorf("60 starts took %d reservations and %d questions", slots.reserved, slots.taken)
		}
	})
}

// A request that starts late moves the next one, also when that one is at another node.
func TestLateStartsKeepTheirDistance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval = time.Second
		slots := &sharedSlots{}
		p := newPacers(slots, 2)
		var at [3]time.Time
		var all sync.WaitGroup
		for i := range at {
			all.Go(func() {
				if err := p[i%2].start(t.Context(), "scope", interval); err != nil {
					t.Error(err)
				}
				at[i] = time.Now()
			})
			synctest.Wait()
		}
		time.Sleep(500 * time.Millisecond)
		slots.mu.Lock()
		slots.started = slots.started.Add(300 * time.Millisecond) // the first was late
		slots.mu.Unlock()
		all.Wait()
		if got := at[1].Sub(at[0]); got != 1300*time.Millisecond {
			t.Errorf("the second started %s after the first, want 1.3s", got)
		}
		if got := at[2].Sub(at[1]); got < interval {
			t.Errorf("the third started %s after the second", got)
		}
	})
}

// A request whose start takes long, because the process got no CPU or a connection was slow, moves
// the next one. If a connection takes too long, the others start before it, and it waits again.
func TestLongStartsKeepTheirDistance(t *testing.T) {
	const interval = 200 * time.Millisecond
	for _, c := range []struct {
		name string
		took time.Duration // the first start until its connection is made
		want int           // its place in the order: 0, or the earliest one
	}{
		{"shorter than the interval", 134 * time.Millisecond, 0},
		{"longer than the interval", 900 * time.Millisecond, 0},
		{"a little longer than the limit", turnLimit + interval/2, 1},
		{"longer than the limit", 20 * time.Second, 3},
	} {
		for nodes := range 3 { // 0 is one node that shares no slots
			t.Run(fmt.Sprint(c.name, " at nodes: ", nodes), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := newPacers(nil, 1)
					if nodes > 0 {
						p = newPacers(&sharedSlots{}, nodes)
					}
					var s starts
					var all sync.WaitGroup
					for i := range 4 {
						all.Go(func() {
							start, err := p[i%len(p)].wait(t.Context(), "scope", interval)
							if i == 0 {
								time.Sleep(c.took)
							}
							if err := errors.Join(err, start.connected(t.Context())); err != nil {
								t.Error(err)
							}
							time.Sleep(time.Duration(i) * 10 * time.Millisecond) // to write it
							s.add(i)
							start.end()
						})
						synctest.Wait()
					}
					all.Wait()
					for i := range s.at[1:] {
						if apart := s.at[i+1].Sub(s.at[i]); apart < interval {
							t.Errorf("%d started %s after %d", s.nodes[i+1], apart, s.nodes[i])
						}
					}
					if place := slices.Index(s.nodes, 0); place < c.want || c.want == 0 && place > 0 {
						t.Errorf("they start as %v, and request 0 has the place %d, want %d", s.nodes, place, c.want)
					}
				})
			})
		}
	}
}

// A node that dies between the slot and the request delays the others for some seconds.
func TestStartThatNeverEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := &sharedSlots{}
		p := newPacers(slots, 2)
		if wait, err := slots.TakeSlot(t.Context(), "scope", time.Second); wait != 0 || err != nil {
			t.Fatal(wait, err)
		}
		began := time.Now()
		if err := p[1].start(t.Context(), "scope", time.Second); err != nil || time.Since(began) > 6*time.Second {
			t.Errorf("the next one starts after %s, %v", time.Since(began), err)
		}
	})
}

// A start ends when the request is written, and not only when the backend answers.
func TestStartEndsWithTheWrite(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprint("https ", secure), func(t *testing.T) {
			slots := &sharedSlots{}
			ended := func() bool {
				slots.mu.Lock()
				defer slots.mu.Unlock()
				return !slots.started.IsZero() && slots.starting.IsZero()
			}
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for range 1000 {
					if ended() {
						break
					}
					time.Sleep(10 * time.Millisecond)
				}
				if !ended() {
					t.Error("the start of a request that has arrived does not end")
				}
				fmt.Fprint(w, `{}`)
			}))
			if secure {
				server.StartTLS()
			} else {
				server.Start()
			}
			defer server.Close()
			p := New(Options{})
			defer p.Close()
			p.ShareSlots(slots)
			p.client.Transport.(*http.Transport).TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig
			base, err := url.Parse(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			x := exchange{Provider: p, settings: &settings{baseURL: base, timeout: time.Minute, interval: time.Millisecond}, method: http.MethodPost, path: chatPath, paced: true}
			for range 3 { // on one connection
				a, f := x.send(t.Context())
				if f != nil {
					t.Fatal(f)
				}
				_, _ = io.Copy(io.Discard, a)
				a.close()
			}
		})
	}
}

// A request that gives up while it has a slot leaves the slot to the next one of its node.
func TestSlotOfARequestThatGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := &sharedSlots{}
		p := newPacers(slots, 1)[0]
		began := time.Now()
		if err := p.start(t.Context(), "scope", time.Minute); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if err := p.start(ctx, "scope", time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a request that gave up: %v", err)
		}
		if err := p.start(t.Context(), "scope", time.Minute); err != nil || time.Since(began) != time.Minute {
			t.Errorf("the next one starts after %s, %v", time.Since(began), err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = p.start(ctx, "scope", time.Minute)
		time.Sleep(time.Hour) // the slot is over
		reserved := slots.reserved
		if err := p.start(t.Context(), "scope", time.Minute); err != nil || slots.reserved != reserved+1 {
			t.Errorf("a slot of the last hour was used: %v", err)
		}
	})
}

// While the slots cannot be asked, requests wait, and a request that is cancelled does not.
func TestSlotsThatCannotBeAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := &sharedSlots{fail: errors.New("out of reach")}
		p := newPacers(slots, 1)[0]
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		began := time.Now()
		if err := p.start(ctx, "scope", time.Second); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 30*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		started := make(chan error, 1)
		go func() { started <- p.start(t.Context(), "scope", time.Second) }()
		time.Sleep(time.Minute)
		if slots.started != (time.Time{}) {
			t.Error("a request started without a slot")
		}
		before := time.Now()
		if err := p.start(t.Context(), "scope", 0); err != nil || time.Since(before) != 0 {
			t.Errorf("a request without pacing waits %s, %v", time.Since(before), err)
		}
		slots.mu.Lock()
		slots.fail = nil
		slots.mu.Unlock()
		if err := <-started; err != nil || time.Since(before) > time.Second {
			t.Errorf("the waiting request started after %s, %v", time.Since(before), err)
		}
	})
}

// The pause after a 429 holds for the paced requests of all nodes, for a minute at most, and
// also for those that have a slot already.
func TestPauseOfAllNodes(t *testing.T) {
	for name, slots := range map[string]*sharedSlots{"one node": nil, "two nodes": {}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var p []*pacer
				if slots == nil {
					one := newPacers(nil, 1)[0]
					p = []*pacer{one, one}
				} else {
					p = newPacers(slots, 2)
				}
				began := time.Now()
				p[0].pause(t.Context(), "scope", time.Hour) // nothing is paced yet
				for _, p := range p {
					if err := p.start(t.Context(), "scope", time.Second); err != nil {
						t.Fatal(err)
					}
				}
				if took := time.Since(began); took != time.Second {
					t.Fatalf("two requests took %s", took)
				}
				check := func(pause, want time.Duration) {
					t.Helper()
					began := time.Now()
					var s starts
					var all sync.WaitGroup
					for node, p := range p {
						all.Go(func() {
							if err := p.start(t.Context(), "scope", time.Second); err != nil {
								t.Error(err)
							}
							s.add(node)
						})
					}
					synctest.Wait()
					p[0].pause(t.Context(), "scope", pause)
					p[0].pause(t.Context(), "scope", pause/2)
					p[1].pause(t.Context(), "another scope", time.Hour)
					all.Wait()
					if first, second := s.at[0].Sub(began), s.at[1].Sub(began); first != want || second != want+time.Second {
						t.Errorf("in a pause of %s requests started after %s and %s, want %s and a second more", pause, first, second, want)
					}
				}
				check(20*time.Second, 20*time.Second)
				check(time.Hour, time.Minute)
			})
		})
	}
}
