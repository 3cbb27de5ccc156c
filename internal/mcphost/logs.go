package mcphost

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// The bounds of what of a process's words goes into the log.
const (
	maxLine        = 2 << 10 // bytes; the rest of a line is cut
	linesPerSecond = 20
	linesAtOnce    = 100
	bytesPerSecond = 4 << 20 // of its standard error; faster, and it has to wait
)

// logs writes what a process says into Loquat's log.
type logs struct {
	log  *slog.Logger
	mask func(string) string

	allowed *rate.Limiter
	dropped atomic.Int64
}

func newLogs(log *slog.Logger, mask func(string) string) *logs {
	return &logs{log: log, mask: mask, allowed: rate.NewLimiter(linesPerSecond, linesAtOnce)}
}

// copy logs the lines of a process's standard error until it ends.
func (l *logs) copy(r io.Reader) {
	lines := bufio.NewReaderSize(&paced{r: r}, maxLine)
	for cut := false; ; {
		line, err := lines.ReadSlice('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 && !cut {
			l.line(slog.LevelInfo, string(line))
		}
		cut = errors.Is(err, bufio.ErrBufferFull)
		if err != nil && !cut {
			return
		}
	}
}

// paced reads no faster than bytesPerSecond.
type paced struct {
	r     io.Reader
	since time.Time
	n     int
}

func (p *paced) Read(b []byte) (int, error) {
	if wait := time.Second - time.Since(p.since); wait <= 0 {
		p.since, p.n = time.Now(), 0
	} else if p.n > bytesPerSecond {
		time.Sleep(wait)
	}
	n, err := p.r.Read(b)
	p.n += n
	return n, err
}

// message logs what a process says over the protocol.
func (l *logs) message(level, text string) {
	switch level {
	case "error", "critical", "alert", "emergency":
		l.line(slog.LevelError, text)
	case "warning":
		l.line(slog.LevelWarn, text)
	case "debug":
		l.line(slog.LevelDebug, text)
	default:
		l.line(slog.LevelInfo, text)
	}
}

// line logs one line, unless there were too many.
func (l *logs) line(level slog.Level, text string) {
	if !l.allowed.Allow() {
		l.dropped.Add(1)
		return
	}
	if n := l.dropped.Swap(0); n > 0 {
		l.log.Warn("plugin said too much; lines were left out", "lines", n)
	}
	if len(text) > maxLine {
		text = text[:maxLine]
	}
	l.log.Log(context.Background(), level, "plugin says", "line", l.mask(strings.ToValidUTF8(text, "\ufffd")))
}
