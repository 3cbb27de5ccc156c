package main

import (
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/lmittmann/tint"
	"golang.org/x/term"

	"loquat/internal/config"
)

// newLogger writes for people on a terminal and for machines elsewhere. What it writes
// goes through secrets once that is set: whoever logs an error need not know what
// others put into it.
func newLogger(w io.Writer, secrets *atomic.Pointer[config.Masker]) *slog.Logger {
	conceal := func(_ []string, a slog.Attr) slog.Attr {
		switch v := a.Value.Any().(type) {
		case string:
			a.Value = slog.StringValue(secrets.Load().Mask(v))
		case error:
			a.Value = slog.StringValue(secrets.Load().Mask(v.Error()))
		}
		return a
	}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == "" {
		return slog.New(tint.NewTextHandler(w, &tint.Options{TimeFormat: time.TimeOnly, ReplaceAttr: conceal}))
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: conceal}))
}
