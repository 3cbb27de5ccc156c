// Package faultproxy is a TCP proxy for tests that simulates a faulty network: it cuts and
// stalls connections, splits writes and slows them down.
//
// Up to a cut, the proxy passes on all bytes in order. The seed determines the faults of the
// n-th connection and the byte positions of its cuts and stalls, but not their timing. The
// proxy uses at most MaxConnections connections, with a buffer of 16 KiB for each direction.
// It does not interpret the bytes. It listens on loopback only, and Close stops all of its
// goroutines.
package faultproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Options select the faults. Cut, Stall, Split and Slow are probabilities from 0 to 1 for
// one direction of one connection. A direction can have several faults.
type Options struct {
	Target string // host:port to which connections are passed on
	Seed   uint64

	Cut   float64 // the connection is cut, half of the times with a reset and half with a clean close
	Stall float64 // the direction stalls once and then goes on
	Split float64 // each byte is written on its own
	Slow  float64 // bytes are passed on at Rate

	Within   int           // cuts and stalls happen within this number of bytes; default 64 KiB
	StallFor time.Duration // longest duration of a stall; default 1 s
	Rate     int           // bytes per second of a slow direction; default 16 KiB

	MaxConnections int // further connections wait; default 1024
}

// Stats counts connections and faults.
type Stats struct{ Connections, Cuts, Stalls, Split, Slowed int64 }

// Proxy is a running proxy.
type Proxy struct {
	opts    Options
	ln      net.Listener
	ctx     context.Context
	stop    context.CancelFunc
	slots   chan struct{} // contains one value for each connection
	gate    gate
	running sync.WaitGroup

	connections, cuts, stalls, split, slowed atomic.Int64
}

const (
	bufferSize  = 16 << 10
	dialTimeout = 10 * time.Second
	slowSteps   = 50 // writes per second of a slow direction
)

// Start listens on a free port of loopback and proxies until Close.
func Start(opts Options) (*Proxy, error) {
	if opts.Within <= 0 {
		opts.Within = 64 << 10
	}
	if opts.StallFor <= 0 {
		opts.StallFor = time.Second
	}
	if opts.Rate <= 0 {
		opts.Rate = 16 << 10
	}
	if opts.MaxConnections <= 0 {
		opts.MaxConnections = 1024
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the fault proxy: %w", err)
	}
	p := &Proxy{opts: opts, ln: ln, slots: make(chan struct{}, opts.MaxConnections)}
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.running.Go(p.accept)
	return p, nil
}

// Addr returns the address on which the proxy listens, as host:port.
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// Stats returns the counts so far.
func (p *Proxy) Stats() Stats {
	return Stats{
		Connections: p.connections.Load(), Cuts: p.cuts.Load(), Stalls: p.stalls.Load(),
		Split: p.split.Load(), Slowed: p.slowed.Load(),
	}
}

// Block lets nothing pass until Unblock: both sides see silence, as when the network drops all
// packets. New connections are accepted.
func (p *Proxy) Block() { p.gate.close() }

// Unblock ends Block. The bytes that were held up pass.
func (p *Proxy) Unblock() { p.gate.open() }

