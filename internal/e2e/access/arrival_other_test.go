//go:build unix && !linux

package access_test

import (
	"context"
	"net"
	"time"
)

// listenStamping listens on loopback. Only Linux says when it received what a connection reads.
func listenStamping(ctx context.Context) (net.Listener, error) {
	var config net.ListenConfig
	return config.Listen(ctx, "tcp", "127.0.0.1:0")
}

// receivedAt returns the time.
func receivedAt(net.Conn) time.Time { return time.Now() }
