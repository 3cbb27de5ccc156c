package store

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"loquat"
)

// A database that several nodes share may stop to answer: its machine is paused, the network
// swallows everything, or another node keeps the log locked. The changes that the committer is
// writing then wait until their outcome is known. Those in the queue have not begun, so they can
// be refused early.

// refuseAfter is how long the committer may wait for one answer of the database before the
// changes in the queue are refused.
const refuseAfter = 5 * time.Second

// silence knows how long the committer has been waiting for an answer.
type silence struct{ since atomic.Int64 } // Unix nanoseconds; 0 if it is not waiting

// asked notes that the committer waits for an answer from now on.
func (s *silence) asked() {
	if s != nil {
		s.since.Store(time.Now().UnixNano())
	}
}

// idle notes that the committer waits for no answer.
func (s *silence) idle() { s.since.Store(0) }

// lasts reports whether the database has been silent for refuseAfter.
func (s *silence) lasts() bool {
	since := s.since.Load()
	return since != 0 && time.Since(time.Unix(0, since)) >= refuseAfter
}

// faultSilent is the fault of a database that does not answer.
var faultSilent = Fault{Kind: "silent", Text: "the database does not answer", Remedy: "look at its machine, the network, and locks in the database: the server goes on by itself"}

// refuseWhileSilent refuses the changes in the queue while the database is silent.
func (s *Store) refuseWhileSilent(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if !s.silent.lasts() {
			continue
		}
		s.failing.Store(&faultSilent) // until writes succeed
		s.faults.Log(slog.LevelError, "the store fails: "+faultSilent.Text, "remedy", faultSilent.Remedy)
		for s.refuseWaiting(refusal(faultSilent, nil)) > 0 {
		}
	}
}

// refusal returns the error of a change of which nothing was kept.
func refusal(f Fault, cause error) *loquat.Error {
	return &loquat.Error{
		Code: loquat.CodeUnavailable, Err: cause,
		Detail: "the store cannot write at the moment: " + f.Text + "; nothing of this change was kept, try again",
	}
}
