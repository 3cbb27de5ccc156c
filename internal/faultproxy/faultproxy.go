// Package faultproxy is a TCP proxy that treats connections badly on purpose, for
// tests of what stands on either side of it: it cuts, stalls, splits and slows.
//
// It promises that the bytes it passes on are the right ones in the right order, up
// to a cut; that which faults befall the n-th connection, and after how many bytes,
// follows from the seed; that it holds at most MaxConnections and 16 KiB for each
// direction of one; and that after Close nothing of it runs. It promises nothing of
// timing, and knows nothing of what the bytes mean. It listens on loopback only.
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

// Options choose the faults. The chances, from 0 to 1, are those of one direction of
// one connection; a direction can meet several faults.
type Options struct {
	Target string // host:port to pass connections on to
	Seed   uint64

	Cut   float64 // chance of an end in the middle, as often a reset as a clean close
	Stall float64 // chance of one silence, without an end of the connection
	Split float64 // chance that each byte is written alone
	Slow  float64 // chance that bytes pass at Rate

	Within   int           // cuts and stalls come before so many bytes; default 64 KiB
	StallFor time.Duration // how long a stall lasts at the most; default 1 s
	Rate     int           // bytes per second of what is slow; default 16 KiB

	MaxConnections int // more have to wait; default 1024
}

// Stats count what was done so far.
type Stats struct{ Connections, Cuts, Stalls, Split, Slowed int64 }

// Proxy is a running proxy.
type Proxy struct {
	opts   Options
	ln     net.Listener
	ctx    context.Context
	stop   context.CancelFunc
	places chan struct{} // one token for each connection
	all    sync.WaitGroup

	connections, cuts, stalls, split, slowed atomic.Int64
}

const (
	bufferSize  = 16 << 10
	dialTimeout = 10 * time.Second
	slowSteps   = 50 // writes per second of what is slow
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
	p := &Proxy{opts: opts, ln: ln, places: make(chan struct{}, opts.MaxConnections)}
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.all.Go(p.accept)
	return p, nil
}

// Addr is where the proxy listens, as host:port.
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// Stats returns what was done so far.
func (p *Proxy) Stats() Stats {
	return Stats{
		Connections: p.connections.Load(), Cuts: p.cuts.Load(), Stalls: p.stalls.Load(),
		Split: p.split.Load(), Slowed: p.slowed.Load(),
	}
}

// Close resets what is connected and returns when nothing is left running. A second
// call does nothing.
func (p *Proxy) Close() error {
	p.stop()
	err := p.ln.Close()
	p.all.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// accept draws the faults of each connection in the order in which they come.
func (p *Proxy) accept() {
	rng := rand.New(rand.NewPCG(p.opts.Seed, 0))
	for {
		select {
		case p.places <- struct{}{}:
		case <-p.ctx.Done():
			return
		}
		client, err := p.ln.Accept()
		if err != nil {
			<-p.places
			if p.ctx.Err() != nil {
				return
			}
			p.sleep(p.ctx, 10*time.Millisecond) // such as too many open files
			continue
		}
		p.connections.Add(1)
		there, back := p.draw(rng), p.draw(rng)
		p.all.Go(func() {
			p.serve(client.(*net.TCPConn), there, back)
			<-p.places
		})
	}
}

// faults are those of one direction; positions count its bytes, -1 is never.
type faults struct {
	cutAt, stallAt int
	reset          bool
	stall          time.Duration
	split          bool
	rate           int // 0: as fast as it goes
}

// draw takes as many numbers whatever comes of them, so that one chance does not
// change what the others bring.
func (p *Proxy) draw(rng *rand.Rand) faults {
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

// serve passes on one connection until both directions have ended or one is cut.
func (p *Proxy) serve(client *net.TCPConn, there, back faults) {
	ctx, end := context.WithCancel(p.ctx)
	defer end()
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", p.opts.Target)
	if err != nil {
		closeHard(client)
		return
	}
	target := conn.(*net.TCPConn)
	// What still reads or writes when the connection is broken off is woken by this.
	var breaker, both sync.WaitGroup
	breaker.Go(func() {
		<-ctx.Done()
		closeHard(client)
		closeHard(target)
	})
	both.Go(func() { p.pass(ctx, end, target, client, there) })
	both.Go(func() { p.pass(ctx, end, client, target, back) })
	both.Wait()
	client.Close() // before the breaker, which would reset what is still under way
	target.Close()
	end()
	breaker.Wait()
}

// closeHard closes with a reset, so that the other side learns of it at once.
func closeHard(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// pass copies one direction. end breaks off the whole connection.
func (p *Proxy) pass(ctx context.Context, end func(), dst, src *net.TCPConn, f faults) {
	buf := make([]byte, bufferSize)
	for passed := 0; ; {
		n, err := src.Read(buf)
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
			piece := rest[:f.piece(passed, len(rest))]
			if _, err := dst.Write(piece); err != nil {
				end()
				return
			}
			passed += len(piece)
			rest = rest[len(piece):]
			if f.rate > 0 {
				p.sleep(ctx, time.Duration(len(piece))*time.Second/time.Duration(f.rate))
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

// piece is how much of what is left goes into the next write.
func (f *faults) piece(passed, left int) int {
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
