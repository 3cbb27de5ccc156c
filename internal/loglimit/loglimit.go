// Package loglimit bounds how often the log repeats a message that others can cause:
// wrong tokens, refused joins, failed handshakes.
//
// A message is written at most eleven times a minute, however often its cause occurs, and
// the log says how often it was left out. Messages are counted without their values, so that
// many addresses do not cause many lines.
package loglimit

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Bounds of one message.
const (
	interval = time.Minute
	usual    = 10 // written as they come; the rest of an interval is counted
)

// maxMessages bounds how many different messages are counted apart; further ones are
// counted together, as others. A program has few; Writer may find more.
const (
	maxMessages = 64
	others      = "other messages"
)

// Logger writes messages that others can cause. It is safe for concurrent use.
type Logger struct {
	log   *slog.Logger
	whole int // messages that are written as they come, in each interval

	mu    sync.Mutex
	known map[string]*count
}

// count is one message within an interval.
type count struct {
	began   time.Time
	written int
	left    int // out, since the last summary
	level   slog.Level
	args    []any       // of the last one that was left out
	summary *time.Timer // nil while none is left out
}

// New returns a Logger that writes to log.
func New(log *slog.Logger) *Logger {
	return &Logger{log: log, whole: usual, known: map[string]*count{}}
}

// Once returns a Logger that writes only the first of a message's occurrences in a minute.
func Once(log *slog.Logger) *Logger {
	return &Logger{log: log, whole: 1, known: map[string]*count{}}
}

// Log writes a message, or counts it when it was written often enough in this minute.
func (l *Logger) Log(level slog.Level, message string, args ...any) {
	if !l.log.Enabled(context.Background(), level) {
		return
	}
	if l.admit(level, message, args) {
		l.log.Log(context.Background(), level, message, args...)
	}
}

// admit reports whether a message is to be written.
func (l *Logger) admit(level slog.Level, message string, args []any) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.known[message] == nil && len(l.known) >= maxMessages && !l.forget(now) {
		message, args = others, append([]any{"message", message}, args...)
	}
	c := l.known[message]
	if c == nil || c.left == 0 && now.Sub(c.began) >= interval {
		c = &count{began: now}
		l.known[message] = c
	}
	if c.written < l.whole {
		c.written++
		return true
	}
	c.left++
	c.level, c.args = level, args
	if c.summary == nil {
		c.summary = time.AfterFunc(interval-now.Sub(c.began), func() { l.summarise(message) })
	}
	return false
}

// forget makes room for another message. The caller holds the lock.
func (l *Logger) forget(now time.Time) bool {
	for message, c := range l.known {
		if c.left == 0 && now.Sub(c.began) >= interval {
			delete(l.known, message)
			return true
		}
	}
	return false
}

// summarise writes how often a message was left out, with the values of the last time.
func (l *Logger) summarise(message string) {
	l.mu.Lock()
	c := l.known[message]
	delete(l.known, message)
	l.mu.Unlock()
	if c == nil || c.left == 0 {
		return
	}
	c.summary.Stop()
	l.log.Log(context.Background(), c.level, message, append(c.args[:len(c.args):len(c.args)], "left_out", c.left, "within", interval)...)
}

// Flush writes all summaries that are due later, for a process that ends.
func (l *Logger) Flush() {
	l.mu.Lock()
	var messages []string
	for message := range l.known {
		messages = append(messages, message)
	}
	l.mu.Unlock()
	for _, message := range messages {
		l.summarise(message)
	}
}

// Writer returns what a log.Logger of the standard library writes to, such as the ErrorLog
// of an http.Server. The beginning of a line, up to the address that it names, is the
// message.
func (l *Logger) Writer(level slog.Level) io.Writer { return writer{l, level} }

type writer struct {
	l     *Logger
	level slog.Level
}

func (w writer) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	message, rest := text, ""
	if at := strings.IndexFunc(text, isDetail); at > 0 {
		message, rest = text[:at], text[at:]
	}
	message = strings.TrimRight(strings.TrimSuffix(strings.TrimSpace(message), " from"), " :")
	var args []any
	if rest != "" {
		args = []any{"detail", rest}
	}
	w.l.Log(w.level, message, args...)
	return len(line), nil
}

// isDetail reports whether a character begins what differs from line to line: an address,
// a path, a quoted text.
func isDetail(r rune) bool {
	return r >= '0' && r <= '9' || r == '[' || r == '/' || r == '"' || r == '\n'
}
