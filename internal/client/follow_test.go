package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"loquat"
	"loquat/internal/client"
)

// script simulates a server with a log of events 1…n that breaks connections.
type script struct {
	events  []string // JSON; the id is the place, from 1
	cuts    []int    // bytes after which each stream breaks; afterwards they last
	noSSE   int      // status of /events/stream, 0 when there are streams
	streams int
	polls   int
}

func newScript(n int) *script {
	s := &script{}
	for i := range n {
		s.events = append(s.events, fmt.Sprintf(`{"event_id":"%s","type":"partial","session_id":"s","request_id":"r","message":{"role":"assistant","content":"word %d "}}`, loquat.EventID(i+1), i+1))
	}
	return s
}

func (s *script) roundTrip(r *http.Request) (*http.Response, error) {
	since := 0
	if v := r.URL.Query().Get("since_id"); v != "" {
		since, _ = strconv.Atoi(v)
	}
	switch r.URL.Path {
	case "/prefix/events/stream":
		return s.stream(since)
	case "/prefix/events":
		s.polls++
		if !r.URL.Query().Has("since_id") {
			return answer(200, "application/json", `{"events":[],"latest_event_id":"0000000000000000"}`), nil
		}
		window := s.events[since:min(since+3, len(s.events))]
		return answer(200, "application/json", `{"events":[`+strings.Join(window, ",")+`]}`), nil
	}
	return answer(404, "", ""), nil
}

func (s *script) stream(since int) (*http.Response, error) {
	if s.noSSE != 0 {
		return answer(s.noSSE, "text/plain", ""), nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "id: %s\n\n", loquat.EventID(since))
	for i, e := range s.events[since:] {
		fmt.Fprintf(&b, "id: %s\ndata: %s\n\nevent: heartbeat\ndata: {}\n\n", loquat.EventID(since+i+1), e)
	}
	resp := answer(200, "text/event-stream", "")
	s.streams++
	if s.streams > len(s.cuts) {
		resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(b.String()), stuck{}))
		return resp, nil
	}
	cut := s.cuts[s.streams-1]
	switch {
	case cut < 0:
		return nil, errors.New("refused")
	case cut%2 == 0:
		resp.Body = io.NopCloser(strings.NewReader(b.String()[:min(cut, b.Len())])) // a clean end
	default:
		resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(b.String()[:min(cut, b.Len())]), broken{}))
	}
	return resp, nil
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// stuck is a body without further data. The tests stop reading before that matters.
type stuck struct{}

func (stuck) Read([]byte) (int, error) { return 0, errors.New("read past the end of the script") }

// inOrder follows events 1…n and returns an error if one is missing or out of order.
func inOrder(c *client.Client, n int) error {
	start, want := loquat.EventID(0), loquat.EventID(1)
	for e, err := range c.Follow(context.Background(), client.Query{Since: &start}) {
		switch {
		case err != nil:
			return fmt.Errorf("instead of event %d: %w", want, err)
		case e.EventID != want:
			return fmt.Errorf("event %d came instead of %d", e.EventID, want)
		case int(want) == n:
			return nil
		}
		want++
	}
	return fmt.Errorf("ended before event %d", want)
}

// With any transport, and wherever connections break, each event arrives once and in order.
func TestFollowYieldsEachEventOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newScript(rapid.IntRange(1, 12).Draw(rt, "events"))
		s.cuts = rapid.SliceOfN(rapid.IntRange(-1, 900), 0, 8).Draw(rt, "cuts")
		s.noSSE = rapid.SampledFrom([]int{0, 0, 0, 200, 404, 405, 501}).Draw(rt, "without streams")
		var err error
		synctest.Test(t, func(t *testing.T) { err = inOrder(pretend(t, s.roundTrip, 0), len(s.events)) })
		if err != nil {
			rt.Fatal(err)
		}
		if s.noSSE != 0 && s.polls == 0 {
			rt.Fatal("no poll was made")
		}
	})
}

