package httpapi

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"loquat"
	"loquat/internal/auth"
	"loquat/internal/config"
	"loquat/internal/feed"
)

func testInflight() *inflightLimits {
	return newInflightLimits(config.NewLive(&config.Config{Limits: config.Limits{MaxFollowers: 3, MaxFollowersPerToken: 2, MaxInflightBytes: 3 << 20, MaxInflightBytesPerToken: 2 << 20}}))
}

// held returns what all calls hold.
func (in *inflightLimits) held() (n int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for h := range in.holds {
		n += h.bytes.Load()
	}
	return n
}

// join follows the log as a token. cuts counts how often the call is cut off.
func join(t *testing.T, in *inflightLimits, token string, cuts *int) (*hold, func()) {
	t.Helper()
	h, done, err := in.follow(auth.Principal{ID: token}, func() { *cuts++ })
	if err != nil {
		t.Fatal(err)
	}
	return h, done
}

func TestFollowersAreBounded(t *testing.T) {
	in, cuts := testInflight(), 0
	_, done1 := join(t, in, "a", &cuts)
	_, done2 := join(t, in, "a", &cuts)
	if _, _, err := in.follow(auth.Principal{ID: "a"}, nil); loquat.CodeOf(err) != loquat.CodeRateLimited || !strings.Contains(err.Error(), "limits.max_followers_per_token") {
		t.Errorf("a third of one token: %v", err)
	}
	_, done3 := join(t, in, "b", &cuts)
	if _, _, err := in.follow(auth.Principal{ID: "c"}, nil); loquat.CodeOf(err) != loquat.CodeUnavailable || !strings.Contains(err.Error(), "limits.max_followers;") && !strings.HasSuffix(err.Error(), "limits.max_followers") {
		t.Errorf("a fourth in all: %v", err)
	}
	done1()
	_, done4 := join(t, in, "c", &cuts)
	for _, done := range []func(){done2, done3, done4} {
		done()
	}
	if len(in.by) != 0 || len(in.holds) != 0 || in.followers != 0 {
		t.Errorf("after all have ended: %d followers, %d tokens", in.followers, len(in.by))
	}
}

// The bytes that clients have not read are bounded, for each token and in total. A client
// that does not read is disconnected when another needs the memory. One that reads is not, and
// neither is one whose events are still read from the log.
func TestBytesInFlightAreBounded(t *testing.T) {
	const (
		mb = 1 << 20

		silent  = "read nothing"
		reading = "read"
		waiting = "have nothing to read yet"
	)
	for _, tt := range []struct {
		name    string
		tokens  []string // of calls
		bytes   []int64  // that each of them holds
		clients string   // what they do
		cut     int      // which one is cut off; -1: none
		code    loquat.Code
	}{
		{"there is room", []string{"a"}, []int64{mb}, silent, -1, ""},
		{"one call is always allowed", []string{"b"}, []int64{9 * mb}, silent, 0, ""},
		{"small windows are free", []string{"a", "a"}, []int64{freeBytes, freeBytes}, silent, -1, ""},
		{"of the token, the one that reads nothing", []string{"a", "b"}, []int64{2 * mb, mb}, silent, 0, ""},
		{"of the token, all read", []string{"a"}, []int64{2 * mb}, reading, -1, loquat.CodeRateLimited},
		{"in all, the one that reads nothing", []string{"b", "c"}, []int64{2 * mb, mb}, silent, 0, ""},
		{"of the token, all wait for the log", []string{"a"}, []int64{2 * mb}, waiting, -1, loquat.CodeRateLimited},
		{"in all, all wait for the log", []string{"b", "c"}, []int64{2 * mb, mb}, waiting, -1, loquat.CodeUnavailable},
		{"in all, all read", []string{"b", "c"}, []int64{2 * mb, mb}, reading, -1, loquat.CodeUnavailable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in, cuts := testInflight(), make([]int, len(tt.tokens))
				in.limits = func() config.Limits { return config.Limits{MaxFollowers: 9, MaxFollowersPerToken: 9} }
				stop := make(chan struct{})
				defer synctest.Wait()
				defer close(stop)
				for i, token := range tt.tokens {
					var h *hold
					var done func()
					h, done, err := in.follow(auth.Principal{ID: token}, func() {
						cuts[i]++
						go done() // in the handler, whose write fails
					})
					if err != nil {
						t.Fatal(err)
					}
					if err := h.reserve(t.Context(), tt.bytes[i]); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Millisecond) // later ones were silent for less long
					h.beginWrite()
					if tt.clients == waiting {
						h.endWrite()
					}
					if tt.clients == reading {
						go func() {
							for {
								select {
								case <-time.After(stuckAfter / 2):
									h.beginWrite()
								case <-stop:
									return
								}
							}
						}()
					}
				}
				var own int
				h, done := join(t, in, "a", &own)
				defer done()
				began := time.Now()
				err := h.reserve(t.Context(), mb)
				if loquat.CodeOf(err) != tt.code && (err != nil || tt.code != "") {
					t.Errorf("after %s: %v, want %q", time.Since(began), err, tt.code)
				}
				for i, n := range cuts {
					if (n > 0) != (i == tt.cut) {
						t.Errorf("call %d is cut off %d times", i, n)
					}
				}
				if n := in.held(); n > 3*mb {
					t.Errorf("%d bytes are held", n)
				}
			})
		})
	}
}

// A window is read again when it turns out to be larger than was reserved, and nothing is
// held while a call waits for events.
func TestWindowsAreReserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, cuts := testInflight(), 0
		other, done := join(t, in, "a", &cuts)
		defer done()
		if err := other.reserve(t.Context(), 1<<20); err != nil {
			t.Fatal(err)
		}
		h, end := join(t, in, "a", &cuts)
		defer end()
		reads := 0
		read := func(ctx context.Context) (feed.Window, error) {
			if reads++; reads == 1 {
				if err := h.reserveRead(ctx, 1<<20); err != nil {
					return feed.Window{}, err
				}
				if err := h.reserveRead(ctx, 0); err != nil || in.held() != 1<<20 {
					t.Errorf("while it waits, %d bytes are held, %v", in.held(), err)
				}
				go func() {
					time.Sleep(stuckAfter / 2)
					done()
				}()
			}
			return feed.Window{Events: []loquat.Record{{Body: make([]byte, 2<<20)}}}, nil
		}
		w, err := h.window(t.Context(), read)
		if err != nil || reads != 2 || len(w.Events) != 1 || in.held() != 2<<20 {
			t.Errorf("%d reads, %d events, %d bytes are held, %v", reads, len(w.Events), in.held(), err)
		}
		synctest.Wait()
	})
}
