// Package heap keeps the process small while it holds large texts.
//
// The garbage collector lets the heap grow to twice what is in use before it runs. For a text
// of 60 MB that would be 60 MB of garbage. So while a text of Large bytes or more is held, the
// collector runs more often. Large texts hold no pointers, which makes each run cheap.
//
// The package does not bound what the program holds.
package heap

import (
	"runtime/debug"
	"sync"
)

// Large is the size in bytes from which a text counts as large.
const Large = 4 << 20

// percent is how much the heap may grow between two runs of the collector while a large text
// is held, in percent of what is in use.
const percent = 15

// holds counts the running holds. before is the percentage to return to. tuned is the one that
// Tune has set.
var holds struct {
	sync.Mutex
	n, before, tuned int
}

// Hold makes the collector run more often until release is called. A stricter setting of the
// environment (GOGC) stays. GOGC=off stays, too.
func Hold() (release func()) {
	holds.Lock()
	defer holds.Unlock()
	if holds.n++; holds.n == 1 {
		if holds.before = debug.SetGCPercent(percent); holds.before < percent {
			debug.SetGCPercent(holds.before)
		}
	}
	return sync.OnceFunc(func() {
		holds.Lock()
		defer holds.Unlock()
		if holds.n--; holds.n == 0 {
			debug.SetGCPercent(holds.before)
		}
	})
}

// Gauge adds up the sizes of texts that one goroutine holds together, and calls Hold when they
// are large. The zero Gauge is ready.
type Gauge struct {
	size    int
	release func()
}

// Add adds a text of n bytes. If the text is large it also returns the memory of what it was
// made from.
func (g *Gauge) Add(n int) {
	if g.size += n; g.size >= Large && g.release == nil {
		g.release = Hold()
	}
	Free(n)
}

// Reset ends the hold of all texts.
func (g *Gauge) Reset() {
	g.size = 0
	if g.release != nil {
		g.release()
		g.release = nil
	}
}

// Freer returns memory while a large text is copied from pieces that are dropped one by one.
// Otherwise the text would be in memory twice, because the collector does not run while it is
// copied. The zero Freer is ready.
type Freer struct{ dropped int }

// freeStep is after how many dropped bytes their memory is returned.
const freeStep = 8 << 20

// Drop says that n bytes were dropped.
func (f *Freer) Drop(n int) {
	if f.dropped += n; f.dropped >= freeStep {
		f.dropped = 0
		debug.FreeOSMemory()
	}
}

// Free returns unused memory to the operating system, before a text of size bytes is
// copied. It does nothing for a text that is not large.
func Free(size int) {
	if size >= Large {
		debug.FreeOSMemory()
	}
}
