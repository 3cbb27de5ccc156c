package headroom_test

import (
	"errors"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"loquat"
	"loquat/internal/headroom"
)

// wait waits until what was measured counts no more.
const wait = 300 * time.Millisecond

func refused(t *testing.T, err error, want string) {
	t.Helper()
	e, ok := errors.AsType[*loquat.Error](err)
	if want == "" {
		if err != nil {
			t.Errorf("refused: %v", err)
		}
		return
	}
	if !ok || e.Code != loquat.CodeUnavailable || e.RetryAfter == 0 || !strings.Contains(e.Detail, want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// limits are those of a configuration that does not change.
func limits(running int, disk int64) func() headroom.Limits {
	return func() headroom.Limits { return headroom.Limits{MaxRunning: running, MinFreeDisk: disk} }
}

func TestRunning(t *testing.T) {
	h := headroom.New(headroom.Options{Limits: limits(2, 0)})
	refused(t, h.ForRequest(1), "")
	refused(t, h.ForRequest(2), "limits.max_running_requests")
	refused(t, h.ForData(), "")
	var none *headroom.Headroom
	refused(t, none.ForRequest(1<<30), "")
}

func TestDisk(t *testing.T) {
	free, err := int64(1000), error(nil)
	h := headroom.New(headroom.Options{Limits: limits(9, 1000), FreeDisk: func(string) (int64, int64, error) { return free, 1 << 40, err }})
	refused(t, h.ForRequest(0), "")
	free = 999
	time.Sleep(wait)
	refused(t, h.ForRequest(0), "limits.min_free_disk_bytes")
	refused(t, h.ForData(), "limits.min_free_disk_bytes")
	err = errors.New("the system cannot say")
	time.Sleep(wait)
	refused(t, h.ForRequest(0), "")
	registry := prometheus.NewRegistry()
	registry.MustRegister(h.Collectors()...)
	want := "# HELP loquat_headroom_refused_total Requests, uploads and imports that were refused to protect the server.\n# TYPE loquat_headroom_refused_total counter\n" +
		`loquat_headroom_refused_total{limit="disk"} 2` + "\n" + `loquat_headroom_refused_total{limit="memory"} 0` + "\n" + `loquat_headroom_refused_total{limit="running_requests"} 0` + "\n"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "loquat_headroom_refused_total"); err != nil {
		t.Error(err)
	}
}

// Without a number, 128 MiB have to be free, or 5 % of a smaller disk.
func TestDefaultFloor(t *testing.T) {
	for _, c := range []struct {
		free, size int64
		want       string
	}{
		{128<<20 - 1, 1 << 40, "limits.min_free_disk_bytes"}, {128 << 20, 1 << 40, ""}, {1 << 20, 20 << 20, ""}, {1<<20 - 1, 20 << 20, "limits.min_free_disk_bytes"},
	} {
		refused(t, headroom.New(headroom.Options{Limits: limits(9, -1), FreeDisk: func(string) (int64, int64, error) { return c.free, c.size, nil }}).ForData(), c.want)
	}
}

// The operating system says how much is free in a directory.
func TestRealDisk(t *testing.T) {
	refused(t, headroom.New(headroom.Options{Limits: limits(9, 1), Dir: t.TempDir()}).ForData(), "")
	refused(t, headroom.New(headroom.Options{Limits: limits(9, 1<<62), Dir: t.TempDir()}).ForData(), "limits.min_free_disk_bytes")
}

func TestMemory(t *testing.T) {
	before := debug.SetMemoryLimit(64 << 20)
	defer debug.SetMemoryLimit(before)
	h := headroom.New(headroom.Options{Limits: limits(9, 0)})
	refused(t, h.ForRequest(0), "")
	held := make([]byte, 60<<20)
	runtime.GC()
	time.Sleep(wait)
	refused(t, h.ForRequest(0), "GOMEMLIMIT")
	runtime.KeepAlive(held)
	held = nil
	runtime.GC()
	time.Sleep(wait)
	refused(t, h.ForRequest(0), "")
}
