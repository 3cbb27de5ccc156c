//go:build unix

package together_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"

	"loquat/internal/e2e/binary"
	"loquat/internal/faultproxy"
)

// The pauses between two faults of a kind, on average.
const (
	nodePause     = 4 * time.Second
	partPause     = 2 * time.Second
	networkPause  = 1500 * time.Millisecond
	databasePause = 12 * time.Second
	longSilence   = 12 * time.Second // longer than the lease of a node
)

// faults are what breaks during an act. Each kind has a goroutine, which ends with everything whole again.
type faults struct {
	*town
	stop    chan struct{}
	running sync.WaitGroup
}

// breakThings starts the faults of an act. Its result ends them.
func (w *town) breakThings(seed uint64, a act) (stop func()) {
	f := &faults{town: w, stop: make(chan struct{})}
	kinds := []func(*rand.Rand){f.breakParts, f.breakNetwork}
	if !a.calm {
		kinds = append(kinds, f.killNodes)
	}
	if w.database != nil {
		kinds = append(kinds, f.killDatabase)
	}
	for i, kind := range kinds {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		f.running.Go(func() { kind(random) })
	}
	return func() {
		close(f.stop)
		f.running.Wait()
	}
}

// pause waits, and returns false if the faults are to end.
func (f *faults) pause(d time.Duration) bool {
	select {
	case <-f.stop:
		return false
	case <-time.After(d):
		return true
	}
}

// about returns a random time whose average is d.
func about(random *rand.Rand, d time.Duration) time.Duration {
	return d/2 + time.Duration(random.Int64N(int64(d)))
}

// killNodes kills a node now and then: sometimes while it stops, and sometimes it stays dead for longer than
// its lease. On a slow machine, where nodes start slowly, it kills less often.
func (f *faults) killNodes(random *rand.Rand) {
	for pause := nodePause; f.pause(about(random, pause)); {
		m := f.nodes[random.IntN(len(f.nodes))]
		if random.IntN(6) == 0 {
			_ = m.Now().Cmd.Process.Signal(syscall.SIGTERM)
			f.pause(time.Duration(random.Int64N(int64(500 * time.Millisecond))))
		}
		m.Kill()
		f.count("node")
		dead := time.Duration(random.Int64N(int64(time.Second)))
		if len(f.nodes) > 1 && random.IntN(6) == 0 {
			dead = longSilence
		}
		f.pause(dead)
		began := time.Now()
		f.revive(m)
		pause = nodePause + 2*time.Since(began)
	}
}

// breakParts kills what the nodes depend on, except for the database: the backend, the bridge, a plugin, the
// receivers of webhooks, or what makes backups.
func (f *faults) breakParts(random *rand.Rand) {
	for f.pause(about(random, partPause)) {
		switch random.IntN(5) {
		case 0:
			f.killPart("backend", f.backend, random)
		case 1:
			f.killPart("bridge", f.bridge, random)
		case 2:
			f.killPlugin(random.IntN(1 << 20))
		case 3:
			for _, r := range f.receivers {
				r.Kill()
			}
			f.count("receivers")
			f.pause(time.Duration(random.Int64N(int64(2 * time.Second))))
			for _, r := range f.receivers {
				if err := r.Revive(); err != nil {
					f.t.Error(err)
				}
			}
		default:
			if f.copier != nil {
				f.copier.kill()
				f.count("copier")
			}
		}
	}
}

func (f *faults) killPart(name string, m *binary.Mover, random *rand.Rand) {
	m.Kill()
	f.count(name)
	f.pause(time.Duration(random.Int64N(int64(time.Second))))
	f.revive(m)
}

// killDatabase stops the database at once, as pg_ctl does in its mode immediate, or kills all of its
// processes, and starts it again.
func (f *faults) killDatabase(random *rand.Rand) {
	for f.pause(about(random, databasePause)) {
		var err error
		f.restarts.Add(1)
		if random.IntN(2) == 0 {
			if err = f.database.Signal(syscall.SIGQUIT); err == nil {
				f.database.Stop()
			}
		} else {
			err = f.database.Kill()
		}
		f.count("database")
		f.pause(time.Duration(random.Int64N(int64(time.Second))))
		if err == nil {
			err = f.database.Restart()
		}
		f.restarts.Add(1)
		if err != nil {
			f.t.Errorf("restart the database: %v", err)
			return
		}
	}
}

// lines are all parts of the network.
func (w *town) lines() []*faultproxy.Proxy {
	return slices.Concat(w.fronts, w.databases, []*faultproxy.Proxy{w.below, w.push})
}

// breakNetwork lets some lines fall silent now and then, in addition to their own faults.
func (f *faults) breakNetwork(random *rand.Rand) {
	for f.pause(about(random, networkPause)) {
		list := f.lines()
		random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		list = list[:1+random.IntN(2)]
		silent := time.Duration(100+random.IntN(1500)) * time.Millisecond
		if random.IntN(20) == 0 {
			silent = longSilence
		}
		for _, l := range list {
			l.Block()
		}
		f.count("silence")
		f.pause(silent)
		for _, l := range list {
			l.Unblock()
		}
	}
}

// total adds up the faults of the network.
func (w *town) total() (sum faultproxy.Stats) {
	for _, l := range w.lines() {
		s := l.Stats()
		sum.Connections, sum.Cuts, sum.Stalls = sum.Connections+s.Connections, sum.Cuts+s.Cuts, sum.Stalls+s.Stalls
		sum.Split, sum.Slowed = sum.Split+s.Split, sum.Slowed+s.Slowed
	}
	return sum
}

// sleep waits, and returns false if ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
