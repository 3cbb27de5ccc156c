//go:build unix

package postgres_test

import (
	"bytes"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// The ways in which a cutter treats a COMMIT.
const (
	pass           = iota
	cutBefore      // the server does not get it
	cutAfter       // the server gets it, and the answer is lost
	swallow        // the server gets it, and the connection stays open without an answer
	swallowRequest // nobody gets anything, and the connection stays open
)

// cutter is a proxy in front of a server that breaks connections while a COMMIT runs.
type cutter struct {
	target string
	ln     net.Listener
	fault  func() int // called for every COMMIT
	cuts   atomic.Int64

	running sync.WaitGroup
	mu      sync.Mutex
	conns   []net.Conn
}

func startCutter(t *testing.T, target string, fault func() int) *cutter {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{target: target, ln: ln, fault: fault}
	c.running.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			c.running.Go(func() { c.serve(conn) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		c.mu.Lock()
		for _, conn := range c.conns {
			conn.Close()
		}
		c.mu.Unlock()
		c.running.Wait()
	})
	return c
}

func (c *cutter) serve(client net.Conn) {
	server, err := net.Dial("tcp", c.target)
	if err != nil {
		client.Close()
		return
	}
	c.mu.Lock()
	c.conns = append(c.conns, client, server)
	c.mu.Unlock()
	var muted atomic.Bool
	c.running.Go(func() {
		defer client.Close()
		buffer := make([]byte, 64<<10)
		for {
			n, err := server.Read(buffer)
			if n > 0 && !muted.Load() {
				if _, err := client.Write(buffer[:n]); err != nil {
					return
				}
			}
			if err != nil {
				if muted.Load() {
					_, _ = io.Copy(io.Discard, client) // stays open
				}
				return
			}
		}
	})
	defer server.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		if bytes.Contains(buffer[:n], []byte("COMMIT\x00")) {
			fault := c.fault()
			if fault != pass {
				c.cuts.Add(1)
			}
			switch fault {
			case cutBefore:
				client.Close()
				return
			case cutAfter:
				muted.Store(true)
				_, _ = server.Write(buffer[:n])
				client.Close()
				return
			case swallow:
				muted.Store(true)
			case swallowRequest:
				continue
			}
		}
		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
	}
}
