package access_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// listenStamping listens on loopback for connections that know when the kernel received what they
// read. A test that gets no CPU for a while reads late.
func listenStamping(ctx context.Context) (net.Listener, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error { // connections inherit the option
		var failed error
		err := raw.Control(func(fd uintptr) {
			failed = os.NewSyscallError("setsockopt", syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_TIMESTAMPNS, 1))
		})
		return errors.Join(err, failed)
	}}
	ln, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	return stampingListener{ln}, err
}

type stampingListener struct{ net.Listener }

func (l stampingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	raw, err := conn.(*net.TCPConn).SyscallConn()
	return &stampingConn{Conn: conn, raw: raw}, err
}

type stampingConn struct {
	net.Conn
	raw syscall.RawConn

	received time.Time // what was read last; owned by the goroutine that reads
}

func (c *stampingConn) Read(p []byte) (n int, err error) {
	oob := make([]byte, 64)
	var control int
	var failed error
	err = c.raw.Read(func(fd uintptr) bool {
		n, control, _, _, failed = syscall.Recvmsg(int(fd), p, oob, 0)
		return failed != syscall.EAGAIN
	})
	switch {
	case err != nil:
		return 0, err
	case failed != nil:
		return 0, os.NewSyscallError("recvmsg", failed)
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	messages, err := syscall.ParseSocketControlMessage(oob[:control])
	for _, m := range messages {
		if m.Header.Level == syscall.SOL_SOCKET && m.Header.Type == syscall.SCM_TIMESTAMPNS && len(m.Data) >= int(unsafe.Sizeof(syscall.Timespec{})) {
			at := (*syscall.Timespec)(unsafe.Pointer(&m.Data[0]))
			c.received = time.Unix(at.Unix())
			return n, nil
		}
	}
	return 0, fmt.Errorf("the kernel does not say when it received %d bytes: %w", n, err)
}

// receivedAt returns when the kernel received the request that a connection has read.
func receivedAt(conn net.Conn) time.Time { return conn.(*stampingConn).received }
