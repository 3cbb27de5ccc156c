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
	pushStuck  = 100 // number of stuck apps among them, in one run of each pair
	pushPaired = 5
	pushFor    = 3 * time.Second
	pushCalm   = 20 // events per second
	pushText   = 200
	pushHeld   = 250 * time.Millisecond // a rate is sustained if its p99 is at most this
)

// benchPush compares the bridge with a plain broadcast of the same frames by the same
// WebSocket library, each in a process of its own. It also measures how long after a local
// client an app receives an event.
func benchPush(w io.Writer) ([]verdict, error) {
	top, err := pushHighest()
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(w, "%d apps on one topic; a plain broadcast sustains %d events/s, with a p99 of at most %v\n\n", pushApps, top, pushHeld)
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
		verdict{"push: all frames arrive", min(calm.arrived(), high.arrived()) > 0.98, fmt.Sprintf("%.1f %% in the worst run of the hub", 100*min(calm.arrived(), high.arrived()))},
	)
	serve, alone, err := pushDelays()
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(w, "\nmedian delay of an app after a local Server-Sent Events client: %v with the bridge in the server, %v with a separate bridge\n\n", serve, alone)
	return verdicts, nil
}

// pushHighest doubles the rate as long as the plain broadcast sustains it in two of three
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

// pushRuns are the runs at one rate, by kind. Runs with the same index are a pair.
type pushRuns map[string][]pushResult

// pushPairs runs the plain broadcast, the hub, and optionally the hub with stuck apps. Their
// order changes from pair to pair.
func pushPairs(w io.Writer, rate int, withStuck bool) (pushRuns, error) {
	kinds := []string{"plain", "hub"}
	if withStuck {
		kinds = append(kinds, "hub, stuck")
	}
	all := pushRuns{}
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
		printPush(w, kind, rate, medianPush(all[kind]))
	}
	return all, nil
}

// ratio returns the median of the ratios of the pairs.
func (p pushRuns) ratio(kind, to string, of func(pushResult) time.Duration) float64 {
	var ratios []float64
	for i := range p[kind] {
		ratios = append(ratios, of(p[kind][i]).Seconds()/of(p[to][i]).Seconds())
	}
	return median(ratios)
}

func p50Of(r pushResult) time.Duration   { return r.p50 }
func p99Of(r pushResult) time.Duration   { return r.p99 }
func cpuUsed(r pushResult) time.Duration { return r.cpu }

// arrived returns the share of the frames that arrived, in the worst run of the hub.
func (p pushRuns) arrived() float64 {
	least := 1.0
	for _, kind := range []string{"hub", "hub, stuck"} {
		for _, r := range p[kind] {
			least = min(least, r.got)
		}
	}
	return least
}

func (p pushRuns) verdicts(rate int) []verdict {
	p50, p99, cpu := p.ratio("hub", "plain", p50Of), p.ratio("hub", "plain", p99Of), p.ratio("hub", "plain", cpuUsed)
	at := fmt.Sprintf("push at %d events/s: ", rate)
	return []verdict{
		{at + "p50 at most 1.2 times a plain broadcast's", p50 <= 1.2, fmt.Sprintf("× %.2f", p50)},
		{at + "p99 at most twice a plain broadcast's", p99 <= 2, fmt.Sprintf("× %.2f", p99)},
		{at + "at most a quarter more CPU than a plain broadcast", cpu <= 1.25, fmt.Sprintf("× %.2f", cpu)},
	}
}

// pushResult is the result of one run.
type pushResult struct {
	p50, p99  time.Duration
	perSocket int64 // bytes of resident memory
	cpu       time.Duration
	got       float64 // share of the frames that arrived
}

func printPush(w io.Writer, kind string, rate int, r pushResult) {
	fmt.Fprintf(w, "%-22s %9d %9s %9s %12.1f %10s\n", kind, rate, r.p50.Round(10*time.Microsecond), r.p99.Round(10*time.Microsecond), float64(r.perSocket)/1024, r.cpu.Round(time.Millisecond))
}

