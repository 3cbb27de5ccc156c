package backup

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A follower takes a place over at once from a dead follower of its own data directory, and from one that
// has stopped. It waits whether another one lives, even if its host and its directory have the same
// names. It never continues copies that are newer than its data.
func TestTakeOver(t *testing.T) {
	dir := t.TempDir()
	own, err := thisProcess(dir, "test")
	if err != nil {
		t.Fatal(err)
	}
	own.Server, own.Process = "server", "own"
	other := own
	other.Process, other.DirID, other.Written = "other", "of another directory", time.Unix(1, 0)
	for name, c := range map[string]struct {
		change func(*status) // of what is in the place
		lives  bool          // the other follower writes its status again and again
		waits  bool
		err    string
	}{
		"dead, of this directory":             {change: func(s *status) { s.DirID = own.DirID }},
		"dead, of another directory":          {change: func(*status) {}, waits: true},
		"dead, of an older version":           {change: func(s *status) { s.DirID = "" }, waits: true},
		"dead, of a moved directory":          {change: func(s *status) { s.DirID, s.Dir = own.DirID, "/moved" }, waits: true},
		"dead, of a copy on another host":     {change: func(s *status) { s.DirID, s.Host = own.DirID, "another" }, waits: true},
		"alive, on a host of this name":       {change: func(*status) {}, lives: true, waits: true, err: "another follower writes to test"},
		"stopped, with older events":          {change: func(s *status) { s.Ended, s.Event = true, 9 }},
		"stopped, with the same events":       {change: func(s *status) { s.Ended, s.Event = true, 10 }},
		"stopped, with newer events":          {change: func(s *status) { s.Ended, s.Event = true, 11 }, err: "end at event 0000000000000010, so they are older"},
		"dead, with newer events":             {change: func(s *status) { s.Event = 11 }, err: "up to event 0000000000000011"},
		"stopped, of another server":          {change: func(s *status) { s.Ended, s.Server = true, "another" }, err: "copies of another server"},
		"this directory, but lost its events": {change: func(s *status) { s.DirID, s.Event = own.DirID, 11 }, err: "older than the copies"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				place := &memory{files: map[string][]byte{}}
				found := other
				c.change(&found)
				if err := found.write(t.Context(), place); err != nil {
					t.Fatal(err)
				}
				f := &follower{name: "test", place: place, expiry: statusExpiry, status: own, log: slog.New(slog.DiscardHandler)}
				f.event.Store(10)
				done, began := make(chan error, 1), time.Now()
				go func() { done <- f.takeOver(t.Context()) }()
				if c.lives {
					time.Sleep(statusEvery + time.Millisecond)
					found.Written = time.Unix(2, 0)
					if err := found.write(t.Context(), place); err != nil {
						t.Fatal(err)
					}
				}
				err := <-done
				if (c.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.err) {
					t.Errorf("%v, want %q", err, c.err)
				}
				if waited := time.Since(began) > 0; waited != c.waits {
					t.Errorf("waited: %t", waited)
				}
			})
		})
	}
}
