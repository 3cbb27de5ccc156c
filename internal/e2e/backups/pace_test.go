package backups_test

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

const (
	pacePause  = 50 * time.Millisecond
	paceKept   = 5 * time.Second
	pacePieces = 4 // pieces of work that a copy needs, at most
)

// pace measures again and again how long a piece of work takes that is like those of a copy: to compute, and to
// write to the disk. So a bound in seconds holds on a machine that is busy with other work too.
type pace struct {
	mu     sync.Mutex
	recent []paceMark
}

type paceMark struct {
	at   time.Time
	took time.Duration
}

// startPace measures until the test ends, with a file in dir.
func startPace(t *testing.T, dir string) *pace {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "pace"))
	if err != nil {
		t.Fatal(err)
	}
	p := &pace{}
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		work := make([]byte, 1<<20)
		for {
			began := time.Now()
			sum := sha256.Sum256(work)
			_, err := f.WriteAt(sum[:], 0)
			if err == nil {
				err = f.Sync()
			}
			if err != nil {
				t.Error(err)
				return
			}
			p.note(paceMark{began, time.Since(began)})
			select {
			case <-done:
				return
			case <-time.After(pacePause):
			}
		}
	})
	t.Cleanup(func() {
		close(done)
		running.Wait()
		f.Close()
	})
	return p
}

func (p *pace) note(m paceMark) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recent = append(p.recent, m)
	for m.at.Sub(p.recent[0].at) > paceKept {
		p.recent = p.recent[1:]
	}
}

// delay returns how long the pieces of a copy may have taken in the last seconds.
func (p *pace) delay() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	var slowest time.Duration
	for _, m := range p.recent {
		slowest = max(slowest, m.took)
	}
	return pacePieces * slowest
}