// medianPush returns the median of each figure.
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

// pushRun pushes events from a child process to apps in this process.
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
		_ = child.Wait() // the child ends at the end of its input
	}()
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return r, fmt.Errorf("the pushing process: %w", err)
	}
	before := resident(child.Process.Pid)
	apps, err := connectApps(strings.TrimSpace(address), stuck)
	if err != nil {
		return r, err
	}
	defer apps.close()
	r.perSocket = (resident(child.Process.Pid) - before) / pushApps
	spent := cpuOf(child.Process.Pid)
	events := rate * int(pushFor/time.Second)
	fmt.Fprintf(in, "%d %d\n", rate, events)
	want := int64(events) * int64(pushApps-stuck)
	for end := time.Now().Add(pushFor + 3*time.Second); apps.received.Load() < want && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	r.cpu = cpuOf(child.Process.Pid) - spent
	r.got = float64(apps.received.Load()) / float64(want)
	r.p50, r.p99 = apps.delays()
	return r, nil
}

// connectedApps is a set of connected apps.
type connectedApps struct {
	sockets  []*websocket.Conn
	received atomic.Int64
	all      sync.WaitGroup
	mu       sync.Mutex
	waits    []time.Duration
}

func connectApps(address string, stuck int) (*connectedApps, error) {
	c := &connectedApps{}
	for i := range pushApps {
		ws, _, err := websocket.Dial(context.Background(), "ws://"+address+"/bridge/websocket?vsn=2.0.0", &websocket.DialOptions{HTTPClient: httpClientOf(i < stuck)})
		if err != nil {
			c.close()
			return nil, err
		}
		ws.SetReadLimit(64 << 20)
		c.sockets = append(c.sockets, ws)
		if err := ws.Write(context.Background(), websocket.MessageText, []byte(`["1","1","events:server:home","phx_join",{"session":"omit"}]`)); err != nil {
			c.close()
			return nil, err
		}
		if _, _, err := ws.Read(context.Background()); err != nil { // the reply
			c.close()
			return nil, err
		}
		if i >= stuck {
			c.all.Go(func() { c.receive(ws) })
		}
	}
	return c, nil
}

// httpClientOf returns the HTTP client of an app. A stuck app has small socket buffers, so
// that they are full after a few frames.
func httpClientOf(stuck bool) *http.Client {
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

// pushLine is the size of a stuck app's socket buffers, in bytes. The system rounds it up.
const pushLine = 1 << 10

// receive counts the received events. A merged frame contains several events.
func (c *connectedApps) receive(ws *websocket.Conn) {
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
			c.received.Add(1)
			text = rest
		}
	}
}

func (c *connectedApps) close() {
	for _, ws := range c.sockets {
		_ = ws.CloseNow()
	}
	c.all.Wait()
}

func (c *connectedApps) delays() (p50, p99 time.Duration) {
	c.close() // makes all goroutines add their delays
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waits) == 0 {
		return 0, 0
	}
	slices.Sort(c.waits)
	return c.waits[len(c.waits)/2], c.waits[len(c.waits)*99/100]
}

// resident returns the resident memory of a process, in bytes.
func resident(pid int) int64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

// cpuOf returns the CPU time that a process has used.
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

// pushEnv is the variable that makes this program the child process that pushes. pushStuckEnv
// is the number of stuck apps, which connect first.
const (
	pushEnv      = "LOQUAT_BENCH_PUSH"
	pushStuckEnv = "LOQUAT_BENCH_PUSH_STUCK"
)

// servePush pushes with the bridge ("hub") or with the WebSocket library alone ("plain"). It
// reads the rate and the number of events from its input.
func servePush(kind string) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var publish func(content string)
	var handler http.Handler
	if kind == "hub" {
		log := &pushLog{changed: make(chan struct{})}
		hub := bridge.NewHub(bridge.Options{Local: &bridge.Server{ID: "home", Log: log, Authenticate: admitAll}})
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
		if stuck--; stuck >= 0 { // needs no lock: connections are accepted one after another
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