// A follower reports each change of its connection once, with the time of the next attempt.
func TestFollowReportsItsConnection(t *testing.T) {
	s := newScript(3)
	s.cuts = []int{100, -1, -1, 200}
	var states []client.LineState
	synctest.Test(t, func(t *testing.T) {
		start := loquat.EventID(0)
		q := client.Query{Since: &start, Line: func(s client.LineState) {
			states = append(states, s)
			if !s.Connected && !s.Retry.After(time.Now()) {
				t.Errorf("%+v does not say when", s)
			}
		}}
		for e := range pretend(t, s.roundTrip, 0).Follow(t.Context(), q) {
			if e.EventID == 3 {
				break
			}
		}
	})
	var got []bool
	for _, s := range states {
		got = append(got, s.Connected)
	}
	if want := []bool{true, false, false, false, true, false, true}; !slices.Equal(got, want) {
		t.Errorf("connected: %v, want %v", got, want)
	}
}

// A reconnect resumes from the opening frame of the first stream, even if the first
// connection received no event.
func TestFollowResumesFromOpeningFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		c := pretend(t, func(r *http.Request) (*http.Response, error) {
			asked = append(asked, r.URL.Query().Get("since_id"))
			if len(asked) == 1 {
				return answer(200, "text/event-stream", "id: 0000000000000041\n\n"), nil
			}
			return answer(200, "text/event-stream", "data: {\"type\":\"x\"}\nid: 0000000000000042\n\n"), nil
		}, 0)
		for e, err := range c.FollowJSON(t.Context(), client.Query{SessionID: "s"}) {
			if err != nil || e.ID != 42 || string(e.JSON) != `{"type":"x"}` {
				t.Errorf("got %+v, %v", e, err)
			}
			break
		}
		if len(asked) != 2 || asked[0] != "" || asked[1] != "0000000000000041" {
			t.Errorf("asked from %q", asked)
		}
	})
}

// Without a stream and without Since, a session is followed from the cursor that it has at
// the beginning, not from its cursor at each poll.
func TestPollingDeterminesCursorFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		polls := 0
		c := pretend(t, func(r *http.Request) (*http.Response, error) {
			switch r.URL.Path {
			case "/prefix/sessions/s/messages":
				return answer(200, "application/json", `{"cursor_event_id":"0000000000000007","messages":[]}`), nil
			case "/prefix/events":
				if got := r.URL.Query().Get("since_id"); got != "0000000000000007" {
					t.Errorf("poll from %q", got)
				}
				if polls++; polls < 3 {
					return answer(200, "application/json", `{"events":[]}`), nil
				}
				return answer(200, "application/json", `{"events":[{"event_id":"0000000000000008","type":"final","session_id":"s"}]}`), nil
			}
			return answer(404, "", ""), nil
		}, 0)
		began := time.Now()
		for e, err := range c.Follow(t.Context(), client.Query{SessionID: "s"}) {
			if err != nil || e.EventID != 8 {
				t.Errorf("got %+v, %v", e, err)
			}
			break
		}
		if waited := time.Since(began); waited < 2*time.Second {
			t.Errorf("three polls in %v: an empty answer at once must not make it spin", waited)
		}
	})
}

func TestFollowEnds(t *testing.T) {
	const opening = "id: 0000000000000001\n\n"
	tests := []struct {
		name   string
		answer func() (*http.Response, error)
		want   loquat.Code
	}{
		{"gone", func() (*http.Response, error) {
			return answer(200, "text/event-stream", opening+"event: gone\ndata: {\"detail\":\"swept\"}\n\n"), nil
		}, loquat.CodeGone},
		{"410", func() (*http.Response, error) {
			return answer(410, "application/problem+json", `{"code":"gone"}`), nil
		}, loquat.CodeGone},
		{"refused token", func() (*http.Response, error) {
			return answer(401, "application/problem+json", `{"code":"unauthorized"}`), nil
		}, loquat.CodeUnauthorized},
		{"no event", func() (*http.Response, error) {
			return answer(200, "text/event-stream", opening+"data: {}{\nid: 0000000000000002\n\n"), nil
		}, loquat.CodeInternal},
		{"no id", func() (*http.Response, error) {
			return answer(200, "text/event-stream", "data: {}\nid: 7\n\n"), nil
		}, loquat.CodeInternal},
		{"nobody there", func() (*http.Response, error) { return nil, errors.New("refused") }, loquat.CodeUnavailable},
		{"always cut", func() (*http.Response, error) { return answer(200, "text/event-stream", opening), nil }, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := pretend(t, func(*http.Request) (*http.Response, error) { return tt.answer() }, time.Minute)
				began := time.Now()
				var last error
				for _, err := range c.Follow(t.Context(), client.Query{}) {
					last = err
				}
				if tt.want != "" && loquat.CodeOf(last) != tt.want {
					t.Errorf("ended with %v, want code %s", last, tt.want)
				}
				if last == nil {
					t.Error("ended without an error")
				}
				if took := time.Since(began); took > 2*time.Minute {
					t.Errorf("took %v with a patience of one minute", took)
				}
			})
		})
	}
}

func TestFollowEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := pretend(t, func(*http.Request) (*http.Response, error) { return nil, errors.New("refused") }, 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for _, err := range c.Follow(ctx, client.Query{}) {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("ended with %v", err)
			}
		}
	})
}

// silentBody returns its data and then blocks until its request is cancelled.
type silentBody struct {
	io.Reader
	done <-chan struct{}
}

func (b silentBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		<-b.done
		return 0, errors.New("cancelled")
	}
	return n, err
}

func (silentBody) Close() error { return nil }

func TestSilenceReconnects(t *testing.T) {
	for _, says := range []string{"id: 0000000000000001\n\n", ""} {
		t.Run(fmt.Sprintf("after %q", says), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				c := pretend(t, func(r *http.Request) (*http.Response, error) {
					switch calls++; {
					case calls == 1:
						resp := answer(200, "text/event-stream", "")
						resp.Body = silentBody{strings.NewReader(says), r.Context().Done()}
						return resp, nil
					case strings.HasSuffix(r.URL.Path, "/stream"):
						if says == "" {
							t.Error("a stream that never sent data is tried again")
						}
						return answer(200, "text/event-stream", "data: {}\nid: 0000000000000002\n\n"), nil
					default:
						return answer(200, "application/json", `{"events":[{"event_id":"0000000000000002"}]}`), nil
					}
				}, 0)
				began := time.Now()
				for e, err := range c.FollowJSON(t.Context(), client.Query{RequestID: "r"}) {
					if err != nil || e.ID != 2 {
						t.Errorf("got %+v, %v", e, err)
					}
					break
				}
				if took := time.Since(began); took < client.Silence || took > client.Silence+time.Second {
					t.Errorf("reconnected after %v of silence, want %v", took, client.Silence)
				}
			})
		})
	}
}

// If the log no longer reaches back far enough, the session is loaded again and followed from
// there.
func TestFollowSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loads := 0
		c := pretend(t, func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/prefix/sessions/s" {
				loads++
				return answer(200, "application/json", fmt.Sprintf(`{"session_id":"s","cursor_event_id":"%s","messages":[{"id":"m%d","role":"user","content":"u"}]}`, loquat.EventID(10*loads), loads)), nil
			}
			if q := r.URL.Query(); q.Get("session_id") != "s" || q.Get("session") != "omit" {
				t.Errorf("followed with %s", r.URL.RawQuery)
			}
			switch r.URL.Query().Get("since_id") {
			case "0000000000000010":
				return answer(200, "text/event-stream", "id: 0000000000000011\ndata: {\"event_id\":\"0000000000000011\",\"type\":\"partial\",\"session_id\":\"s\",\"request_id\":\"r\",\"message\":{\"role\":\"assistant\",\"content\":\"dra\"}}\n\nevent: gone\ndata: {}\n\n"), nil
			default:
				return answer(200, "text/event-stream", "id: 0000000000000021\ndata: {\"event_id\":\"0000000000000021\",\"type\":\"session_deleted\",\"session_id\":\"s\"}\n\n"), nil
			}
		}, 0)
		var story []string
		for u, err := range c.FollowSession(t.Context(), "s") {
			if err != nil {
				t.Fatal(err)
			}
			step := "loaded"
			if u.Event != nil {
				step = string(u.Event.Type)
			}
			if d := u.State.Draft(); d != nil {
				step += " " + d.Content
			}
			story = append(story, fmt.Sprintf("%s %d", step, len(u.State.Messages())))
		}
		if got, want := strings.Join(story, ", "), "loaded 1, partial dra 1, loaded 1, session_deleted 0"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func TestFollowSessionGivesUpIfAlwaysGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := pretend(t, func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/prefix/sessions/s" {
				return answer(200, "application/json", `{"session_id":"s","cursor_event_id":"0000000000000001"}`), nil
			}
			return answer(200, "text/event-stream", "event: gone\ndata: {}\n\n"), nil
		}, 0)
		var last error
		for _, err := range c.FollowSession(t.Context(), "s") {
			last = err
		}
		if loquat.CodeOf(last) != loquat.CodeGone {
			t.Errorf("ended with %v", last)
		}
	})
}
