package heap

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Go's default lets the heap grow by what is in use before the collector runs. A server that
// keeps little and allocates much then collects many times a second, and a server that keeps
// much takes twice its memory. So Tune chooses the growth in bytes instead.
const (
	leastGrowth = 1 << 20  // at the start and after a quiet time
	mostGrowth  = 32 << 20 // while the collector runs often
	growthShare = 4        // a larger heap grows by this part of what is in use

	oftenAfter  = time.Second / 2  // a run so soon after the last one: the growth gets larger
	seldomAfter = 10 * time.Second // a run so late after the last one: the growth gets smaller
)

// Tune makes the collector run by how much was allocated since its last run, from now on. It does
// nothing if the environment has a GOGC. Hold takes precedence, and so does a GOMEMLIMIT that is
// nearly reached.
func Tune() {
	if os.Getenv("GOGC") != "" {
		return
	}
	t := &tuner{growth: leastGrowth, last: time.Now()}
	t.watch()
}

// tuner chooses the growth after each run of the collector. One cleanup at a time uses it.
type tuner struct {
	growth uint64 // bytes between two runs, of a small heap
	last   time.Time
}

// watch makes the end of the next run of the collector call collected: an object that nobody
// refers to is cleaned up after it.
func (t *tuner) watch() {
	unused := &struct{ _ [64]byte }{}
	runtime.AddCleanup(unused, (*tuner).collected, t)
}

func (t *tuner) collected() {
	now := time.Now()
	t.growth = nextGrowth(t.growth, now.Sub(t.last))
	t.last = now
	inUse := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(inUse)
	setPercent(percentFor(t.growth, inUse[0].Value.Uint64()+inUse[1].Value.Uint64()+inUse[2].Value.Uint64()))
	t.watch()
}

// nextGrowth returns the growth after a run of the collector that came so long after the last.
func nextGrowth(growth uint64, after time.Duration) uint64 {
	switch {
	case after < oftenAfter:
		growth += growth / 4
	case after > seldomAfter:
		growth /= 2
	}
	return min(max(growth, leastGrowth), mostGrowth)
}

// percentFor returns the GOGC with which the heap grows by growth. If that is more, it grows by
// what is in use up to mostGrowth, so that a heap that gets larger is not collected more often
// than by default, or by a share of what is in use.
func percentFor(growth, inUse uint64) int {
	inUse = max(inUse, 1)
	return int(max(growth, min(inUse, mostGrowth), inUse/growthShare) * 100 / inUse)
}

// setPercent sets the percentage, or the one that follows the last Hold. A small change is not
// worth a stop of all goroutines.
func setPercent(percent int) {
	holds.Lock()
	defer holds.Unlock()
	if diff := percent - holds.tuned; -holds.tuned/10 <= diff && diff <= holds.tuned/10 {
		return
	}
	holds.tuned = percent
	if holds.n > 0 {
		holds.before = percent
	} else {
		debug.SetGCPercent(percent)
	}
}
