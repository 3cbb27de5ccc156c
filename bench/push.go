package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"loquat/internal/bridge"
)

// The sizes of the comparison.
const (
	pushApps   = 1000
	pushStuck  = 100 // among them, in one run
	pushPaired = 5
	pushFor    = 4 * time.Second
	pushCalm   = 20 // events a second
	pushText   = 200
	pushHeld   = 250 * time.Millisecond // p99 below which a rate is held
)

// benchPush compares the bridge with a plain broadcast of the same frames by the same
// WebSocket library, each in a process of its own, and holds what apps see against
// what a local client sees.
func benchPush(w io.Writer) ([]verdict, error) {
	top := pushCalm
	for rate := 2 * pushCalm; ; rate *= 2 { // what the yardstick holds
		r, err := pushRun("plain", rate, 0)
		if err != nil {
			return nil, err
		}
		if r.p99 > pushHeld || r.got < 0.98 {
			break
		}
		top = rate
	}
	fmt.Fprintf(w, "%d apps on one topic; a plain broadcast holds %d events/s\n\n", pushApps, top)
	fmt.Fprintf(w, "%-22s %9s %9s %9s %12s %10s\n", "", "events/s", "p50", "p99", "KiB/socket", "CPU")
	var ratios []float64
	var calm pushResult // of the hub
	for _, rate := range []int{pushCalm, top} {
		runs := map[string][]pushResult{}
		for range pushPaired {
			for _, kind := range []string{"plain", "hub"} {
				r, err := pushRun(kind, rate, 0)
				if err != nil {
					return nil, err
				}
				runs[kind] = append(runs[kind], r)
			}
		}
		for i := range pushPaired {
			if rate == top {
				ratios = append(ratios, runs["hub"][i].cpu.Seconds()/runs["plain"][i].cpu.Seconds())
			}
		}
		for _, kind := range []string{"plain", "hub"} {
			tellPush(w, kind, rate, medianPush(runs[kind]))
			if kind == "hub" && rate == pushCalm {
				calm = medianPush(runs[kind])
			}
		}
	}
	stuck, err := pushRun("hub", pushCalm, pushStuck)
	if err != nil {
		return nil, err
	}
	tellPush(w, fmt.Sprintf("hub, %d stuck", pushStuck), pushCalm, stuck)
	slices.Sort(ratios)
	ratio := ratios[len(ratios)/2]
	fmt.Fprintf(w, "\nCPU of the hub beside the yardstick at %d events/s, median of pairs: %.2f\n", top, ratio)
	serve, alone, err := pushAdds()
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(w, "an app hears of an event after a local Server-Sent Events client by, at the median: %v in serve, %v through a bridge alone\n\n", serve, alone)
	return []verdict{
		{"push: the hub costs at most a quarter more CPU than a plain broadcast", ratio <= 1.25, fmt.Sprintf("%.2f", ratio)},
		{"push: stuck apps delay nobody", stuck.p99 < 2*calm.p99 && stuck.got > 0.98, fmt.Sprintf("p99 %v with %d stuck, %v without", stuck.p99, pushStuck, calm.p99)},
	}, nil
}

// pushResult is what one run showed.
type pushResult struct {
	p50, p99  time.Duration
	perSocket int64 // bytes of resident memory
	cpu       time.Duration
	got       float64 // share of the frames that came
}

func tellPush(w io.Writer, kind string, rate int, r pushResult) {
	fmt.Fprintf(w, "%-22s %9d %9s %9s %12.1f %10s\n", kind, rate, r.p50.Round(10*time.Microsecond), r.p99.Round(10*time.Microsecond), float64(r.perSocket)/1024, r.cpu.Round(time.Millisecond))
}

