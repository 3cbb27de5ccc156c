package main

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"loquat/internal/config"
)

// Secrets are taken out of messages, texts and errors, in groups too, whoever logs them.
func TestLogRedacts(t *testing.T) {
	const secret = "sk-0123456789"
	secrets := &config.Redactor{}
	var out strings.Builder
	log := newLogger(&out, secrets)
	log.Info("before any are known", "n", 1)
	secrets.Add([]string{secret})
	log.WithGroup("g").With("with", "a "+secret).Error("b "+secret, "text", "c "+secret,
		"error", fmt.Errorf("d: %w", errors.New(secret)), slog.Group("inner", "e", secret))
	if got := out.String(); strings.Contains(got, secret) || strings.Count(got, "***") != 5 || !strings.Contains(got, "n=1") {
		t.Errorf("the log is\n%s", got)
	}
}
