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
	pushStuck  = 100 // among them, in one run of each pair
	pushPaired = 5
	pushFor    = 3 * time.Second
	pushCalm   = 20 // events a second
	pushText   = 200
	pushHeld   = 250 * time.Millisecond // p99 up to which a rate is held: more is no longer at once
)

// benchPush compares the bridge with a plain broadcast of the same frames by the same
// WebSocket library, each in a process of its own, and holds what apps see against
// what a local client sees.
func benchPush(w io.Writer) ([]verdict, error) {
	top, err := pushHighest()
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(w, "%d apps on one topic; a plain broadcast holds %d events/s, with a p99 of at most %v\n\n", pushApps, top, pushHeld)
	fmt.Fprintf(w, "%-22s %9s %9s %9s %12s %10s\n", "", "events/s", "p50", "p99", "KiB/socket", "CPU")
	calm, err := pushPairs(w, pushCalm, true)
	if err != nil {
		return nil, err
	}
	high, err := pushPairs(w, top, false)
	if err != nil {
		return nil, err
	}
	verdicts := append(calm.verdicts(pushCalm), high.verdicts(top)...)
	stuck := calm.ratio("hub, stuck", "hub", p99Of)
	verdicts = append(verdicts,
		verdict{"push: stuck apps change the p99 of the others by less than half", stuck < 1.5, fmt.Sprintf("× %.2f with %d stuck", stuck, pushStuck)},
		verdict{"push: everything comes", min(calm.came(), high.came()) > 0.98, fmt.Sprintf("%.1f %% in the worst run of the hub", 100*min(calm.came(), high.came()))},
	)
	serve, alone, err := pushAdds()
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(w, "\nan app hears of an event after a local Server-Sent Events client by, at the median: %v in serve, %v through a bridge alone\n\n", serve, alone)
	return verdicts, nil
}

// pushHighest doubles the rate for as long as the yardstick holds it, in two of three
// runs.
func pushHighest() (int, error) {
	for rate := pushCalm; ; rate *= 2 {
		var held int
		for range 3 {
			r, err := pushRun("plain", 2*rate, 0)
			if err != nil {
				return 0, err
			}
			if r.p99 <= pushHeld && r.got > 0.98 {
				held++
			}
		}
		if held < 2 {
			return rate, nil
		}
	}
}

// pushed are the runs at one rate, by kind and in pairs.
type pushed map[string][]pushResult

// pushPairs runs the yardstick and the hub side by side, and the hub with stuck apps
// among the others. Who begins takes turns.
func pushPairs(w io.Writer, rate int, withStuck bool) (pushed, error) {
	kinds := []string{"plain", "hub"}
	if withStuck {
		kinds = append(kinds, "hub, stuck")
	}
	all := pushed{}
	for i := range pushPaired {
		for j := range kinds {
			kind := kinds[(i+j)%len(kinds)]
			program, stuck := kind, 0
			if kind == "hub, stuck" {
				program, stuck = "hub", pushStuck
			}
			r, err := pushRun(program, rate, stuck)
			if err != nil {
				return nil, err
			}
			all[kind] = append(all[kind], r)
		}
	}
	for _, kind := range kinds {
		tellPush(w, kind, rate, medianPush(all[kind]))
	}
	return all, nil
}

// ratio is the median of the pairs' ratios.
func (p pushed) ratio(kind, to string, of func(pushResult) time.Duration) float64 {
	var ratios []float64
	for i := range p[kind] {
		ratios = append(ratios, of(p[kind][i]).Seconds()/of(p[to][i]).Seconds())
	}
	return median(ratios)
}

func p50Of(r pushResult) time.Duration   { return r.p50 }
func p99Of(r pushResult) time.Duration   { return r.p99 }
func cpuUsed(r pushResult) time.Duration { return r.cpu }

// came is the share of the frames that came, in the worst run of the hub.
func (p pushed) came() float64 {
	least := 1.0
	for _, kind := range []string{"hub", "hub, stuck"} {
		for _, r := range p[kind] {
			least = min(least, r.got)
		}
	}
	return least
}

func (p pushed) verdicts(rate int) []verdict {
	p50, p99, cpu := p.ratio("hub", "plain", p50Of), p.ratio("hub", "plain", p99Of), p.ratio("hub", "plain", cpuUsed)
	at := fmt.Sprintf("push at %d events/s: ", rate)
	return []verdict{
		{at + "p50 at most 1.2 times a plain broadcast's", p50 <= 1.2, fmt.Sprintf("× %.2f", p50)},
		{at + "p99 at most twice a plain broadcast's", p99 <= 2, fmt.Sprintf("× %.2f", p99)},
		{at + "at most a quarter more CPU than a plain broadcast", cpu <= 1.25, fmt.Sprintf("× %.2f", cpu)},
	}
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
	child.Env = append(os.Environ(), pushEnv+"="+kind, pushStuckEnv+"="+strconv.Itoa(stuck))
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
		ws, _, err := websocket.Dial(context.Background(), "ws://"+address+"/bridge/websocket?vsn=2.0.0", &websocket.DialOptions{HTTPClient: lineOf(i < stuck)})
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

// lineOf is how an app connects. One that is stuck has a line that holds little, so that
// it is full after some frames.
func lineOf(stuck bool) *http.Client {
	if !stuck {
		return http.DefaultClient
	}
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return conn, conn.(*net.TCPConn).SetReadBuffer(pushLine)
	}}}
}

// pushLine is how many bytes each end of a stuck app's line holds; the system rounds it up.
const pushLine = 1 << 10

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

// pushEnv makes this program the process that pushes. The first connections, as many as
// pushStuckEnv says, are those of stuck apps.
const (
	pushEnv      = "LOQUAT_BENCH_PUSH"
	pushStuckEnv = "LOQUAT_BENCH_PUSH_STUCK"
)

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
		handler = hub.Handler(func(w http.ResponseWriter, err error) { http.Error(w, err.Error(), http.StatusBadRequest) }, http.NotFoundHandler())
		publish = log.publish
	} else {
		b := &broadcast{queues: map[chan []byte]bool{}}
		handler, publish = b, b.publish
	}
	stuck, err := strconv.Atoi(os.Getenv(pushStuckEnv))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute, ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
		if stuck--; stuck >= 0 { // one connection after the other is accepted
			_ = conn.(*net.TCPConn).SetWriteBuffer(pushLine)
		}
		return ctx
	}}
	go func() { _ = server.Serve(ln) }()
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
