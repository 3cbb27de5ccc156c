package phx

import (
	"net"
	"sync"
)

// corked is a connection that can hold back what is written to it, so that frames that
// are ready together go out together: one call of the system instead of one for each.
type corked struct {
	net.Conn

	mu   sync.Mutex
	held *[]byte // nil: nothing is held back
}

// maxHeld is how many bytes are held back at the most, a larger write passes at once.
const maxHeld = 16 << 10

// spares are buffers for what is held back; sockets that rest have none.
var spares = sync.Pool{New: func() any { return new(make([]byte, 0, maxHeld)) }}

// Write is of net.Conn.
func (c *corked) Write(b []byte) (int, error) {
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

// cork holds back what is written from here on, until uncork.
func (c *corked) cork() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		c.held = spares.Get().(*[]byte)
	}
}

// uncork writes what was held back.
func (c *corked) uncork() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		return nil
	}
	err := c.flush()
	spares.Put(c.held)
	c.held = nil
	return err
}

func (c *corked) flush() error {
	if len(*c.held) == 0 {
		return nil
	}
	_, err := c.Conn.Write(*c.held)
	*c.held = (*c.held)[:0]
	return err
}
