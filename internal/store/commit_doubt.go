package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Doubt is implemented by an error of Driver.Write that does not say whether the transaction
// committed: the connection was cut while COMMIT ran.
type Doubt interface {
	error
	// Resolve finds out whether the transaction committed. An error means that this is still
	// not known.
	Resolve(ctx context.Context) (committed bool, err error)
}

// resolveTimeout is how long one attempt to resolve a Doubt may take.
const resolveTimeout = 10 * time.Second

// errUnresolved reports a batch for which it is unknown whether it committed.
var errUnresolved = errors.New("the outcome of the commit is not known")

// resolve finds out whether a batch committed, and returns nil if it did. The callers of the
// batch's updates wait until then, because an earlier answer would be a guess. Meanwhile other
// updates are refused. It gives up at a failed attempt after Leave.
func (s *Store) resolve(doubt Doubt) error {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), resolveTimeout)
		committed, err := doubt.Resolve(ctx)
		cancel()
		switch {
		case err == nil && committed:
			return nil
		case err == nil:
			return fmt.Errorf("not committed: %s", doubt)
		}
		refusal := s.unavailable(err)
		if s.leaving.Load() {
			return errors.Join(errUnresolved, err)
		}
		s.refuseWaiting(refusal)
		time.Sleep(probeEvery / 4)
	}
}

// Leave tells the store that the server stops and waits no longer for the database: if it is not
// known whether a commit was kept, the store asks once more, for up to 10 s, and then tells the
// callers so. Everything else goes on as before.
func (s *Store) Leave() { s.leaving.Store(true) }

// refuseWaiting ends updates in the queue with an error, and returns how many it took from the
// queue. None of them has started.
func (s *Store) refuseWaiting(err error) int {
	taken := s.gather(nil, maxBatch)
	for _, u := range taken {
		if u.state.CompareAndSwap(waiting, started) {
			u.err = err
			close(u.done)
		}
	}
	return len(taken)
}
