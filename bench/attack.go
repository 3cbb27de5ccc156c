package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"loquat"
	"loquat/internal/client"
)

// The run: for each kind of attack, pairs of rounds without and with attackers. All rounds
// with attackers of one kind together take a minute.
const (
	attackers      = 16
	attackPairs    = 10
	attackUsers    = 4
	maxAttackRatio = 3
	maxAttackBytes = 512 << 20

	attackLog     = 90        // messages in the log that attackers follow
	attackMessage = 100 << 10 // bytes of each
)

// attackKinds are the attacks. Each function runs as one attacker until its context ends.
var attackKinds = []struct {
	name, what string
	run        func(address string)
}{
	{"bodies", "bodies of thousands of unknown fields, without a token", attackBodies},
	{"stalls", "connections whose bodies stall, 200 for each attacker", attackStalls},
	{"deaf", "streams and polls that nobody reads, 26 for each attacker", attackDeaf},
}

// attackEnv is the variable that makes this program the child process that attacks.
const attackEnv = "LOQUAT_BENCH_ATTACK"

const (
	attackUserToken  = "user-token-of-the-benchmark"
	attackDeafToken  = "attacker-token-of-the-benchmark"
	attackConfig     = `"server": {"auth_tokens": [{"name": "user", "token": "` + attackUserToken + `", "scope": "full"}, {"name": "attacker", "token": "` + attackDeafToken + `", "scope": "read"}]}`
	attackDial       = 5 * time.Second
	attackPassPause  = 100 * time.Millisecond
	attackStalled    = 200
	attackDeafOfEach = 13
	attackDeafFor    = 10 * time.Second
)

// runAttack is the child process: "kind address".
func runAttack(spec string) error {
	kind, address, _ := strings.Cut(spec, " ")
	for _, a := range attackKinds {
		if a.name == kind {
			if kind == "bodies" {
				attackBody() // before the round, for it takes time to make
			}
			for range attackers {
				go a.run(address)
			}
			fmt.Println("at work")
			_, _ = io.Copy(io.Discard, os.Stdin) // until the parent closes it, or dies
			return nil
		}
	}
	return fmt.Errorf("there is no attack %q", kind)
}

// benchAttack measures how long a user's sends and events take while attackers on loopback
// do what once cost the server seconds of CPU and gigabytes of memory.
func benchAttack(w io.Writer) (verdicts []verdict, err error) {
	p, err := buildProgram()
	if err != nil {
		return nil, err
	}
	defer p.remove()
	backend, err := p.start("backend", "--listen", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer backend.stop()
	for _, kind := range attackKinds {
		v, err := attackOf(w, p, backend.url, kind.name, kind.what)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kind.name, err)
		}
		verdicts = append(verdicts, v...)
	}
	return verdicts, nil
}

