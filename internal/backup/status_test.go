package backup

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"loquat"
)

// A follower takes a place over at once from a dead follower of its own data directory, and from one that
// has stopped. It waits whether another one lives, even if its host and its directory have the same
// names. It never continues copies that are newer than its data.
func TestTakeOver(t *testing.T) {
	dir := t.TempDir()
	own, err := thisProcess(dir)
	if err != nil {
		t.Fatal(err)
	}
	if own.DirID, err = dirID(dir, "test"); err != nil {
		t.Fatal(err)
	}
	if again, err := dirID(dir, "test"); again != own.DirID || err != nil {
		t.Errorf("the directory has the ids %s and %s (%v)", own.DirID, again, err)
	}
	own.Server, own.Process, own.Event = "server", "own", 10
	other := own
	other.Process, other.DirID, other.Written = "other", "of another directory", time.Unix(1, 0)
	for name, c := range map[string]struct {
		change func(*status) // of what is in the place
		lives  bool          // the other follower writes its status again
		ends   bool          // and says there that it has ended, with newer events
		waits  bool
		err    string
	}{
		"dead, of this directory":             {change: func(s *status) { s.DirID = own.DirID }},
		"dead, of another directory":          {change: func(*status) {}, waits: true},
		"dead, of an older version":           {change: func(s *status) { s.DirID = "" }, waits: true},
		"dead, of a moved directory":          {change: func(s *status) { s.DirID, s.Dir = own.DirID, "/moved" }, waits: true},
		"dead, of a copy on another host":     {change: func(s *status) { s.DirID, s.Host = own.DirID, "another" }, waits: true},
		"alive, on a host of this name":       {change: func(*status) {}, lives: true, waits: true, err: "another follower writes to test"},
		"ends while it is waited for":         {change: func(*status) {}, lives: true, ends: true, waits: true, err: "older than the copies"},
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
				done, began := make(chan error, 1), time.Now()
				go func() { done <- f.takeOver(t.Context()) }()
				if c.lives {
					time.Sleep(statusEvery + time.Millisecond)
					found.Written = time.Unix(2, 0)
					if c.ends {
						found.Ended, found.Event = true, 11
					}
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

// A follower whose place was taken over while it could not reach it copies nothing more, also when the other
// one has stopped since.
func TestTakenOver(t *testing.T) {
	dir, place := t.TempDir(), &memory{files: map[string][]byte{}}
	s := openStore(t, dir)
	write(t, s, "a")
	f := newTestFollower(t, dir, place)
	if err := f.step(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	other := f.status
	other.Process, other.Event, other.Ended = "other", s.Last()+1, true
	if err := other.write(t.Context(), place); err != nil {
		t.Fatal(err)
	}
	write(t, s, "b")
	f.written.Store(time.Now().Add(-time.Hour).UnixMilli())
	files := len(place.files)
	if err := f.step(t.Context(), time.Now()); err == nil || !strings.Contains(err.Error(), "another follower writes to test") {
		t.Errorf("the follower goes on: %v", err)
	}
	if err := f.leave(t.Context()); err != nil || len(place.files) != files {
		t.Errorf("%d files, and there were %d (%v)", len(place.files), files, err)
	}
	if now, err := readStatus(t.Context(), place); err != nil || now.Process != "other" {
		t.Errorf("the status is that of %+v (%v)", now, err)
	}
}

// The status has the last event of what is copied, not of what is still to be copied.
func TestEventOfTheStatus(t *testing.T) {
	dir, place := t.TempDir(), &memory{files: map[string][]byte{}}
	s := openStore(t, dir)
	write(t, s, "a")
	f := newTestFollower(t, dir, place)
	says := func(want loquat.EventID) {
		t.Helper()
		if err := f.writeStatus(t.Context()); err != nil {
			t.Fatal(err)
		}
		if now, err := readStatus(t.Context(), place); err != nil || now.Event != want {
			t.Errorf("the status has the event %s, want %s (%v)", now.Event, want, err)
		}
	}
	says(0)
	if err := f.step(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	says(s.Last())
	if err := f.tracker.Close(); err != nil {
		t.Fatal(err)
	}
	copied := s.Last()
	write(t, s, "b")
	f = newTestFollower(t, dir, place)
	says(copied)
}
