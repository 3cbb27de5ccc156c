package auth

import (
	"context"
	"sync"
	"time"

	"loquat"
)

// Bounds of the checks whether the copy is current.
const (
	checkEvery   = 10 * time.Millisecond // however many unknown tokens are shown
	updateWithin = 2 * time.Second
)

// load replaces the copy by what is stored. The credentials that are not stored stay. The
// caller holds k.writing, so that a change of this node cannot be lost in between.
func (k *Keeper) load(ctx context.Context) error {
	stored, err := k.store.LoadCredentials(ctx)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var own []loquat.Credential
	for _, key := range k.byID {
		if key.Kind == loquat.CredentialConfig || key.Kind == loquat.CredentialProcess {
			own = append(own, *key)
		}
	}
	clear(k.keys)
	clear(k.byID)
	clear(k.browsers)
	clear(k.codes)
	k.add(stored.Credentials)
	k.add(own)
	for _, code := range stored.Codes {
		k.codes[code.Public] = code
	}
	k.revision = stored.Revision
	k.noteChange()
	return nil
}

// update loads the copy again if it is not current.
func (k *Keeper) update(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, updateWithin)
	defer cancel()
	revision, err := k.shared.CredentialsRevision(ctx)
	if err != nil || k.isAt(revision) {
		return err
	}
	k.writing.Lock()
	defer k.writing.Unlock()
	if k.isAt(revision) {
		return nil
	}
	return k.load(ctx)
}

func (k *Keeper) isAt(revision int64) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.revision == revision
}

// checks runs one check at a time whether the copy is current. Callers that come while a
// check runs share the next one.
type checks struct {
	mu      sync.Mutex
	running bool
	next    *check // the one that callers wait for; nil if there is none
}

// check is one check. err may be read once done is closed.
type check struct {
	done chan struct{}
	err  error
}

// refresh makes sure that the copy has every change that was stored before the call. It fails
// with CodeUnavailable if the store cannot be asked.
func (k *Keeper) refresh(ctx context.Context) error {
	if k.shared == nil {
		return nil
	}
	k.checks.mu.Lock()
	if k.checks.next == nil {
		k.checks.next = &check{done: make(chan struct{})}
	}
	c := k.checks.next
	if !k.checks.running {
		k.checks.running = true
		go k.runChecks()
	}
	k.checks.mu.Unlock()
	select {
	case <-c.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if c.err != nil {
		return &loquat.Error{Code: loquat.CodeUnavailable, Detail: "the store cannot be asked for tokens and devices at the moment; try again", Err: c.err}
	}
	return nil
}

// runChecks runs checks until nobody waits for another one.
func (k *Keeper) runChecks() {
	for {
		k.checks.mu.Lock()
		c := k.checks.next
		k.checks.next, k.checks.running = nil, c != nil
		k.checks.mu.Unlock()
		if c == nil {
			return
		}
		c.err = k.update(context.Background())
		close(c.done)
		time.Sleep(checkEvery)
	}
}