// attackOf measures one kind of attack on a server of its own.
func attackOf(w io.Writer, p program, backendURL, kind, what string) ([]verdict, error) {
	server, err := p.serve(fmt.Sprintf(`{"providers": {"near": {"provider": "reference_generic_compatible", "model": "echo",
		"base_url": "%s/v1", "request_options": {"loquat_script": {"rate": 0}}}}, %s}`, backendURL, attackConfig), "attack-"+kind)
	if err != nil {
		return nil, err
	}
	defer server.stop()
	c, err := client.New(server.url, client.Options{Token: attackUserToken})
	if err != nil {
		return nil, err
	}
	b := attacked{server: server, kind: kind, users: isolation{client: c}}
	if err := b.fillLog(); err != nil {
		return nil, err
	}
	fmt.Fprintf(w, "%s: %s; %d attackers\n\n", kind, what, attackers)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "sends\tp99 of sends alone\tattacked\tratio\tp99 of events alone\tattacked\tratio\t")
	var sends, events []float64
	for pair := range attackPairs {
		var rounds [2]attackRound // alone, attacked
		for turn := range 2 {
			under := (pair + turn) % 2 // alternate which comes first
			if rounds[under], err = b.round(under == 1); err != nil {
				return nil, err
			}
		}
		s := float64(rounds[1].sends.p(99)) / float64(rounds[0].sends.p(99))
		e := float64(rounds[1].events.p(99)) / float64(rounds[0].events.p(99))
		sends, events = append(sends, s), append(events, e)
		fmt.Fprintf(table, "%d + %d\t%s\t%s\t%.2f\t%s\t%s\t%.2f\t\n", len(rounds[0].sends), len(rounds[1].sends),
			rounds[0].sends.p(99), rounds[1].sends.p(99), s, rounds[0].events.p(99), rounds[1].events.p(99), e)
	}
	if err := table.Flush(); err != nil {
		return nil, err
	}
	peak, err := server.peakMemory()
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(w, "\npeak of the server's memory: %d MB\n\n", peak/1e6)
	return []verdict{
		{fmt.Sprintf("%s: p99 of sends at most %d times as long with attackers", kind, maxAttackRatio), median(sends) <= maxAttackRatio, fmt.Sprintf("median ratio %.2f", median(sends))},
		{fmt.Sprintf("%s: p99 of events at most %d times as long with attackers", kind, maxAttackRatio), median(events) <= maxAttackRatio, fmt.Sprintf("median ratio %.2f", median(events))},
		{fmt.Sprintf("%s: at most %d MB of memory", kind, maxAttackBytes>>20), peak <= maxAttackBytes, fmt.Sprintf("%d MB", peak>>20)},
	}, nil
}

// peakMemory returns the largest resident memory that the process ever had, in bytes.
func (run *process) peakMemory() (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", run.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if kb, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kb), "kB")), 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("%s does not say the peak", status)
}

// attacked is a server with users and attackers.
type attacked struct {
	server *process
	kind   string
	users  isolation
}

// fillLog makes a log of 9 MB for those who follow it from its beginning.
func (b *attacked) fillLog() error {
	ctx := context.Background()
	s, err := b.users.client.CreateSession(ctx, loquat.NewSession{})
	if err != nil {
		return err
	}
	for range attackLog {
		m := loquat.NewMessage{Role: "user", Content: strings.Repeat("x", attackMessage)}
		if _, err := b.users.client.AppendMessage(ctx, s.SessionID, m); err != nil {
			return err
		}
	}
	return nil
}

// attackRound is what the users of one round measured.
type attackRound struct{ sends, events latencies }

// round measures one round, with or without attackers.
func (b *attacked) round(under bool) (out attackRound, err error) {
	if under {
		stop, err := b.attack()
		if err != nil {
			return out, err
		}
		defer stop()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var all sync.WaitGroup
	var failed errorOnce
	rounds := make([]attackRound, attackUsers)
	for i := range attackUsers {
		all.Go(func() {
			r, err := b.use(ctx)
			failed.note(err)
			rounds[i] = r
		})
	}
	all.Wait()
	for _, r := range rounds {
		out.sends, out.events = slices.Concat(out.sends, r.sends), slices.Concat(out.events, r.events)
	}
	return out, failed.get()
}

// attack starts the attackers, and waits until they are at work.
func (b *attacked) attack() (stop func(), err error) {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), attackEnv+"="+b.kind+" "+strings.TrimPrefix(b.server.url, "http://"))
	child.Stderr = os.Stderr
	stdout, err := child.StdoutPipe()
	if err != nil {
		return nil, err
	}
	stdin, err := child.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := child.Start(); err != nil {
		return nil, err
	}
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		return nil, fmt.Errorf("the attackers do not start: %w", err)
	}
	time.Sleep(2 * time.Second)
	return func() {
		stdin.Close()
		killer := time.AfterFunc(10*time.Second, func() { _ = child.Process.Signal(syscall.SIGKILL) })
		_ = child.Wait()
		killer.Stop()
	}, nil
}

