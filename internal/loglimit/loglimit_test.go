package loglimit

import (
	"bytes"
	"fmt"
	"log"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// buffer is a log that a test reads.
type buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// lines returns what was written since the last call.
func (b *buffer) lines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.buf.Reset()
	return strings.Split(strings.TrimSuffix(b.buf.String(), "\n"), "\n")
}

func newTest() (*Logger, *buffer) {
	b := &buffer{}
	return New(slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))), b
}

// Each message is written ten times a minute, then counted. When the minute is over, a
// summary says how often it was left out.
func TestMessagesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newTest()
		for i := range 1000 {
			l.Log(slog.LevelWarn, "a token is wrong", "client", i)
			if i < 3 {
				l.Log(slog.LevelInfo, "a join was refused", "client", i)
			}
		}
		if got := b.lines(); len(got) != usual+3 {
			t.Errorf("%d lines: %q", len(got), got)
		}
		time.Sleep(interval - time.Nanosecond)
		synctest.Wait()
		if got := b.lines(); len(got) != 1 || got[0] != "" {
			t.Errorf("before the minute is over: %q", got)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if got := b.lines(); len(got) != 1 || got[0] != `level=WARN msg="a token is wrong" client=999 left_out=990 within=1m0s` {
			t.Errorf("when it is: %q", got)
		}
		l.Log(slog.LevelWarn, "a token is wrong", "client", 1)
		l.Log(slog.LevelInfo, "a join was refused", "client", 9)
		if got := b.lines(); len(got) != 2 {
			t.Errorf("the next minute: %q", got)
		}
		// An hour of it, from many at once.
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 3600 {
					l.Log(slog.LevelWarn, "a token is wrong")
					time.Sleep(time.Second)
				}
			})
		}
		all.Wait()
		time.Sleep(interval)
		synctest.Wait()
		got := b.lines()
		written, left := 0, 0
		for _, line := range got {
			var n int
			if _, after, ok := strings.Cut(line, "left_out="); ok {
				fmt.Sscan(after, &n)
				left += n
			} else {
				written++
			}
		}
		if len(got) > 61*(usual+1) || written+left != 8*3600 {
			t.Errorf("%d lines, which tell of %d+%d", len(got), written, left)
		}
	})
}

func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newTest()
		for range usual + 5 {
			l.Log(slog.LevelWarn, "a")
		}
		l.Log(slog.LevelDebug, "not enabled")
		b.lines()
		l.Flush()
		l.Flush()
		if got := b.lines(); len(got) != 1 || !strings.Contains(got[0], "left_out=5") {
			t.Errorf("%q", got)
		}
		time.Sleep(2 * interval)
		synctest.Wait()
		if got := b.lines(); got[0] != "" {
			t.Errorf("later: %q", got)
		}
	})
}

// The number of counted messages is bounded. Messages whose interval is over are removed.
func TestManyMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newTest()
		for i := range 10_000 {
			l.Log(slog.LevelWarn, fmt.Sprint("message ", i))
		}
		l.mu.Lock()
		known := len(l.known)
		l.mu.Unlock()
		if got := b.lines(); len(got) != maxMessages+usual || known != maxMessages+1 {
			t.Errorf("%d lines, %d known", len(got), known)
		}
		time.Sleep(interval)
		synctest.Wait()
		if got := b.lines(); len(got) != 1 || got[0] != fmt.Sprintf(`level=WARN msg="other messages" message="message 9999" left_out=%d within=1m0s`, 10_000-maxMessages-usual) {
			t.Errorf("when the minute is over: %q", got)
		}
		l.Log(slog.LevelWarn, "another")
		if got := b.lines(); !strings.Contains(got[0], "another") {
			t.Errorf("later: %q", got)
		}
	})
}

// Lines of net/http are distinguished by their text, not by the address in them.
func TestWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newTest()
		std := log.New(l.Writer(slog.LevelWarn), "", 0)
		for i := range 500 {
			std.Printf("http: TLS handshake error from 192.0.2.%d:%d: EOF", i%250, 40000+i)
			std.Printf("http: TLS handshake error from [2001:db8::%x]:%d: remote error: tls: bad certificate", i, 40000+i)
			std.Printf("http: panic serving 192.0.2.%d:1: oh\ngoroutine 1 [running]:\nmain.go from 12", i%250)
			std.Printf("http: Accept error: accept tcp 127.0.0.1:80: too many open files; retrying in %dms", i)
		}
		got := b.lines()
		if len(got) != 3*usual {
			t.Errorf("%d lines", len(got))
		}
		if want := `level=WARN msg="http: TLS handshake error" detail="192.0.2.0:40000: EOF"`; got[0] != want {
			t.Errorf("%s\nwant %s", got[0], want)
		}
		std.Print("\n")
		std.Print("12:")
		l.Flush()
	})
}

// Once writes the first of a message's occurrences and counts the others.
func TestOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, b := newTest()
		l = Once(l.log)
		for range 100 {
			l.Log(slog.LevelError, "the disk is full")
		}
		if got := b.lines(); len(got) != 1 {
			t.Errorf("it wrote %q", got)
		}
		time.Sleep(interval)
		synctest.Wait()
		if got := b.lines(); len(got) != 1 || !strings.Contains(got[0], "left_out=99") {
			t.Errorf("after a minute it wrote %q", got)
		}
	})
}
