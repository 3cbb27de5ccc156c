package main

import (
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
	"golang.org/x/term"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/tui"
)

// newLogger writes for people on a terminal and for machines elsewhere.
func newLogger(w io.Writer, secrets *config.Redactor) *slog.Logger {
	f, ok := w.(*os.File)
	return newLog(w, ok && term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == "", secrets)
}

// maxLogged is the most characters of an error in the log.
const maxLogged = 32 << 10

// newLog writes to w. Secrets are removed from everything as soon as they are known, and
// errors are clipped: whoever logs an error need not know what others put into it.
// The handler for terminals passes escape sequences on, so they are cleaned here;
// the other one quotes them.
func newLog(w io.Writer, terminal bool, secrets *config.Redactor) *slog.Logger {
	redact := func(_ []string, a slog.Attr) slog.Attr {
		var text string
		switch v := a.Value.Any().(type) {
		case string:
			text = secrets.Redact(v)
		case error:
			text = loquat.Clip(secrets.Redact(v.Error()), maxLogged)
		default:
			return a
		}
		if terminal {
			text = tui.Clean(text)
		}
		a.Value = slog.StringValue(text)
		return a
	}
	if terminal {
		return slog.New(tint.NewTextHandler(w, &tint.Options{TimeFormat: time.TimeOnly, ReplaceAttr: redact}))
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: redact}))
}
