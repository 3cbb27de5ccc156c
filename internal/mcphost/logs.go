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
	maxLast        = 300     // bytes of its last line, where its end is told
)

// logs writes what a process says into Loquat's log.
type logs struct {
	log  *slog.Logger
	mask func(string) string
	said func(line string) // nil: into the log

	allowed *rate.Limiter
	dropped atomic.Int64
}

func newLogs(log *slog.Logger, mask func(string) string, said func(string)) *logs {
	return &logs{log: log, mask: mask, said: said, allowed: rate.NewLimiter(linesPerSecond, linesAtOnce)}
}

// copy logs the lines of a process's standard error until it ends, and returns the
// last one.
func (l *logs) copy(r io.Reader) (last string) {
	lines := bufio.NewReaderSize(&paced{r: r}, maxLine)
	for cut := false; ; {
		line, err := lines.ReadSlice('\n')
		if line = bytes.TrimRight(line, " \t\r\n"); len(line) > 0 && !cut {
			last = string(line)
			l.line(slog.LevelInfo, last)
		}
		cut = errors.Is(err, bufio.ErrBufferFull)
		if err != nil && !cut {
			return l.cleaned(last, maxLast)
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
	text = l.cleaned(text, maxLine)
	if l.said != nil {
		l.said(text)
		return
	}
	l.log.Log(context.Background(), level, "plugin says", "line", text)
}

// cleaned is a text without secrets, of at most so many bytes.
func (l *logs) cleaned(text string, most int) string {
	text = l.mask(strings.ToValidUTF8(text, "\ufffd"))
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}
