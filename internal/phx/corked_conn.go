package phx

import (
	"net"
	"sync"
)

// corkedConn is a connection that can buffer writes, so that several frames that are ready
// at the same time need one system call instead of one for each.
type corkedConn struct {
	net.Conn

	mu   sync.Mutex
	held *[]byte // nil: writes are not buffered
}

// maxHeld is the size of the buffer. A larger write is not buffered.
const maxHeld = 16 << 10

// heldBuffers is a pool of buffers, so that idle sockets have none.
var heldBuffers = sync.Pool{New: func() any { return new(make([]byte, 0, maxHeld)) }}

// Write implements net.Conn.
func (c *corkedConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		return c.Conn.Write(b)
	}
	if len(*c.held)+len(b) > maxHeld {
		if err := c.flush(); err != nil {
			return 0, err
		}
	}
	if len(b) > maxHeld {
		return c.Conn.Write(b)
	}
	*c.held = append(*c.held, b...)
	return len(b), nil
}

// cork starts buffering writes.
func (c *corkedConn) cork() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		c.held = heldBuffers.Get().(*[]byte)
	}
}

// uncork writes the buffer and stops buffering.
func (c *corkedConn) uncork() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		return nil
	}
	err := c.flush()
	heldBuffers.Put(c.held)
	c.held = nil
	return err
}

func (c *corkedConn) flush() error {
	if len(*c.held) == 0 {
		return nil
	}
	_, err := c.Conn.Write(*c.held)
	*c.held = (*c.held)[:0]
	return err
}