// Close resets all connections and waits until all goroutines have ended. A second call
// does nothing.
func (p *Proxy) Close() error {
	p.stop()
	err := p.ln.Close()
	p.running.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// accept accepts connections and draws the faults of each, in the order of the connections.
func (p *Proxy) accept() {
	rng := rand.New(rand.NewPCG(p.opts.Seed, 0))
	for {
		select {
		case p.slots <- struct{}{}:
		case <-p.ctx.Done():
			return
		}
		client, err := p.ln.Accept()
		if err != nil {
			<-p.slots
			if p.ctx.Err() != nil {
				return
			}
			p.sleep(p.ctx, 10*time.Millisecond) // the error may be temporary, such as too many open files
			continue
		}
		p.connections.Add(1)
		toTarget, toClient := p.drawFaults(rng), p.drawFaults(rng)
		p.running.Go(func() {
			p.serve(client.(*net.TCPConn), toTarget, toClient)
			<-p.slots
		})
	}
}

// faults are the faults of one direction.
type faults struct {
	cutAt, stallAt int // number of bytes before the fault; -1: never
	reset          bool
	stall          time.Duration
	split          bool
	rate           int // 0: unlimited
}

// drawFaults draws the faults of one direction. It always draws the same number of random
// numbers, so that changing one probability does not change the other faults.
func (p *Proxy) drawFaults(rng *rand.Rand) faults {
	f := faults{cutAt: -1, stallAt: -1, reset: rng.IntN(2) == 0, stall: time.Duration(1 + rng.Int64N(int64(p.opts.StallFor)))}
	cut, stall, split, slow := rng.Float64(), rng.Float64(), rng.Float64(), rng.Float64()
	cutAt, stallAt := rng.IntN(p.opts.Within), rng.IntN(p.opts.Within)
	if cut < p.opts.Cut {
		f.cutAt = cutAt
	}
	if stall < p.opts.Stall {
		f.stallAt = stallAt
	}
	if f.split = split < p.opts.Split; f.split {
		p.split.Add(1)
	}
	if slow < p.opts.Slow {
		f.rate = p.opts.Rate
		p.slowed.Add(1)
	}
	return f
}

// serve proxies one connection until both directions have ended or one is cut.
func (p *Proxy) serve(client *net.TCPConn, toTarget, toClient faults) {
	ctx, end := context.WithCancel(p.ctx)
	defer end()
	p.gate.pass(ctx)
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", p.opts.Target)
	if err != nil {
		reset(client)
		return
	}
	target := conn.(*net.TCPConn)
	// Closing the connections wakes the goroutines that still read or write.
	var closer, both sync.WaitGroup
	closer.Go(func() {
		<-ctx.Done()
		reset(client)
		reset(target)
	})
	both.Go(func() { p.copyBytes(ctx, end, target, client, toTarget) })
	both.Go(func() { p.copyBytes(ctx, end, client, target, toClient) })
	both.Wait()
	client.Close() // before the closer, whose reset would discard bytes that are still being sent
	target.Close()
	end()
	closer.Wait()
}

// reset closes with a reset, so that the other side learns of it at once.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// copyBytes copies one direction. It calls end to end the whole connection.
func (p *Proxy) copyBytes(ctx context.Context, end func(), dst, src *net.TCPConn, f faults) {
	buf := make([]byte, bufferSize)
	for passed := 0; ; {
		n, err := src.Read(buf)
		p.gate.pass(ctx)
		for rest := buf[:n]; len(rest) > 0; {
			if passed == f.stallAt {
				f.stallAt = -1
				p.stalls.Add(1)
				p.sleep(ctx, f.stall)
			}
			if passed == f.cutAt {
				p.cuts.Add(1)
				if !f.reset {
					src.Close()
					dst.Close()
				}
				end()
				return
			}
			n := f.nextWrite(passed, len(rest))
			if _, err := dst.Write(rest[:n]); err != nil {
				end()
				return
			}
			passed += n
			rest = rest[n:]
			if f.rate > 0 {
				p.sleep(ctx, time.Duration(n)*time.Second/time.Duration(f.rate))
			}
		}
		if err == io.EOF {
			_ = dst.CloseWrite() // the other direction may go on
			return
		}
		if err != nil {
			end()
			return
		}
	}
}

// nextWrite returns how many of the left bytes the next write may contain.
func (f *faults) nextWrite(passed, left int) int {
	if f.split {
		return 1
	}
	for _, at := range []int{f.cutAt, f.stallAt} {
		if at > passed {
			left = min(left, at-passed)
		}
	}
	if f.rate > 0 {
		left = min(left, max(f.rate/slowSteps, 1))
	}
	return left
}

func (p *Proxy) sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
