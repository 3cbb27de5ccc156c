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

// Bounds of the log lines of a process.
const (
	maxLine        = 2 << 10 // bytes; the rest of a line is cut
	linesPerSecond = 20
	linesAtOnce    = 100
	bytesPerSecond = 4 << 20 // of its standard error; reading is slowed down to this rate
	maxLast        = 300     // bytes of its last line in the error about its end
)

// logs writes a process's lines to Loquat's log.
type logs struct {
	log    *slog.Logger
	redact func(string) string
	onLine func(line string) // nil means the log

	allowed *rate.Limiter
	dropped atomic.Int64
}

func newLogs(log *slog.Logger, redact func(string) string, onLine func(string)) *logs {
	return &logs{log: log, redact: redact, onLine: onLine, allowed: rate.NewLimiter(linesPerSecond, linesAtOnce)}
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

// message logs a log message of the protocol.
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

// line logs one line, unless the rate limit is reached.
func (l *logs) line(level slog.Level, text string) {
	if !l.allowed.Allow() {
		l.dropped.Add(1)
		return
	}
	if n := l.dropped.Swap(0); n > 0 {
		l.log.Warn("plugin logged too much; lines were left out", "lines", n)
	}
	text = l.cleaned(text, maxLine)
	if l.onLine != nil {
		l.onLine(text)
		return
	}
	l.log.Log(context.Background(), level, "plugin says", "line", text)
}

// cleaned returns a text without secrets, cut to at most so many bytes.
func (l *logs) cleaned(text string, most int) string {
	text = l.redact(strings.ToValidUTF8(text, "\ufffd"))
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}
