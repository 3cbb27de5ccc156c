package binary

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Memory returns a line of /proc/PID/status, such as VmRSS, in bytes. It returns 0 on
// systems without /proc.
func Memory(t testing.TB, p *Process, line string) int64 {
	t.Helper()
	if runtime.GOOS != "linux" {
		return 0
	}
	n, err := memoryOf(p.Cmd.Process.Pid, line)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func memoryOf(pid int, line string) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), line+":")
	fields := strings.Fields(rest)
	if len(fields) == 0 { // the process has ended
		return 0, os.ErrProcessDone
	}
	kib, err := strconv.ParseInt(fields[0], 10, 64)
	return kib << 10, err
}

// ProcessorTime returns the processor time of a process so far. It returns 0 on systems without /proc.
func ProcessorTime(t *testing.T, p *Process) time.Duration {
	t.Helper()
	if runtime.GOOS != "linux" {
		return 0
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	const tick = 10 * time.Millisecond // USER_HZ
	var sum time.Duration
	for _, field := range strings.Fields(rest)[11:13] { // utime and stime
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(n) * tick
	}
	return sum
}

// RunWithPeak runs a command and returns what it wrote and its peak memory in bytes. The system's own account
// of a command that has ended also has the peak of the process that started it.
func RunWithPeak(cmd *exec.Cmd) (out []byte, peak int64, err error) {
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	if err := cmd.Start(); err != nil {
		return nil, 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if n, err := memoryOf(cmd.Process.Pid, "VmHWM"); err == nil {
			peak = max(peak, n)
		}
		select {
		case err = <-ended:
			return b.Bytes(), peak, err
		case <-tick.C:
		}
	}
}

// Metrics returns the metrics of the server at url, by name.
func Metrics(t testing.TB, url string) map[string]float64 { return MetricsWith(t, url, "") }

// MetricsWith is Metrics with a token.
func MetricsWith(t testing.TB, url, token string) map[string]float64 {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/metrics", nil)
	if err != nil {
		t.Error(err)
		return nil
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer resp.Body.Close()
	out := map[string]float64{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, ok := strings.Cut(lines.Text(), " ")
		if n, err := strconv.ParseFloat(value, 64); ok && err == nil {
			out[name] = n
		}
	}
	return out
}

// CheckLeaks fails the test if there are more goroutines than in the metrics of the idle
// server, or if memory grew in the second half of the run.
func CheckLeaks(t testing.TB, url string, idle map[string]float64, memory []float64) {
	t.Helper()
	CheckLeaksOf(t, func() map[string]float64 { return Metrics(t, url) }, idle, memory)
}

// CheckLeaksOf is CheckLeaks with a function that reads the metrics.
func CheckLeaksOf(t testing.TB, read func() map[string]float64, idle map[string]float64, memory []float64) {
	t.Helper()
	const few = 10 // of connections that are about to close
	var now map[string]float64
	for range 100 {
		http.DefaultClient.CloseIdleConnections()
		if now = read(); now["go_goroutines"] <= idle["go_goroutines"]+few {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if now["go_goroutines"] > idle["go_goroutines"]+few {
		t.Errorf("%.0f goroutines, %.0f before the run", now["go_goroutines"], idle["go_goroutines"])
	}
	if len(memory) < 4 {
		return
	}
	half := slices.Max(memory[:len(memory)/2])
	whole := slices.Max(memory[len(memory)/2:])
	t.Logf("goroutines %.0f before, %.0f after; memory at most %.0f MB in the first half, %.0f MB in the second",
		idle["go_goroutines"], now["go_goroutines"], half/1e6, whole/1e6)
	if whole > 1.5*half+16e6 {
		t.Errorf("memory grew from %.0f to %.0f MB over the run", half/1e6, whole/1e6)
	}
}