// medianPush takes each figure's median.
func medianPush(runs []pushResult) pushResult {
	mid := func(of func(pushResult) int64) int64 {
		var all []int64
		for _, r := range runs {
			all = append(all, of(r))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	return pushResult{
		p50: time.Duration(mid(func(r pushResult) int64 { return int64(r.p50) })), p99: time.Duration(mid(func(r pushResult) int64 { return int64(r.p99) })),
		perSocket: mid(func(r pushResult) int64 { return r.perSocket }), cpu: time.Duration(mid(func(r pushResult) int64 { return int64(r.cpu) })), got: 1,
	}
}

// pushRun pushes for a while, from a process of its own, to apps in this one.
func pushRun(kind string, rate, stuck int) (r pushResult, err error) {
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	child := exec.Command(self)
	child.Env = append(os.Environ(), pushEnv+"="+kind)
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	if err != nil {
		return r, err
	}
	out, err := child.StdoutPipe()
	if err != nil {
		return r, err
	}
	if err := child.Start(); err != nil {
		return r, err
	}
	defer func() {
		_ = in.Close()
		_ = child.Wait() // its end is the end of its input
	}()
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return r, fmt.Errorf("the pushing process: %w", err)
	}
	before := resident(child.Process.Pid)
	crowd, err := gather(strings.TrimSpace(address), stuck)
	if err != nil {
		return r, err
	}
	defer crowd.leave()
	r.perSocket = (resident(child.Process.Pid) - before) / pushApps
	spent := cpuOf(child.Process.Pid)
	events := rate * int(pushFor/time.Second)
	fmt.Fprintf(in, "%d %d\n", rate, events)
	want := int64(events) * int64(pushApps-stuck)
	for end := time.Now().Add(pushFor + 3*time.Second); crowd.heard.Load() < want && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	r.cpu = cpuOf(child.Process.Pid) - spent
	r.got = float64(crowd.heard.Load()) / float64(want)
	r.p50, r.p99 = crowd.delays()
	return r, nil
}

// crowd is the apps.
type crowd struct {
	sockets []*websocket.Conn
	heard   atomic.Int64
	all     sync.WaitGroup
	mu      sync.Mutex
	waits   []time.Duration
}

func gather(address string, stuck int) (*crowd, error) {
	c := &crowd{}
	for i := range pushApps {
		ws, _, err := websocket.Dial(context.Background(), "ws://"+address+"/bridge/websocket?vsn=2.0.0", nil)
		if err != nil {
			c.leave()
			return nil, err
		}
		ws.SetReadLimit(64 << 20)
		c.sockets = append(c.sockets, ws)
		if err := ws.Write(context.Background(), websocket.MessageText, []byte(`["1","1","events:server:home","phx_join",{"session":"omit"}]`)); err != nil {
			c.leave()
			return nil, err
		}
		if _, _, err := ws.Read(context.Background()); err != nil { // the reply
			c.leave()
			return nil, err
		}
		if i >= stuck {
			c.all.Go(func() { c.listen(ws) })
		}
	}
	return c, nil
}

// listen counts what comes; a compacted frame tells of several events.
func (c *crowd) listen(ws *websocket.Conn) {
	var own []time.Duration
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.waits = append(c.waits, own...)
	}()
	for {
		_, data, err := ws.Read(context.Background())
		if err != nil {
			return
		}
		now := time.Now().UnixNano()
		text := string(data)
		for {
			_, rest, ok := strings.Cut(text, "@")
			if !ok {
				break
			}
			sent, _ := strconv.ParseInt(rest[:19], 10, 64)
			own = append(own, time.Duration(now-sent))
			c.heard.Add(1)
			text = rest
		}
	}
}

func (c *crowd) leave() {
	for _, ws := range c.sockets {
		_ = ws.CloseNow()
	}
	c.all.Wait()
}

func (c *crowd) delays() (p50, p99 time.Duration) {
	c.leave() // then all have told
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waits) == 0 {
		return 0, 0
	}
	slices.Sort(c.waits)
	return c.waits[len(c.waits)/2], c.waits[len(c.waits)*99/100]
}

// resident is the resident memory of a process.
func resident(pid int) int64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// cpuOf is the processor time that a process has used.
func cpuOf(pid int) time.Duration {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// pushEnv makes this program the process that pushes.
const pushEnv = "LOQUAT_BENCH_PUSH"

// servePush pushes by the bridge ("hub"), or by nothing but the library ("plain"). It
// reads how many events a second, and how many, from its input.
func servePush(kind string) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var publish func(content string)
	var handler http.Handler
	if kind == "hub" {
		log := &pushLog{changed: make(chan struct{})}
		hub := bridge.NewHub(bridge.Options{Local: &bridge.Server{ID: "home", Log: log, Admit: admitAll}})
		handler = hub.Handler(func(w http.ResponseWriter, err error) { http.Error(w, err.Error(), http.StatusBadRequest) })
		publish = log.publish
	} else {
		b := &broadcast{queues: map[chan []byte]bool{}}
		handler, publish = b, b.publish
	}
	go func() { _ = (&http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}).Serve(ln) }()
	fmt.Println(ln.Addr())
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var rate, events int
		if _, err := fmt.Sscan(lines.Text(), &rate, &events); err != nil {
			return err
		}
		began := time.Now()
		for i := range events {
			time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(rate))))
			publish(fmt.Sprintf("@%019d%s", time.Now().UnixNano(), strings.Repeat("x", pushText)))
		}
	}
	return nil
}
