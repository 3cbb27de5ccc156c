package heap

import (
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// The growth rises while the collector runs often, falls while it runs seldom, and has bounds.
func TestGrowth(t *testing.T) {
	for _, c := range []struct {
		growth uint64
		after  time.Duration
		want   uint64
	}{
		{4 << 20, time.Millisecond, 5 << 20},
		{mostGrowth, time.Millisecond, mostGrowth},
		{4 << 20, time.Second, 4 << 20},
		{8 << 20, time.Minute, 4 << 20},
		{leastGrowth, time.Minute, leastGrowth},
	} {
		if got := nextGrowth(c.growth, c.after); got != c.want {
			t.Errorf("%d bytes, %v after the last run: %d, want %d", c.growth, c.after, got, c.want)
		}
	}
}

func TestPercent(t *testing.T) {
	for _, c := range []struct {
		growth, inUse uint64
		want          int
	}{
		{2 << 20, 4 << 20, 100},
		{2 << 20, 64 << 20, 50},
		{32 << 20, 8 << 20, 400},
		{32 << 20, 128 << 20, 25},
		{32 << 20, 1 << 30, 25},
		{2 << 20, 0, 100 * (2 << 20)},
	} {
		if got := percentFor(c.growth, c.inUse); got != c.want {
			t.Errorf("%d bytes on %d: %d%%, want %d%%", c.growth, c.inUse, got, c.want)
		}
	}
}

// A percentage that is chosen while a large text is held applies afterwards.
func TestTuneDuringAHold(t *testing.T) {
	old := debug.SetGCPercent(100)
	defer debug.SetGCPercent(old)
	holds.tuned = 100
	defer func() { holds.tuned = 0 }()
	release := Hold()
	setPercent(300)
	if got := gcPercent(); got != percent {
		t.Errorf("during the hold it is %d", got)
	}
	release()
	if got := gcPercent(); got != 300 {
		t.Errorf("after the hold it is %d", got)
	}
	setPercent(310)
	if got := gcPercent(); got != 300 {
		t.Errorf("a small change makes it %d", got)
	}
}

// childVariable makes TestTune the program under test: the tuner of a process never ends.
const childVariable = "LOQUAT_TEST_TUNE"

var garbage []byte

// A process that allocates much keeps little in use, so the collector runs seldom. GOGC of the
// environment stays.
func TestTune(t *testing.T) {
	if os.Getenv(childVariable) != "" {
		Tune()
		for range 512 {
			garbage = make([]byte, 1<<20)
			time.Sleep(10 * time.Microsecond) // the cleanup has to run
		}
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		t.Logf("%d runs", stats.NumGC)
		if set := os.Getenv("GOGC"); set != "" && gcPercent() != 77 || set == "" && (stats.NumGC > 80 || stats.HeapSys > 128<<20) {
			t.Errorf("GOGC %q: %d%%, %d runs, %d bytes of heap", set, gcPercent(), stats.NumGC, stats.HeapSys)
		}
		return
	}
	for _, env := range []string{"GOGC=", "GOGC=77"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestTune$", "-test.v")
		cmd.Env = append(os.Environ(), childVariable+"=1", env)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", env, err, out)
		}
	}
}