// use sends to a session of its own, one request after the other. It measures how long the
// answer to each send takes, and how long its events take to arrive.
func (b *attacked) use(ctx context.Context) (r attackRound, err error) {
	events, id, stop, err := b.users.followNew(ctx, "")
	if err != nil {
		return r, err
	}
	defer stop()
	content := "a question of some words"
	for end := time.Now().Add(isolationRound); time.Now().Before(end); time.Sleep(isolationPause) {
		began := time.Now()
		answered := make(chan error, 1)
		var took time.Duration
		go func() {
			_, err := b.users.client.Send(ctx, id, loquat.Send{Content: &content, Stream: new(true)})
			took = time.Since(began)
			answered <- err
		}()
		seen := 0
		for e := range events {
			if e.Type == loquat.RequestStarted || e.Type == loquat.Final {
				r.events = append(r.events, time.Since(began))
				seen++
			}
			if e.Type == loquat.RequestCompleted {
				break
			}
		}
		if err := <-answered; err != nil {
			return r, err
		}
		if seen != 2 {
			return r, fmt.Errorf("a request of session %s ended without a reply", id)
		}
		r.sends = append(r.sends, took)
	}
	return r, nil
}

// attackBody is an object of 720,000 fields.
var attackBody = sync.OnceValue(func() []byte {
	var b bytes.Buffer
	for i := range 720_000 {
		fmt.Fprintf(&b, `,"k%06d":0`, i) // 12 bytes
	}
	body := append(b.Bytes(), '}')
	body[0] = '{'
	return body
})

// attackBodies calls the two routes that take a body without a token, with the largest body
// that was once taken and with one that still is.
func attackBodies(address string) {
	large := attackBody()
	bodies := [][]byte{large, append(slices.Clone(large[:15_599]), '}')}
	for i := 0; ; i++ {
		path, body := []string{"/auth/session", "/pairing/claim"}[i/2%2], bodies[i%2]
		conn, err := net.DialTimeout("tcp", address, attackDial)
		if err != nil {
			continue
		}
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n", path, address, len(body)); err == nil {
			_, _ = conn.Write(body)
			_, _ = io.Copy(io.Discard, bufio.NewReader(conn))
		}
		conn.Close()
	}
}

// attackStalls keeps connections open whose requests never end, and replaces those that are
// closed.
func attackStalls(address string) {
	conns := make([]net.Conn, attackStalled)
	for ; ; time.Sleep(attackPassPause) {
		for i := range conns {
			if conns[i] != nil && !hungUp(conns[i]) {
				continue
			}
			if conns[i] != nil {
				conns[i].Close()
				conns[i] = nil
			}
			c, err := net.DialTimeout("tcp", address, attackDial)
			if err != nil {
				continue
			}
			head := []string{"POST /auth/session", "POST /sessions", "GET /healthz", "POST /pairing/claim"}[i%4]
			_, _ = fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: %s\r\nContent-Length: 1000\r\n\r\n", head, address)
			conns[i] = c
		}
	}
}

// hungUp reports whether the server has closed a connection. It drops what the server sent.
func hungUp(c net.Conn) (gone bool) {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return true
	}
	_ = raw.Control(func(fd uintptr) {
		var buf [4096]byte
		for {
			n, _, err := syscall.Recvfrom(int(fd), buf[:], syscall.MSG_DONTWAIT)
			if n <= 0 {
				gone = err != syscall.EAGAIN
				return
			}
		}
	})
	return gone
}

// attackDeaf asks for streams and polls of the whole log and reads none of them. It cannot
// know which of them the server has ended, so it replaces each after a while.
func attackDeaf(address string) {
	conns, opened := make([]net.Conn, 2*attackDeafOfEach), make([]time.Time, 2*attackDeafOfEach)
	for ; ; time.Sleep(attackPassPause) {
		for i := range conns {
			if conns[i] != nil && time.Since(opened[i]) < attackDeafFor {
				continue
			}
			if conns[i] != nil {
				conns[i].Close()
				conns[i] = nil
			}
			c, err := net.DialTimeout("tcp", address, attackDial)
			if err != nil {
				continue
			}
			conns[i], opened[i] = c, time.Now()
			_ = c.(*net.TCPConn).SetReadBuffer(4096)
			target := []string{"/events/stream?since_id=0", "/events?limit=5000&since_id=0"}[i%2]
			_, _ = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", target, address, attackDeafToken)
		}
	}
}
